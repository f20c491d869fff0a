import DBus
import Dispatch
import Foundation

/// Everything that this process has to do with one BlueZ: the connection, what is known of adapter and devices, and the
/// wishes of all managers, merged. BlueZ counts by connection, so the managers of a process share one (D3).
///
/// Confined to ``queue``, but for ``run(_:)`` and what says otherwise. Decisions are made by the state machines in
/// `Link/`; this class carries them out.
final class Session: @unchecked Sendable {  // holds: all state is confined to `queue`
    /// Which BlueZ and which of its adapters.
    struct Key: Hashable {
        let address: BusAddress
        /// `hci0` or the like; nil: the first one that is powered.
        let adapter: String?
    }

    let blueZ: BlueZBus
    let adapter: AdapterController
    private let watchdog: DaemonWatchdog

    var queue: DispatchQueue { blueZ.queue }
    var bus: Connection? { blueZ.connection }
    var adapterPath: ObjectPath? { adapter.path }

    // Devices: Session+Devices.swift
    var devicesByPath = PathTable<Device>()
    var devicesByIdentity: [DeviceIdentity: Device] = [:]
    /// Those that somebody is connected to or wants to be.
    var linked: [Device] = []
    var uuids = UUIDPool()
    /// Devices that were first seen under a private address, and who they have turned out to be when they bonded.
    var resolved: [DeviceIdentity: DeviceIdentity] = [:]
    /// The reverse: under which address they were seen first, which stays their identifier here.
    var originals: [DeviceIdentity: DeviceIdentity] = [:]
    /// Bonded devices that BlueZ has under the private address they were found with: the path of an object never changes.
    var hiddenPaths: [DeviceIdentity: ObjectPath] = [:]
    /// Whether all of them were asked for, and who waits for that.
    var knowsHiddenPaths = false
    var awaitingHiddenPaths: [() -> Void] = []

    // Connects: Session+Links.swift
    var turns = ConnectScheduler<DeviceIdentity>()
    var turnActions: [ConnectScheduler<DeviceIdentity>.Action] = []
    var turnTimer: (any DispatchSourceTimer)?
    var isLookingForTurns = false

    // Discovery: Session+Discovery.swift
    var discovery = DiscoveryStateMachine()
    /// Counts the resets of ``discovery``: answers to what it asked for before are void.
    var discoveryLife = 0
    var scanEpoch = 0
    var discoveryPauses = 0
    var isFollowingDevices = false
    var scanWatch = ScanWatch()
    var scanTimer: (any DispatchSourceTimer)?
    var unknownPaths = PathQueue()

    // Connection events: Session+ConnectionEvents.swift
    var peers: [ObjectPath: ConnectedPeer] = [:]
    var hasConnectionRule = false

    // GATT: Session+Values.swift
    var subscriptions = PathTable<Subscription>()

    var server: ObjectServer? { blueZ.exportedObjects }

    // The peripheral role: Session+Publishing.swift, +Advertising, +Guests, +Requests, +Updates
    var guests = PathTable<Guest>()
    var requests: [UInt64: PendingRequest] = [:]
    var requestCount: UInt64 = 0
    var awaitingPing: [() -> Void] = []
    var isSendingPing = false
    /// Whether BlueZ sends what it reads from an acquired socket to one central. Nil: not asked yet.
    var givesSockets: Bool?
    var hasNotedBroadcast = false

    // Pairing: Session+Pairing.swift
    /// Who knows our agent, and what for.
    var agent: (owner: String, capability: String)?
    var question: AskedQuestion?
    /// Bonded devices that bluetoothd died of: nobody but a peer without its keys does that to it.
    var lostBonds: Set<DeviceIdentity> = []
    var questionCount = 0

    var managers: [ManagerCore] = []
    var publishers: [PublisherCore] = []
    private init(_ key: Key) {
        blueZ = BlueZBus(address: key.address)
        adapter = AdapterController(blueZ, choice: key.adapter)
        watchdog = DaemonWatchdog(blueZ)
        blueZ.observer = self
        adapter.onStateChange = { [weak self] state in self?.announce(state) }
        adapter.onDaemonEnd = { [weak self] in self?.noteLostBonds() }
    }

    // MARK: Sharing

    private struct Reference { weak var session: Session? }
    private static let sessions = Protected<[Key: Reference]>([:])

    /// The session for `key`, which all managers share. Any thread.
    static func shared(_ key: Key) -> Session {
        sessions.withLock { sessions in
            if let session = sessions[key]?.session { return session }
            sessions = sessions.filter { $0.value.session != nil }
            let session = Session(key)
            sessions[key] = Reference(session: session)
            return session
        }
    }

    /// Does `body` on the bus queue, then hands on the events it led to. Any thread.
    func run(_ body: @escaping @Sendable () -> Void) { blueZ.run(body) }

    func assertOnQueue() { blueZ.assertOnQueue() }

    // MARK: Managers

    func add(_ core: ManagerCore) {
        managers.append(core)
        connectIfFirst()
        announceState(to: core)
    }

    func add(_ core: PublisherCore) {
        publishers.append(core)
        connectIfFirst()
        announceState(to: core)
    }

    private func connectIfFirst() {
        if bus == nil, managers.count + publishers.count == 1 { blueZ.open() }
    }

    /// The app has released the manager: its scan and its connections end, silently (CN-15).
    func remove(_ core: ManagerCore) {
        managers.removeAll { $0 === core }
        core.scan = nil
        updateDiscovery()
        updateConnectionEvents()
        for path in peers.keys { peers[path]?.told.removeAll { $0 === core } }
        for device in linked {
            for client in device.clients where client.manager === core { release(client) }
        }
    }

    /// The app has released the manager: what it has published is withdrawn, silently.
    func remove(_ core: PublisherCore) {
        publishers.removeAll { $0 === core }
        withdrawAll(of: core)
    }

    // MARK: The state

    /// Below power-on every scan and every link has ended, and no callback but this one reports it (ST-4, ST-6).
    private func announce(_ state: CBManagerState) {
        if state != .poweredOn {
            dropEverything()
            dropPublications(keepingServices: state == .poweredOff)
        }
        for core in managers { announceState(to: core) }
        for core in publishers { announceState(to: core) }
        if state == .poweredOn { endOrphans() }
    }
}

// MARK: - The connection to the bus

extension Session: BlueZBusObserver {
    var needsBus: Bool { !managers.isEmpty || !publishers.isEmpty }

    func busOpened() {
        adapter.busOpened()
        updateConnectionEvents()
        adapter.ask()
    }

    func busLost() {
        forgetBus()
        abandonLeases()
        adapter.busLost()
    }

    func callIsSlow() {
        guard adapter.state != .resetting else { return }
        watchdog.check { [weak self] in self?.daemonHangs() }
    }

    /// Everything starts over with another connection to the bus: should bluetoothd resume, it finds the old one gone and
    /// forgets what it did for it, except for links. Those are ended first.
    private func daemonHangs() {
        Log.warning("bluetoothd does not answer: waiting for it to resume, or to be restarted")
        abandonLeases()
        adapter.daemonHangs(links: Set(linked.map(\.path)))
        forgetBus()
        blueZ.reopen()
    }

    private func forgetBus() {
        adapter.reset()
        watchdog.reset()
        (hasConnectionRule, agent, question) = (false, nil, nil)
        (isSendingPing, awaitingPing) = (false, [])
    }

    /// The links stay, as far as is known, and cannot be ended now: their files stay as well, until they can.
    private func abandonLeases() { for device in linked { device.link?.lease = nil } }
}
