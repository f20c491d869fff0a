import BluezKitRestore
import DBus
import Dispatch
import Foundation

/// From the first question to the state that managers announce.
extension Session {
    /// Everything is asked at once, in the order in which the answers are needed: starting up takes one round trip,
    /// however many devices BlueZ knows (D5).
    func start(on bus: Connection) {
        adapter.choice = key.adapter
        bus.watchName(BlueZ.busName) { [weak self] owner in
            guard let self else { return }
            reconnectDelay = .milliseconds(250)
            if owner == nil {
                noteLostBonds()
                staleLinks = []  // they have ended with it
            }
            if owner != nil, adapter.state == .resetting || adapter.state == .unsupported { restarted = .now }
            apply(adapter.handle(.owner(present: owner != nil)))
        }
        // Few and wide. What else is needed is asked for while it is: devices while scanning, a link's own signals.
        bus.addMatch(MatchRule(sender: BlueZ.busName, interface: "org.freedesktop.DBus.ObjectManager"))
        bus.addMatch(
            MatchRule(
                sender: BlueZ.busName, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged",
                argument0: BlueZ.adapter))
        updateConnectionEvents()
        staleLinks.forEach(endStaleLink)
        askPowered(key.adapter ?? "hci0", mayStart: true)
    }

    /// BlueZ was hung, and answers when it goes on.
    private func endStaleLink(_ path: ObjectPath) {
        guard let bus else { return }
        BlueZProxy(bus: bus, path: path, interface: BlueZ.device).disconnect { [weak self] result in
            guard let self, staleLinks.contains(path) else { return }
            if result.failure == .timedOut { return endStaleLink(path) }
            if case .disconnected? = result.failure { return }  // on the next connection
            staleLinks.remove(path)
            if staleLinks.isEmpty { askPowered(key.adapter ?? "hci0", mayStart: false) }
        }
    }

    func apply(_ actions: [AdapterStateMachine.Action]) {
        for action in actions {
            switch action {
            case .setState(let state): announce(state)
            case .askPowered(let name): askPowered(name, mayStart: false)
            case .list: listAdapters()
            case .use(let name): adapterPath = name.flatMap { BlueZ.root.appending($0) }
            case .startGrace(let grace): startGrace(grace)
            case .stopGrace:
                graceTimer?.cancel()
                graceTimer = nil
            case .switchOn(let name):
                guard let bus, let path = BlueZ.root.appending(name) else { break }
                switchOn(BlueZProxy(bus: bus, path: path, interface: BlueZ.adapter))
            }
        }
    }

    private func askPowered(_ name: String, mayStart: Bool) {
        guard let bus, let path = BlueZ.root.appending(name), !poweredQuestions.contains(name),
            staleLinks.isEmpty
        else { return }
        poweredQuestions.insert(name)
        let proxy = BlueZProxy(bus: bus, path: path, interface: BlueZ.adapter)
        proxy.get("Powered", mayStartDestination: mayStart) { [weak self] result in
            guard let self else { return }
            poweredQuestions.remove(name)
            switch result {
            case .success(let reply):
                var reader = reply.reader
                let powered = try? reader.readVariant { (value) throws(BusError) in try value.readBool() }
                // Only BlueZ's owner can have answered; but the answer may be older than a change of owner.
                apply(adapter.handle(.powered(name, powered)))
            case .failure(let error): note(error, asking: name)
            }
        }
    }

    private func note(_ error: BusError, asking name: String) {
        switch error.name {
        case "org.freedesktop.DBus.Error.AccessDenied":
            Log.warning(
                "the bus does not let this user talk to BlueZ: \(error.message). "
                    + "Add the user to the group `bluetooth` and log in again, or see "
                    + "/etc/dbus-1/system.d/bluetooth.conf")
            apply(adapter.handle(.denied))
        case let name where BlueZErrorName.meansNoDaemon(name):
            Log.warning("bluetoothd is not running and cannot be started: \(error.message)")
            apply(adapter.handle(.noDaemon))
        // The owner or the bus is lost, and says so by itself.
        case "org.freedesktop.DBus.Error.Disconnected": break
        // Or BlueZ hangs. It answers when it goes on.
        case "org.freedesktop.DBus.Error.NoReply":
            if bus?.owner(of: BlueZ.busName) != nil { askPowered(name, mayStart: false) }
        case "org.freedesktop.DBus.Error.LimitsExceeded":
            after(.milliseconds(100)) { session in session.askPowered(name, mayStart: false) }
        default: apply(adapter.handle(.powered(name, nil)))
        }
    }

    private func listAdapters() {
        guard let bus else { return }
        insist {
            BlueZProxy.children(of: BlueZ.root, on: bus, completion: $0)
        } answered: { [weak self] result in
            guard let self, self.bus === bus else { return }
            apply(adapter.handle(.listed((try? result.get()) ?? [])))
        }
    }

