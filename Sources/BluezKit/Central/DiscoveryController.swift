import BluezDBus
import Dispatch
import Foundation

/// Scans: one discovery of BlueZ for all managers, filtered again for each. Confined to the bus queue.
final class DiscoveryController: CustomStringConvertible {
    private let bus: BlueZBus
    private let adapter: AdapterController
    private let store: DeviceStore
    /// Whose scans these are.
    weak var central: CentralRole?
    /// Whether another role has links that a power cycle would end.
    var hasOtherLinks: () -> Bool = { false }

    private lazy var machine = DiscoveryStateMachine(timing: bus.timing.scan)
    /// Counts the resets of ``machine``: answers to what it asked for before do not count.
    private var generation = 0
    /// Counts the new scans: what is known of a device from before may have changed.
    private(set) var scanGeneration = 0
    /// Of the start that BlueZ refused last; nil: it has not, or scans since.
    private var refusal: BusError?
    /// Whether BlueZ's signals of all devices are received.
    private(set) var isFollowing = false
    private lazy var watch = ScanWatch(timing: bus.timing.scan)
    private lazy var crashGuard = CrashGuard(timing: bus.timing.daemon)
    private var watchTimers: (silence: QueueTimer?, first: QueueTimer?)
    /// Devices of which only a change is known.
    private var unknownPaths = PathQueue()
    private var listening = Listening()
    private var lostServices = LostServices()

    /// What has to be heard before it can be connected to, and needs every report: devices are not obliged to advertise
    /// a service.
    private struct Listening {
        var forQueue = false
        var devices: Set<DeviceIdentity> = []

        var isWanted: Bool { forQueue || !devices.isEmpty }
    }

    /// Devices whose services bluetoothd had lost since it started.
    private struct LostServices {
        /// Whether no other program scanned when the discovery began.
        var isAlone = false
        private var renewed: Set<DeviceIdentity> = []
        /// How many they may be: more have none to lose, and are heard because another program has begun to scan as
        /// well.
        private static let most = 8

        /// - Returns: Whether the device is to be made known again; once for each.
        mutating func renew(_ device: DeviceIdentity) -> Bool {
            isAlone && renewed.count < Self.most && renewed.insert(device).inserted
        }
    }

    init(_ bus: BlueZBus, _ adapter: AdapterController, _ store: DeviceStore) {
        (self.bus, self.adapter, self.store) = (bus, adapter, store)
    }

    var description: String { "\(machine)" }

    private var managers: [CentralManagerCore] { central?.managers ?? [] }

    // MARK: What is wanted

    /// A manager's scan has begun, changed or ended. A new one wants to hear again of what was reported already.
    func update(afresh: Bool = false) {
        bus.assertOnQueue()
        guard adapter.state == .poweredOn else { return }
        var filters = managers.compactMap { $0.scan?.filter }
        central?.connects.scans(!filters.isEmpty)
        if listening.isWanted || !filters.isEmpty && watch.isUnfiltered {
            filters.append(DiscoveryStateMachine.Filter(services: nil, wantsDuplicates: false))
        }
        var wanted = filters.dropFirst().reduce(filters.first) { $0?.merged(with: $1) }
        if mustNotFilter { wanted?.services = nil }
        if afresh { scanGeneration += 1 }
        follow(wanted != nil)
        perform(machine.request(wanted, afresh: afresh))
        perform(watch.scan(wanted != nil))
    }

    /// Whether to listen for the devices that are queued for a connection.
    func listenForQueue(_ listens: Bool) {
        listening.forQueue = listens
        update()
    }

    /// Whether to listen for this device, which BlueZ does not know.
    func listen(_ listens: Bool, for device: Device) {
        if listens {
            listening.devices.insert(device.identity)
        } else {
            listening.devices.remove(device.identity)
        }
        update()
    }

    /// The device is not used any longer.
    func forget(_ device: Device) {
        if listening.devices.remove(device.identity) != nil { update() }
    }

    /// Connecting takes seconds while a scan runs, and a fraction of one when none does.
    func pause(_ pauses: Bool) { perform(machine.pause(pauses)) }

    /// Bluetooth is off, or was reset.
    func reset() {
        machine.reset()
        generation += 1
        refusal = nil
        follow(false)
        unknownPaths = PathQueue()
        watch.reset()
        stopWatchTimer()
        (listening, lostServices) = (Listening(), LostServices())
    }

    /// The rule for device signals exists only while an app scans: other programs' scans are broadcast too.
    private func follow(_ follows: Bool) {
        guard follows != isFollowing else { return }
        isFollowing = follows
        let rule = MatchRule(
            sender: BlueZ.busName, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged",
            argument0: BlueZ.device)
        if follows { bus.connection?.addMatch(rule) } else { bus.connection?.removeMatch(rule) }
    }

    // MARK: A scan that is silent

