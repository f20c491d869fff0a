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

    /// How long to wait for what BlueZ does in its own time. Tests wait less.
    struct Delays {
        /// From the end of a link until it is told: the news that Bluetooth was switched off comes some 50 ms later.
        var heldLoss = Duration.milliseconds(200)
        /// BlueZ announces a change of a table object by object, within some milliseconds.
        var tableChange = Duration.milliseconds(100)
        /// The kernel keeps links that a daemon leaves behind for 2 s.
        var leftovers = Duration.milliseconds(2500)
        /// For an adapter, or a daemon, to come back before another adapter will do. Controllers are reset in a moment.
        var grace = Duration.seconds(3)
        /// After that, for what was lost, before there is none: a slow machine takes some 10 s to start bluetoothd, and
        /// apps that are told `.unsupported` may give up for good.
        var longGrace = Duration.seconds(17)
    }

    let key: Key
    let queue = DispatchQueue(label: "bluezkit.bus")
    var delays = Delays()

    var bus: Connection?
    var reconnectDelay = Duration.milliseconds(250)
    /// How long BlueZ may be silent about a call, and then about the question whether it is still there.
    var patience = Duration.seconds(10)
    var isPinging = false
    /// Links from before BlueZ hung.
    var staleLinks: Set<ObjectPath> = []

    // Adapter: Session+Adapter.swift
    var adapter = AdapterStateMachine()
    var adapterPath: ObjectPath?
    /// Counts the lives of Bluetooth, of which none has a scan, a link or a wish of another. A command of the app belongs to
    /// the one that the app has seen.
    var era: UInt64 = 0
    /// The same of published services, which outlive Bluetooth being off.
    var servicesLife: UInt64 = 0
    /// When BlueZ came back, if it has gone during our life.
    var restarted: ContinuousClock.Instant?
    var graceTimer: (any DispatchSourceTimer)?
    var poweredQuestions: Set<String> = []

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

    /// What this process has on the bus, for BlueZ.
    var server: ObjectServer?

    // The peripheral role: Session+Publishing.swift, +Advertising, +Guests, +Requests, +Updates
    var publishedCount = 0
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
    private var outgoing: [any Recipient] = []

    private init(_ key: Key) { self.key = key }

    deinit {
        if let bus { bus.queue.async { bus.close() } }
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
    func run(_ body: @escaping @Sendable () -> Void) {
        queue.async {
            body()
            self.flush()
        }
    }

    /// The same after a delay, and only if the session is still there.
    func after(_ delay: Duration, _ body: @escaping (Session) -> Void) {
        queue.later(delay) { [weak self] in
            guard let self else { return }
            body(self)
            flush()
        }
    }

    /// Asks BlueZ again, after pauses of 50 ms to 3.2 s, if it gives no answer: a bus or a daemon that is too busy has not
    /// said no. After seven times that is the answer.
    func insist<Answer>(
        _ question: @escaping (@escaping (Result<Answer, BusError>) -> Void) -> Void, timesLeft: Int = 7,
        answered: @escaping (Result<Answer, BusError>) -> Void
    ) {
        question { [weak self] result in
            guard let self, timesLeft > 0, let error = result.failure, BlueZErrorName.meansNoAnswer(error) else {
                return answered(result)
            }
            after(.milliseconds(50 << (7 - timesLeft))) { session in
                session.insist(question, timesLeft: timesLeft - 1, answered: answered)
            }
        }
    }

    func assertOnQueue() {
        #if DEBUG
        dispatchPrecondition(condition: .onQueue(queue))
        #endif
    }

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
        if bus == nil, managers.count + publishers.count == 1 { connect() }
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

    func hasOutgoing(_ core: any Recipient) { outgoing.append(core) }

    func flush() {
        guard !outgoing.isEmpty else { return }
        let cores = outgoing
        outgoing = []
        for core in cores { core.flush() }
    }

    // MARK: The bus

    /// Connects to the bus, and tries again for as long as there is a manager.
    func connect() {
        assertOnQueue()
        do {
            let bus = try Connection(address: key.address, queue: queue)
            self.bus = bus
            bus.onSignal = { [weak self] in self?.receive($0) }
            bus.onTurnEnd = { [weak self] in self?.flush() }
            bus.onDisconnected = { [weak self] in self?.lostBus($0) }
            bus.patience = patience
            bus.onSlowCall = { [weak self] in self?.checkThatBlueZAnswers() }
            bus.onRuleRefused = { rule, error in
                Log.warning("the bus refused a match rule; events will be missing: \(error.message) (\(rule))")
            }
            start(on: bus)
        } catch {
            lostBus(error)
        }
    }

    /// bluetoothd may hang, stopped or in an endless loop; the bus does not tell. It answers this one at once if it is
    /// well.
    private func checkThatBlueZAnswers() {
        guard let bus, !isPinging, bus.owner(of: BlueZ.busName) != nil, adapter.state != .resetting else { return }
        isPinging = true
        let ping = MethodCall(
            destination: BlueZ.busName, path: "/", interface: "org.freedesktop.DBus.Peer", member: "Ping",
            isUrgent: true)
        bus.call(ping, deadline: patience) { [weak self, weak bus] result in
            guard let self, self.bus === bus else { return }
            isPinging = false
            if result.failure == .timedOut { bluezHangs() }
        }
    }

    /// Everything is begun anew, with another connection to the bus: should BlueZ go on it finds the old one gone, and
    /// forgets what it did for it, but for links. Those it is told to end first.
    private func bluezHangs() {
        Log.warning("bluetoothd does not answer: waiting for it to go on, or to be restarted")
        staleLinks = Set(linked.map(\.path))
        abandonLeases()
        apply(adapter.handle(.hung))
        bus?.close()
        forgetBus()
        connect()
    }

    private func forgetBus() {
        (bus, server, hasConnectionRule, isPinging) = (nil, nil, false, false)
        (poweredQuestions, agent, question) = ([], nil, nil)
        (isSendingPing, awaitingPing) = (false, [])
    }

    /// The links stay, for all we know, and cannot be ended now: so do their files, for when they can.
    private func abandonLeases() { for device in linked { device.link?.lease = nil } }

    private func lostBus(_ error: BusError) {
        forgetBus()
        abandonLeases()
        Log.warning("no connection to the bus at \(key.address): \(error.message) (\(error.name))")
        apply(adapter.handle(.busLost))
        let delay = reconnectDelay
        reconnectDelay = min(delay * 2, .seconds(8))
        after(delay) { session in
            if session.bus == nil, !session.managers.isEmpty || !session.publishers.isEmpty { session.connect() }
        }
    }
}
