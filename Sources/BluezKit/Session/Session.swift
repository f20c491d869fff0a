import BluezDBus
import Dispatch
import Foundation

/// What the managers of a process share that use the same BlueZ and adapter: makes the parts, and tells them what the
/// bus and the adapter do. Everything else is theirs.
final class Session: @unchecked Sendable {  // holds: constants; what is below them is confined to `queue`
    /// Which BlueZ and which of its adapters.
    struct Key: Hashable {
        let address: BusAddress
        /// Nil: the first one that is powered.
        let adapter: AdapterChoice?
    }

    let blueZ: BlueZBus
    let adapter: AdapterController
    let pairing: PairingService
    let central: CentralRole
    let peripheral: PeripheralRole
    private let watchdog: DaemonWatchdog

    var queue: DispatchQueue { blueZ.queue }
    var bus: Connection? { blueZ.connection }

    private init(_ key: Key, _ timing: BlueZTiming) {
        blueZ = BlueZBus(address: key.address)
        blueZ.timing = timing
        adapter = AdapterController(blueZ, choice: key.adapter)
        pairing = PairingService(blueZ, adapter)
        let sockets = L2CAPSockets(blueZ, adapter)
        central = CentralRole(blueZ, adapter, pairing, sockets)
        peripheral = PeripheralRole(blueZ, adapter, pairing, sockets)
        watchdog = DaemonWatchdog(blueZ)
        central.discovery.hasOtherLinks = { [weak peripheral] in (peripheral?.remoteCentrals.count ?? 0) > 0 }
        blueZ.observer = self
        adapter.onStateChange = { [weak self] state in self?.announce(state) }
        adapter.onDaemonEnd = { [weak self] in self?.central.daemonEnded() }
    }

    deinit { LocalApps.remove(ObjectIdentifier(self)) }

    // MARK: Sharing

    private struct Reference { weak var session: Session? }
    private static let sessions = Protected<[Key: Reference]>([:])
    private static let timings = Protected<[BusAddress: BlueZTiming]>([:])

    /// How long the sessions wait that come to be on a bus; nil: as long as all others. Tests set shorter times.
    static func setTiming(_ timing: BlueZTiming?, on address: BusAddress) {
        timings.withLock { $0[address] = timing }
    }

    static func timing(on address: BusAddress) -> BlueZTiming {
        timings.withLock { $0[address] } ?? BlueZTiming()
    }

    /// How many there are. Any thread.
    static var count: Int {
        let all = sessions.withLock { $0 }  // none must end under the lock
        return all.values.count { $0.session != nil }
    }

    /// The session for `key`, which all managers share. Any thread.
    static func shared(_ key: Key) -> Session {
        let timing = timing(on: key.address)
        return sessions.withLock { sessions in
            if let session = sessions[key]?.session { return session }
            sessions = sessions.filter { $0.value.session != nil }
            let session = Session(key, timing)
            _ = sendsAtExit
            sessions[key] = Reference(session: session)
            #if DEBUG
            if BorderFormat.isHosted { return session }  // a keeper's, which no app's end ends
            #endif
            LocalApps.add(session, .connection, on: key.address, adapter: key.adapter?.text)
            return session
        }
    }

    // MARK: The end of the process

    private static let process = getpid()
    /// `exit` in the line after a call: what that asks of BlueZ is sent first. (A forked process has no queue that
    /// runs.)
    private static let sendsAtExit = {
        _ = process
        return atexit {
            if getpid() == Session.process { BlueZBus.leaveAll() }
        }
    }()

    /// Does `body` on the bus queue, then hands on the events it led to. Any thread.
    func run(_ body: @escaping @Sendable () -> Void) { blueZ.run(body) }

    // MARK: Managers

    /// - Parameter isHosted: Whether the manager is one of a keeper's, which hosts those of several apps.
    func add(_ core: CentralManagerCore, isHosted: Bool) {
        if isHosted { pairing.relay.decline() }
        central.add(core)
        connectIfFirst()
        central.announceState(to: core)
    }

    func add(_ core: PeripheralManagerCore, isHosted: Bool) {
        if isHosted { pairing.relay.decline() }
        peripheral.add(core)
        connectIfFirst()
        peripheral.announceState(to: core)
    }

    private func connectIfFirst() {
        if bus == nil, central.managers.count + peripheral.managerCount == 1 { blueZ.open() }
    }

    // MARK: The state

    /// Below power-on every scan and every link has ended, and no callback but this one reports it (ST-4, ST-6).
    private func announce(_ state: CBManagerState) {
        if state != .poweredOn {
            central.bluetoothEnded()
            peripheral.dropPublications(keepingServices: state == .poweredOff)
        }
        central.announceState()
        peripheral.announceState()
        if state == .poweredOn { central.endOrphans() }
    }
}

// MARK: - The end of the app, in a simulator

extension Session: LocalAppPart {
    /// The next managers make a session of their own. This one is to others what the end of its process makes of it:
    /// its connections are closed, and its sockets and leases are let go of, without a word to BlueZ. Its own parts
    /// take it for the loss of the bus, with no one left to tell.
    package func die() {
        Self.sessions.withLock { sessions in sessions = sessions.filter { $0.value.session !== self } }
        queue.sync {
            blueZ.killConnections()
            busLost()
            for core in central.managers { central.remove(core) }
            peripheral.forgetManagers()
            blueZ.flush()
        }
    }
}

// MARK: - The connection to the bus

extension Session: BlueZBusObserver {
    var needsBus: Bool { !central.managers.isEmpty || peripheral.managerCount > 0 }

    func busOpened() {
        adapter.busOpened()
        central.connectionEvents.update()
        adapter.ask()
    }

    func busLost() {
        forgetBus()
        adapter.busLost()
    }

    func callIsSlow() {
        guard adapter.state != .resetting else { return }
        watchdog.check { [weak self] in self?.daemonHangs() }
    }

    /// Everything starts over with another connection to the bus: should bluetoothd resume, it finds the old one gone
    /// and forgets what it did for it, except for links. Those are ended first.
    private func daemonHangs() {
        Log.warning("bluetoothd is not responding; waiting for it to resume or restart")
        let links = Set(central.connected.map(\.path))
        central.abandonLeases()
        adapter.daemonHangs(links: links)
        forgetBus()
        blueZ.reopen()
    }

    private func forgetBus() {
        adapter.reset()
        watchdog.reset()
        pairing.busLost()
        central.busLost()
        peripheral.connectionEnded()
    }
}