    private func perform(_ actions: [ScanWatch.Action]) {
        for action in actions {
            switch action {
            case .startTimer(let delay):
                watchTimers.silence = bus.timer(delay) { [weak self] in self?.watchTimerFired() }
            case .stopTimer: stopWatchTimer()
            case .startFirstTimer(let delay):
                watchTimers.first = bus.timer(delay) { [weak self] in self?.firstTimerFired() }
            case .startAgain:
                Log.debug("the scan has heard nothing since it began: starting it again")
                update(afresh: true)
            case .restart:
                let text = "the scan has heard nothing for a minute: restarting discovery"
                machine.isFiltered || refusal != nil ? Log.debug(text) : Log.warning(text)
                watch.windowsBeforeUnfiltered = machine.isFiltered ? 10 : 1
                update(afresh: true)
            case .restoreFilter: update()
            case .powerCycle: powerCycle()
            }
        }
    }

    func watchTimerFired() { perform(watch.timerFired()) }

    /// While discovery is paused there is nothing to hear; its next start is watched again.
    func firstTimerFired() {
        watchTimers.first = nil
        if machine.isRunning, !machine.isPaused { perform(watch.firstTimerFired()) }
    }

    /// For tests: how long a scan may hear nothing, and one that has just begun.
    func setWatchWindow(_ window: Duration, first: Duration) { (watch.window, watch.firstWindow) = (window, first) }

    private func stopWatchTimer() {
        watchTimers.silence?.cancel()
        watchTimers.first?.cancel()
        watchTimers = (nil, nil)
    }

    /// The last resort, which ends the links of every program.
    private func powerCycle() {
        let cause =
            refusal.map { "BlueZ has refused to scan for two minutes (\($0.name))" }
            ?? "the scan has heard nothing for two minutes"
        guard managers.contains(where: \.configuration.mayPowerCycle), let path = adapter.path,
            central?.connected.isEmpty == true, !hasOtherLinks()
        else {
            return Log.warning(
                "\(cause). If there are devices near, switching Bluetooth off and on helps; "
                    + "with BluezManagerOptionMayPowerCycleKey this program does so where it has no connections")
        }
        Log.warning("\(cause): switching \(path.lastElement) off and on")
        watch.hasPowerCycled = true
        adapter.powerCycle()
    }

    // MARK: BlueZ

    private func perform(_ actions: [DiscoveryStateMachine.Action]) {
        guard let path = adapter.path, let proxy = bus.proxy(path, BlueZ.adapter) else { return }
        let generation = generation
        let replied: BlueZProxy.Completion = { [weak self] result in
            if let self, self.generation == generation { self.replied(result) }
        }
        for action in actions {
            switch action {
            case .setFilter(let filter):
                if filter.services != nil { crashGuard.askedForFilter(at: DispatchQueue.now) }
                proxy.setDiscoveryFilter(filter, completion: replied)
            case .start: start(proxy)
            case .stop: proxy.stopDiscovery(completion: replied)
            case .reportRefusal:
                guard let refusal else { continue }
                Log.warning(
                    "BlueZ refuses to scan, or to end a scan, and is asked again until it does: \(refusal.message) "
                        + "(\(refusal.name))")
            case .startTimer(let delay):
                bus.after(delay) { [weak self] in
                    if let self, self.generation == generation { perform(machine.timerFired()) }
                }
            }
        }
    }

    /// bluetoothd would crash, for all programs. Each scan filters on its own anyway.
    private var mustNotFilter: Bool { adapter.daemon.crashesOnFilters || crashGuard.avoidsFilters }

    func busLost() { crashGuard.forget() }

    func daemonEnded() {
        guard crashGuard.daemonEnded(at: DispatchQueue.now) else { return }
        Log.warning(
            "bluetoothd has ended twice in a row within seconds of a scan with services: "
                + "from now on it is asked for all devices, and this program filters them")
    }

    /// While another program scans, BlueZ's discovery does not begin with ours, and devices of which nothing changes
    /// are not signalled: what it has heard is read.
    private func start(_ proxy: BlueZProxy) {
        let generation = generation
        lostServices.isAlone = false
        var wasRunning = false
        proxy.get("Discovering") { wasRunning = (try? $0.get().values().first)?.boolValue == true }
        proxy.startDiscovery { [weak self] result in
            guard let self else { return }
            if self.generation == generation {
                replied(result)
                guard result.failure == nil else { return }
                (refusal, lostServices.isAlone) = (nil, !wasRunning)
                // What runs for another program as well is not started again by us.
                if wasRunning { readHeardDevices() } else { perform(watch.began()) }
            } else if result.failure == nil {
                // It got there when Bluetooth was on again, and runs without being wanted.
                perform(machine.startedLate())
            }
        }
    }

    private func replied(_ result: Result<Message, BusError>) {
        switch result {
        case .success: perform(machine.replied(.done))
        case .failure(let error):
            Log.debug("discovery: \(error.name) \(error.message)")
            refusal = error
            // Without an answer nothing is known either, above all not that there is nothing to end.
            let isUndecided = ["org.bluez.Error.InProgress", BusError.timedOut.name].contains(error.name)
            perform(machine.replied(isUndecided ? .busy : .refused))
        }
    }

