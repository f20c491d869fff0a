import BluezDBus
import Dispatch
import Foundation

/// The adapter that is used, and the `CBManagerState` that it makes. Carries out what ``AdapterStateMachine`` decides.
final class AdapterController {
    private let bus: BlueZBus
    private var machine = AdapterStateMachine()
    /// Nil: the app has none; the first one that is on.
    private let choice: AdapterChoice?
    /// nil: none is used.
    private(set) var path: ObjectPath?
    private var graceTimer: QueueTimer?
    /// Adapters that are being asked for `Powered`.
    private var poweredQuestions: Set<String> = []
    /// Links from before bluetoothd hung, until it has ended them.
    private var staleLinks: Set<ObjectPath> = []
    /// Addresses of adapters, by name.
    private var identities: [String: DeviceIdentity] = [:]
    /// Whether BlueZ is a simulated one, whose L2CAP sockets come over the bus.
    private(set) var hasSimulatedSockets = false
    /// The bluetoothd that is running. Known before the state is `.poweredOn`.
    private(set) var daemon = BlueZDaemon()
    /// When bluetoothd came back, if it was away.
    private var restarted: DispatchTime?

    /// Counts how often Bluetooth went off, or away: no scan, link or connect request survives that. A command of the
    /// app belongs to the generation that the app has seen.
    /// From a number that another process is unlikely to have: an app may outlive its keeper.
    private(set) var generation = UInt64.random(in: 0..<1 << 32)
    /// The same for published services, which survive that Bluetooth is off.
    private(set) var servicesGeneration = UInt64.random(in: 0..<1 << 32)

    /// The state has changed. On the bus queue, as all of these.
    var onStateChange: ((CBManagerState) -> Void)?
    /// bluetoothd has ended.
    var onDaemonEnd: (() -> Void)?

    init(_ bus: BlueZBus, choice: AdapterChoice?) {
        (self.bus, self.choice) = (bus, choice)
        machine.isOnly = choice != nil
        if let name = choice?.name { machine.usual = name }
    }

    var state: CBManagerState { machine.state }
    /// `hci0` or the like.
    var name: String? { machine.used }
    /// Its address.
    var identity: DeviceIdentity? { name.flatMap { identities[$0] } }

    /// Names what a link never outlives: this bus, this bluetoothd, this adapter. The kernel gives an adapter that was
    /// replugged a new node in its file system, under the old name.
    var stackGeneration: String? {
        guard let connection = bus.connection, let owner = bus.owner, let name else { return nil }
        var status = stat()
        let node = stat("/sys/class/bluetooth/\(name)", &status) == 0 ? " \(status.st_ino)" : ""
        return "\(connection.serverGUID ?? "") \(owner) \(name)\(node)"
    }

    /// Whether bluetoothd may report links as its own that its predecessor has left behind.
    var mayReportStaleLinks: Bool {
        restarted.map { $0.later(by: bus.timing.adapter.staleLinks) > DispatchQueue.now } ?? false
    }

    // MARK: The connection to the bus

    /// Everything is asked at once, in the order in which the answers are needed: starting up takes one round trip,
    /// however many devices BlueZ knows (D5).
    func busOpened() {
        bus.assertOnQueue()
        bus.connection?.watchName(BlueZ.busName) { [weak self] owner in self?.ownerChanged(isThere: owner != nil) }
        // Few and wide. What else is needed is asked for while it is: devices while scanning, a link's own signals.
        bus.connection?.addMatch(
            MatchRule(sender: BlueZ.busName, interface: "org.freedesktop.DBus.ObjectManager"))
        bus.connection?.addMatch(
            MatchRule(
                sender: BlueZ.busName, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged",
                argument0: BlueZ.adapter))
    }

    func ask() {
        bus.assertOnQueue()
        staleLinks.forEach(endStaleLink)
        askPowered(machine.first, mayStart: true)
    }

    func busLost() {
        bus.assertOnQueue()
        apply(machine.handle(.busLost))
    }

    /// What was asked on the connection that is gone gets no answer.
    func reset() { poweredQuestions = [] }

    private func ownerChanged(isThere: Bool) {
        bus.resetLosses()
        daemon = BlueZDaemon()  // a package may have been upgraded
        identities = [:]  // names may be given to other adapters
        if !isThere {
            onDaemonEnd?()
            staleLinks = []  // they have ended with it
        }
        apply(machine.handle(.owner(present: isThere)))
    }