    /// USB controllers disappear for a moment when they are reset, and bluetoothd starts before its adapters: wait
    /// before saying that there is none (ST-6).
    private func startGrace(_ grace: AdapterStateMachine.Grace) {
        guard graceTimer == nil else { return }
        graceTimer = timer(grace == .long ? delays.longGrace : delays.grace) { session in
            session.graceTimer = nil
            session.apply(session.adapter.handle(.graceOver))
        }
    }

    // MARK: Signals

    /// PropertiesChanged of an adapter.
    func receiveAdapterChange(_ message: Message, _ reader: inout MessageReader) throws(BusError) {
        guard let name = message.path?.lastElement, let properties = try Self.powered(in: &reader) else { return }
        apply(adapter.handle(.powered(String(name), properties)))
    }

    /// Interfaces of an object that is no device.
    func adapterAdded(_ path: ObjectPath, _ interfaces: inout MessageReader) throws(BusError) {
        var powered: Bool?
        var isAdapter = false
        try interfaces.readDictionary { (entry) throws(BusError) in
            guard try entry.readCString().matches("org.bluez.Adapter1") else { return }
            isAdapter = true
            powered = try Self.powered(in: &entry)
        }
        // LEAdvertisingManager1 comes later, in a signal of its own.
        if isAdapter { apply(adapter.handle(.powered(String(path.lastElement), powered ?? false))) }
    }

    func adapterRemoved(_ path: ObjectPath) { apply(adapter.handle(.powered(String(path.lastElement), nil))) }

    private static func powered(in properties: inout MessageReader) throws(BusError) -> Bool? {
        var powered: Bool?
        try properties.readProperties { (key, value) throws(BusError) in
            if key.matches("Powered") { powered = try value.readBool() }
        }
        return powered
    }

    // MARK: What the managers are told

    func announceState(to core: ManagerCore) {
        let state = adapter.state
        guard state != .unknown, state != core.announcedState else { return }
        guard core.preserved == nil else { return survey(core) }
        // Whatever it has found is void: the state is another one.
        if let survey = core.survey { return finish(survey, of: core) }
        core.announcedState = state
        core.adapterName.withLock { $0 = adapter.used }
        let life = state == .poweredOn ? life : nil
        let era = era
        core.post { manager in
            // Not before: until then a command from another thread belongs to the life that the app knows.
            if state == .poweredOn { manager.shared.withLock { $0.era = era } }
            manager.enter(state, life: life)
        }
        if state == .poweredOn, let claims = core.claims {
            core.claims = nil
            after(claims.period) { session in session.endUnclaimed(in: claims.directory) }
        }
    }

    func announceState(to core: PublisherCore) {
        let state = adapter.state
        guard state != .unknown, state != core.announcedState else { return }
        if let snapshot = core.preserved {
            core.preserved = nil
            let live = RestorationPlan.Live(bluetooth: nil, adapter: adapter.used, peripherals: [:])
            core.manager?.restore(RestorationPlan(snapshot, live))
            core.post { manager in manager.tellRestored() }
        }
        core.announcedState = state
        let (life, era) = (servicesLife, era)
        core.post { manager in
            if state == .poweredOn { manager.shared.withLock { ($0.servicesLife, $0.era) = (life, era) } }
            manager.enter(state)
        }
        if state == .poweredOn { updateAgent() }
    }

    /// Names the life of bus, bluetoothd and adapter: a link never outlives it. The kernel gives an adapter that was
    /// replugged a new node in its file system, under the old name.
    var life: String? {
        guard let bus, let owner = bus.owner(of: BlueZ.busName), let adapter = adapter.used else { return nil }
        var status = stat()
        let node = stat("/sys/class/bluetooth/\(adapter)", &status) == 0 ? " \(status.st_ino)" : ""
        return "\(bus.serverGUID ?? "") \(owner) \(adapter)\(node)"
    }

    /// The state has changed. Below power-on every scan and every link has ended, and no callback but this one tells
    /// of it (ST-4, ST-6).
    private func announce(_ state: CBManagerState) {
        if state != .poweredOn {
            dropEverything()
            dropPublications(keepingServices: state == .poweredOff)
            if state != .poweredOff { servicesLife += 1 }
        }
        for core in managers { announceState(to: core) }
        for core in publishers { announceState(to: core) }
        if state == .poweredOn { endOrphans() }
    }

    private func dropEverything() {
        era += 1
        discovery.reset()
        discoveryLife += 1
        setFollowing(false)
        unknownPaths = PathQueue()
        scanWatch.reset()
        stopScanTimer()
        peers = [:]
        for core in managers { core.scan = nil }
        resetTurns()
        for device in linked {
            device.properties.isConnected = false
            // A `Connect` on its way gets there when Bluetooth may be on again: what follows it calls it off.
            if device.link?.failConnect != nil { proxy(device)?.disconnect { _ in } }
            device.link.map { dropLink($0, of: device) }
        }
        discoveryPauses = 0
        subscriptions.removeAll()
        devicesByPath.removeAll()
        devicesByIdentity.removeAll()
        (hiddenPaths, knowsHiddenPaths) = ([:], false)
    }
}