    // MARK: Reports

    /// Whether a change of a device brings nothing that a scan wants. Reads the keys and no value.
    func isOldNews(_ device: Device, _ reader: MessageReader) throws(BusError) -> Bool {
        guard device.scanGeneration == scanGeneration else { return false }
        var reportedToAll: DeviceProperties.Kinds?
        for core in managers {
            guard let scan = core.scan else { continue }
            guard !scan.wantsDuplicates, let kinds = core.reportedKinds(of: device.identity) else { return false }
            reportedToAll = reportedToAll.map { $0.intersection(kinds) } ?? kinds
        }
        guard let reportedToAll else { return false }
        var keys: DeviceProperties.Kinds = []
        var (isHeard, isOfLink, isFirst) = (false, false, false)
        var reader = reader
        try reader.readDictionary { (entry) throws(BusError) in
            let key = try entry.readCString()
            if key.matches("RSSI") { isHeard = true }
            if key.matches("Connected") { isOfLink = true }
            if key.matches("AdvertisingFlags") { isFirst = !device.properties.hasAdvertisingFlags }
            if key.matches("Name") { keys.insert(.name) }
            if key.matches("UUIDs") { keys.insert(.services) }
            if key.matches("ManufacturerData") { keys.insert(.manufacturerData) }
            if key.matches("ServiceData") { keys.insert(.serviceData) }
            if key.matches("TxPower") { keys.insert(.txPower) }
            if key.matches("AdvertisingData") { keys.insert(.solicited) }
        }
        if isHeard { watch.hear() }
        // The end of another program's link matters to who connects next, and that BlueZ has heard the device over LE
        // to whether it is reported.
        return !isOfLink && !isFirst && keys.isSubset(of: reportedToAll)
    }

    /// An advertisement of `device` was received: every scan that wants it hears of it.
    func report(_ device: Device) {
        watch.hear()
        tellScans(of: device)
        renewLostServices(of: device)
    }

    /// If a link has ended before its services were known, BlueZ does not tell any longer which ones the device
    /// advertises (``BlueZDaemon/losesServices``). One that has passed BlueZ's filter does advertise one: BlueZ is
    /// made to forget the device, and finds it again with the next advertisement. Not if that would cost a bond, a
    /// link, or what the user has set.
    private func renewLostServices(of device: Device) {
        let properties = device.properties
        guard adapter.daemon.losesServices, machine.filterIsInForce, properties.services.isEmpty,
            !properties.isBonded, !properties.isConnected, !properties.hasOnlyClassicLink, !properties.settings.exist,
            device.connection == nil, lostServices.renew(device.identity), central?.isLeased(device) == false
        else { return }
        Log.debug("\(device.path): forgotten, as BlueZ has lost the services that it advertises")
        bus.adapterProxy(of: device.path)?.removeDevice(device.path) { _ in }
    }

    private func tellScans(of device: Device) {
        for core in managers {
            guard core.admits(device), let token = core.scan?.token else { continue }
            core.post(.discovered(device.identity, device.properties, scan: token))
        }
    }

    // MARK: Devices that BlueZ knew before we looked

    /// Reads a device of which only a change is known.
    func readUnknown(_ path: String) {
        unknownPaths.add(path)
        readUnknownDevices()
    }

    /// BlueZ has removed it.
    func removeUnknown(_ path: UnsafePointer<CChar>) { unknownPaths.remove(path) }

    /// A few at a time.
    private func readUnknownDevices() {
        guard bus.connection != nil else { return }
        while let path = unknownPaths.next() {
            guard let objectPath = ObjectPath(path) else { continue }
            let generation = scanGeneration
            bus.ask(objectPath, BlueZ.device, { $0.getAll(completion: $1) }) { [weak self] result in
                guard let self else { return }
                // Asking took no longer than the answer is fresh: the change that made us ask is in it.
                if unknownPaths.finish(path), case .success(let reply) = result, generation == scanGeneration {
                    var reader = reply.reader
                    do throws(BusError) { try central?.deviceAdded(objectPath, &reader) } catch {
                        Log.warning("ignored \(path): \(error.message)")
                    }
                }
                readUnknownDevices()
            }
        }
    }

    /// Reports what a discovery that ran before our scan began has heard. BlueZ keeps the strength of a device only
    /// while one runs.
    private func readHeardDevices() {
        guard managers.contains(where: { $0.scan != nil }) else { return }
        let generation = scanGeneration
        store.readAll { [weak self] identity, path, fields in
            // Of a connected one the strength may be from before the link (SC-12).
            guard let self, fields.rssiDBm != nil, !fields.isConnected, !fields.isOnlyClassic(for: adapter.daemon)
            else { return }
            let device = store.device(identity, at: path)
            guard device.scanGeneration != generation else { return }
            device.heardEarlier(fields, scan: generation)  // a connect does not wait for the next advertisement
            tellScans(of: device)
        } isWanted: { [weak self] in
            guard let self else { return false }
            return generation == scanGeneration && isFollowing
        }
    }
}