    /// bluetoothd hangs.
    /// - Parameter links: The devices to disconnect when it answers again: no app uses their links then.
    func daemonHangs(links: Set<ObjectPath>) {
        bus.assertOnQueue()
        staleLinks = links
        apply(machine.handle(.hung))
    }

    private func endStaleLink(_ path: ObjectPath) {
        guard let device = bus.proxy(path, BlueZ.device) else { return }
        let isStale = { [weak self] in self?.staleLinks.contains(path) == true }
        bus.disconnect(device, mayCall: isStale) { [weak self] result in
            guard let self, isStale() else { return }
            if result.failure == .timedOut { return endStaleLink(path) }
            if case .disconnected? = result.failure { return }  // on the next connection
            staleLinks.remove(path)
            if staleLinks.isEmpty { askPowered(machine.first, mayStart: false) }
        }
    }

    // MARK: What the machine decides

    private func apply(_ actions: [AdapterStateMachine.Action]) {
        for action in actions {
            switch action {
            case .setState(let state): announce(state)
            case .askPowered(let name): askPowered(name, mayStart: false)
            case .list: listAdapters()
            case .use(let name): path = name.flatMap { BlueZ.root.appending($0) }
            case .startGrace(let grace): startGrace(grace)
            case .stopGrace:
                graceTimer?.cancel()
                graceTimer = nil
            case .ignoreStaleLinks: restarted = DispatchQueue.now
            case .switchOn(let name): BlueZ.root.appending(name).map(switchOn)
            }
        }
    }

    private func announce(_ state: CBManagerState) {
        if state != .poweredOn { generation += 1 }
        if state != .poweredOn, state != .poweredOff { servicesGeneration += 1 }
        onStateChange?(state)
    }

    private func askPowered(_ name: String, mayStart: Bool) {
        guard let path = BlueZ.root.appending(name), !poweredQuestions.contains(name), staleLinks.isEmpty,
            let proxy = bus.proxy(path, BlueZ.adapter)
        else { return }
        poweredQuestions.insert(name)
        // All properties, as they tell which BlueZ this is as well.
        proxy.getAll(mayStartDestination: mayStart) { [weak self] result in
            guard let self else { return }
            poweredQuestions.remove(name)
            switch result {
            case .success(let reply):
                var reader = reply.reader
                // Only BlueZ's owner can have answered; but the answer may be older than a change of owner.
                let powered = try? readProperties(&reader, of: name)
                apply(machine.handle(.powered(name, isAllowed(name) ? powered : nil)))
            case .failure(let error): report(error, asking: name)
            }
        }
    }

    private func isAllowed(_ name: String) -> Bool {
        choice?.allows(name, address: identities[name]?.addressText) ?? true
    }

    /// - Returns: `Powered`, if it is among them.
    private func readProperties(_ reader: inout MessageReader, of name: String) throws(BusError) -> Bool? {
        var powered: Bool?
        var daemon = daemon
        var (address, isRandom): (String?, Bool) = (nil, false)
        try reader.readProperties { (key, value) throws(BusError) in
            if key.matches("Powered") { powered = try value.readBool() }
            if key.matches("Connectable") { daemon.hasConnectable = true }
            if key.matches("Address") { address = try value.readString() }
            if key.matches("AddressType") { isRandom = try value.readCString().matches("random") }
            if key.matches("SimulatedSockets") { hasSimulatedSockets = try value.readBool() }
            if key.matches("Modalias"), let version = BlueZVersion(modalias: try value.readString()) {
                daemon.version = version
            }
        }
        if daemon != self.daemon { Log.debug("BlueZ \(daemon.version.map(\.description) ?? "of an unknown version")") }
        self.daemon = daemon
        if let identity = address.flatMap({ DeviceIdentity(address: $0, isRandom: isRandom) }) {
            identities[name] = identity
        }
        return powered
    }

    private func report(_ error: BusError, asking name: String) {
        switch error.name {
        case "org.freedesktop.DBus.Error.AccessDenied":
            Log.warning(
                "the bus does not let this user talk to BlueZ: \(error.message). "
                    + "Add the user to the group `bluetooth` and log in again, or see "
                    + "/etc/dbus-1/system.d/bluetooth.conf")
            apply(machine.handle(.denied))
        case let name where BlueZErrorName.meansNoDaemon(name):
            Log.warning("bluetoothd is not running and cannot be started: \(error.message)")
            apply(machine.handle(.noDaemon))
        // The owner or the bus is lost, which is handled where it is reported.
        case "org.freedesktop.DBus.Error.Disconnected": break
        // Or bluetoothd hangs. It answers when it resumes.
        case "org.freedesktop.DBus.Error.NoReply":
            if bus.owner != nil { askPowered(name, mayStart: false) }
        case "org.freedesktop.DBus.Error.LimitsExceeded":
            bus.after(bus.timing.adapter.poweredRetry) { [weak self] in self?.askPowered(name, mayStart: false) }
        default: apply(machine.handle(.powered(name, nil)))
        }
    }

    private func listAdapters() {
        guard let connection = bus.connection else { return }
        bus.insist({ BlueZProxy(bus: connection, path: BlueZ.root, interface: "").children(completion: $0) }) {
            [weak self] result in
            guard let self, bus.connection === connection else { return }
            let names = (try? result.get()) ?? []
            apply(machine.handle(.listed(names.filter { BlueZ.root.appending($0) != nil })))
        }
    }

    /// USB controllers disappear for a moment when they are reset, and bluetoothd starts before its adapters: wait
    /// before saying that there is none (ST-6).
    private func startGrace(_ grace: AdapterStateMachine.Grace) {
        guard graceTimer == nil else { return }
        graceTimer = bus.timer(grace == .long ? bus.timing.adapter.longGrace : bus.timing.adapter.grace) {
            [weak self] in
            guard let self else { return }
            graceTimer = nil
            let hadOne = state != .unsupported
            apply(machine.handle(.graceOver))
            if hadOne, state == .unsupported { explainAbsence() }
        }
    }

    /// The state says that there is no Bluetooth, and not why.
    private func explainAbsence() {
        guard bus.connection != nil else { return }  // which has been reported
        guard bus.owner != nil else { return Log.warning("bluetoothd is not running; see `bluez-demo doctor`") }
        guard let choice else { return Log.warning("BlueZ has no Bluetooth adapter; see `bluez-demo doctor`") }
        let others = identities.sorted { ($0.key.count, $0.key) < ($1.key.count, $1.key) }
        let list = others.map { "\($0.key) (\($0.value.addressText))" }.joined(separator: ", ")
        let fault =
            choice.isPossible
            ? "there is no adapter \(choice.text)"
            : "'\(choice.text)' is neither the name of an adapter, such as hci0, nor an address"
        Log.warning(
            "\(fault), and BluezManagerOptionAdapterKey or BLUEZKIT_ADAPTER asks for it. "
                + "BlueZ has \(list.isEmpty ? "no adapter" : list)")
    }

    // MARK: Power

    /// Switches the adapter off and on, which ends the links of every program.
    func powerCycle() {
        bus.assertOnQueue()
        guard let path, let proxy = bus.proxy(path, BlueZ.adapter) else { return }
        machine.isPowerCycling = true
        proxy.set("Powered", .bool(false)) { [weak self] result in
            if let error = result.failure { self?.powerCycleFailed(error, "off") } else { self?.switchOn(path) }
        }
    }

    private func switchOn(_ path: ObjectPath) {
        bus.proxy(path, BlueZ.adapter)?.set("Powered", .bool(true)) { [weak self] result in
            if let error = result.failure { self?.powerCycleFailed(error, "on") }
        }
    }

    private func powerCycleFailed(_ error: BusError, _ step: String) {
        if case .disconnected = error { return }  // nothing is decided: the rest follows when the bus is back
        Log.warning("could not power \(step) \(path?.lastElement ?? "the adapter"): \(error.message) (\(error.name))")
        apply(machine.handle(.powerCycleFailed))
    }

    // MARK: Signals

    /// PropertiesChanged of an adapter.
    func receiveChange(_ message: Message, _ reader: inout MessageReader) throws(BusError) {
        guard let name = message.path.map({ String($0.lastElement) }),
            let powered = try readProperties(&reader, of: name), isAllowed(name)
        else { return }
        apply(machine.handle(.powered(name, powered)))
    }

    /// Interfaces of an object that is no device.
    func added(_ path: ObjectPath, _ interfaces: inout MessageReader) throws(BusError) {
        var powered: Bool?
        var isAdapter = false
        try interfaces.readDictionary { (entry) throws(BusError) in
            guard try entry.readCString().matches("org.bluez.Adapter1") else { return }
            isAdapter = true
            powered = try readProperties(&entry, of: String(path.lastElement))
        }
        // LEAdvertisingManager1 comes later, in a signal of its own.
        let name = String(path.lastElement)
        if isAdapter, isAllowed(name) { apply(machine.handle(.powered(name, powered ?? false))) }
    }

    func removed(_ path: ObjectPath) {
        let name = String(path.lastElement)
        identities[name] = nil
        apply(machine.handle(.powered(name, nil)))
    }
}
