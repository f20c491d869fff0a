import BluezDBus
import Dispatch
import Foundation
import Synchronization

/// What hears of the connection. All of it on the bus queue.
protocol BlueZBusObserver: AnyObject {
    /// Whether any manager still needs a connection.
    var needsBus: Bool { get }
    func busOpened()
    func busLost()
    func receive(_ message: Message)
    /// A call has taken longer than ``BlueZTiming/Daemon/slowCall``.
    func callIsSlow()
}

/// This process's connection to one BlueZ, and the queue on which everything about it happens. It is made again after
/// it is lost. BlueZ counts by connection, so the managers of a process share one (D3).
final class BlueZBus: @unchecked Sendable {  // holds: all state is confined to `queue`
    let address: BusAddress
    let queue = DispatchQueue(label: "bluezkit.bus")
    var timing = BlueZTiming()
    /// Set before ``open()``.
    weak var observer: (any BlueZBusObserver)?

    private(set) var connection: Connection?
    /// The objects of this process on ``connection``.
    private(set) var exportedObjects: ObjectServer?
    /// That of ``connection``.
    private(set) var firstLane: CallLane?
    /// The lane of new links, and the one that is being opened to take its place.
    private var lane, nextLane: CallLane?
    /// How often the connection was lost, or could not be made, since bluetoothd was there.
    private var losses = 0
    /// What the log says of the present loss.
    private var reported: String?
    private var objectCount = 0
    private var outgoing: [any EventSource] = []
    /// How many blocks of ``run(_:)`` have not run.
    private let waiting = Atomic(0)
    private let isOnQueue = DispatchSpecificKey<Bool>()

    init(address: BusAddress) {
        self.address = address
        queue.setSpecific(key: isOnQueue, value: true)
        queue.virtualTime = .on(address)
    }

    deinit {
        if let connection { connection.queue.async { connection.close() } }
    }

    private struct OpenedConnection { weak var connection: Connection? }
    /// All of this, lanes as well.
    private var made: [OpenedConnection] = []
    /// A connection exists as long as it is on the bus.
    private static let opened = Protected<[OpenedConnection]>([])

    /// The process ends: what was asked for is sent, and handled as far as that matters (``Connection/leave(_:)``).
    /// Takes a second at most, if BlueZ hangs.
    static func leaveAll() {
        let leaving = DispatchGroup()
        for connection in opened.withLock({ $0.compactMap(\.connection) }) {
            leaving.enter()
            connection.queue.async { connection.leave { leaving.leave() } }
        }
        _ = leaving.wait(timeout: .now() + .seconds(1))
    }

    // MARK: The queue

    /// Does `body` on the bus queue, then hands on the events it led to. Any thread.
    func run(_ body: @escaping @Sendable () -> Void) {
        waiting.add(1, ordering: .relaxed)
        queue.async { [self] in
            waiting.subtract(1, ordering: .relaxed)
            body()
            flush()
        }
    }

    /// The same, but in the calling thread, unless something waits before it: a worker's wake-up costs more than most
    /// of what apps ask for. It waits for what is handled at the moment, and for timers that are due. Not under a lock.
    func runHere(_ body: @escaping @Sendable () -> Void) {
        if runIfIdle(body) == nil { run(body) }
    }

    /// - Returns: What `body` has; nil: something waits before it, and it was not done.
    func runIfIdle<Value>(_ body: () -> Value) -> Value? {
        #if DEBUG
        precondition(LockOrder.held == .none, "the bus queue may wait for this lock")
        #endif
        guard waiting.load(ordering: .relaxed) == 0, DispatchQueue.getSpecific(key: isOnQueue) == nil else {
            return nil
        }
        return queue.sync {
            defer { flush() }
            return body()
        }
    }

    /// The same after a delay, and only if this is still there. `body` should hold its owner weakly.
    func after(_ delay: Duration, _ body: @escaping () -> Void) {
        later(delay, LateTimer(due: DispatchQueue.now.later(by: delay)), body)
    }

    private func later(_ delay: Duration, _ timer: LateTimer, _ body: @escaping () -> Void) {
        queue.later(delay) { [weak self] in
            guard let self else { return }
            var timer = timer
            if timer.mustWait(for: connection) { return later(LateTimer.pause, timer, body) }
            body()
            flush()
        }
    }

    /// The same, until it is cancelled.
    func timer(_ delay: Duration, _ body: @escaping () -> Void) -> QueueTimer {
        let timer = QueueTimer(queue: queue)
        var late = LateTimer(due: DispatchQueue.now.later(by: delay))
        timer.setHandler { [weak self, weak timer] in
            guard let self else { return }
            if late.mustWait(for: connection) {
                timer?.set(DispatchQueue.now.later(by: LateTimer.pause))
                return
            }
            body()
            flush()
        }
        timer.set(late.due)
        return timer
    }

    /// This process may have been stopped while a timer ran, or its queue held up: then what has arrived comes first,
    /// as it may change what is to be done. A second at most.
    private struct LateTimer {
        static let pause = Duration.milliseconds(10)
        let due: DispatchTime
        private var tries = 0

        init(due: DispatchTime) { self.due = due }

        mutating func mustWait(for connection: Connection?) -> Bool {
            guard tries < 100, due.later(by: .milliseconds(20)) <= DispatchQueue.now, connection?.hasInput == true
            else {
                return false
            }
            tries += 1
            return true
        }
    }

    /// Nil: real time.
    var time: VirtualTime? { queue.virtualTime }

    /// A factor for pauses, from 0.75 to 1.25, so that many programs do not do the same at the same time.
    var jitter: Double { 0.75 + 0.5 * (time?.fraction() ?? .random(in: 0..<1)) }

    func assertOnQueue() {
        #if DEBUG
        dispatchPrecondition(condition: .onQueue(queue))
        #endif
    }

    /// A manager has events for its app: they are handed on at the end of this turn of the queue.
    func hasOutgoing(_ source: any EventSource) { outgoing.append(source) }

    func flush() { _ = flush { false } }

    /// - Parameter mayDeliver: Whether the caller can make one delivery itself.
    /// - Returns: The delivery to make; nil: all are made by others.
    private func flush(mayDeliver: () -> Bool) -> (() -> Void)? {
        guard !outgoing.isEmpty else { return nil }
        let sources = outgoing
        outgoing = []
        return sources.flush(mayDeliver: mayDeliver)
    }

    // MARK: The connection

    /// Connects to the bus, and tries again for as long as the observer needs it.
    func open() {
        assertOnQueue()
        do {
            let connection = try Connection(address: address, queue: queue)
            self.connection = connection
            Self.opened.withLock { opened in
                opened.removeAll { $0.connection == nil }
                opened.append(OpenedConnection(connection: connection))
            }
            firstLane = CallLane(connection)
            lane = firstLane
            connection.onSignal = { [weak self] in self?.observer?.receive($0) }
            connection.onDisconnected = { [weak self] in self?.lost($0) }
            setUp(connection)
            connection.onRuleRefused = { rule, error in
                if case .disconnected = error { return }  // nothing is awaited from it any more
                Log.warning("the bus refused a match rule; events will be missing: \(error.message) (\(rule))")
            }
            observer?.busOpened()
        } catch {
            lost(error)
        }
    }

    private func setUp(_ connection: Connection) {
        made.removeAll { $0.connection == nil }
        made.append(OpenedConnection(connection: connection))
        connection.onTurnEnd = { [weak self] in self?.flush(mayDeliver: $0) }
        connection.slowCall = timing.daemon.slowCall
        connection.onSlowCall = { [weak self] in self?.observer?.callIsSlow() }
    }

    /// Starts over with another connection. BlueZ forgets what it did for the old one, but not the links.
    func reopen() {
        connection?.close()
        forgetConnections()
        open()
    }

    /// As the end of the process closes them.
    func killConnections() {
        for connection in made.compactMap(\.connection) { connection.kill() }
        forgetConnections()
    }

    private func forgetConnections() {
        (connection, exportedObjects, firstLane, lane, nextLane) = (nil, nil, nil, nil, nil)
    }

    /// For the calls of a link that begins, and for a question about a device. Nil: none can take more of them yet.
    func callLane() -> CallLane? {
        guard let firstLane, let current = lane else { return nil }
        // What was not answered may be answered after all.
        for free in [firstLane, current] where !free.isCrowded(timing.unanswered) {
            lane = free
            return free
        }
        // Not before the bus has taken it: it may have as many connections of this user as it allows.
        guard let next = nextLane, next.connection.uniqueName != nil else {
            if nextLane == nil { openLane() }
            return nil
        }
        Log.debug("BlueZ has left \(current.lost) calls unanswered: other links make theirs on another connection")
        (lane, nextLane) = (next, nil)
        return next
    }

    private func openLane() {
        guard let connection else { return }
        do throws(BusError) {
            let new = try Connection(address: address, queue: queue)
            nextLane = CallLane(new, signals: connection)
            new.onDisconnected = { [weak self, weak new, weak connection] in
                // It may have lasted longer than the one that it belongs to.
                if let self, let connection, self.connection === connection { laneLost(new, $0) }
            }
            setUp(new)
        } catch { reportNoLane(error) }
    }

    private func reportNoLane(_ error: BusError) {
        Log.warning(
            from: "lane \(address)",
            "BlueZ leaves many calls unanswered, and there is no other connection to the bus at \(address): new links wait "
                + "for one: \(error.message) (\(error.name))")
    }

    private func laneLost(_ connection: Connection?, _ error: BusError) {
        if nextLane?.connection === connection {
            nextLane = nil
            return reportNoLane(error)
        }
        // The links that used it are not usable any more.
        guard let main = self.connection else { return }
        lost(error)  // first: what was asked for ends with the bus, and does not fail on its own
        main.close()
    }

    /// BlueZ is there: the next loss is a new one.
    func resetLosses() { (losses, reported) = (0, nil) }

    private func lost(_ error: BusError) {
        forgetConnections()
        observer?.busLost()
        let delay = timing.daemon.reconnect.doubled(losses, upTo: timing.daemon.longestReconnect)
        losses += 1
        after(delay) { [weak self] in
            guard let self, connection == nil, observer?.needsBus == true else { return }
            report(error)
            open()
        }
    }

    /// Once, and again when the cause has changed. Not before it is clear that someone misses the bus: a private one
    /// may end just before the program that used it.
    private func report(_ error: BusError) {
        let text = "no connection to the bus at \(address): \(error.message) (\(error.name))"
        guard text != reported else { return }
        reported = text
        Log.warning(text)
    }

    /// The unique name of bluetoothd; nil: it is not there.
    var owner: String? { connection?.owner(of: BlueZ.busName) }

    func proxy(_ path: ObjectPath, _ interface: String) -> BlueZProxy? {
        connection.map { BlueZProxy(bus: $0, path: path, interface: interface) }
    }

    /// The adapter that has the device at `path`.
    func adapterProxy(of path: ObjectPath) -> BlueZProxy? { path.parent.flatMap { proxy($0, BlueZ.adapter) } }

    /// Asks BlueZ again, after pauses, if it gives no answer: a bus or a daemon that is too busy has not said no. After
    /// the last time that is the answer.
    func insist<Answer>(
        _ question: @escaping (@escaping (Result<Answer, BusError>) -> Void) -> Void, tries: Int = 0,
        answered: @escaping (Result<Answer, BusError>) -> Void
    ) {
        question { [weak self] result in
            guard let self, tries < timing.daemon.busyRetries, let error = result.failure,
                BlueZErrorName.meansNoAnswer(error)
            else { return answered(result) }
            after(timing.daemon.busyRetry * (1 << tries)) { [weak self] in
                self?.insist(question, tries: tries + 1, answered: answered)
            }
        }
    }

    /// Asks BlueZ about a device, or something below it, as ``insist(_:tries:answered:)`` does, on the lane that is
    /// current. What is not answered in time is not asked again.
    func ask<Answer>(
        _ path: ObjectPath, _ interface: String, counting: ((CallLane) -> BlueZProxy.Counting?)? = nil,
        _ question: @escaping (BlueZProxy, @escaping (Result<Answer, BusError>) -> Void) -> Void,
        answered: @escaping (Result<Answer, BusError>) -> Void
    ) {
        insist(
            { [weak self] completion in
                guard let self, connection != nil else { return }
                guard let lane = callLane() else { return completion(.failure(Self.noLane)) }
                var proxy = BlueZProxy(bus: lane.connection, path: path, interface: interface)
                let count = counting?(lane)
                proxy.counting = { completion in
                    let ordered = lane.inOrder(completion)
                    let counted = count?(ordered) ?? ordered
                    // The lane lasts as long as the question.
                    return { result in withExtendedLifetime(lane) { counted(result) } }
                }
                question(proxy) { $0.failure == .timedOut ? answered($0) : completion($0) }
            }, answered: answered)
    }

    private static let noLane = BusError.remote(
        name: "org.freedesktop.DBus.Error.LimitsExceeded", message: "too many calls are unanswered")

    /// Ends the link of a device, or the attempt to make it; where the bus refuses the call, it is repeated.
    /// - Parameter mayCall: Asked before each call; false ends the matter without an answer.
    func disconnect(
        _ device: BlueZProxy, mayCall: @escaping () -> Bool,
        answered: @escaping (Result<Message, BusError>) -> Void = { _ in }
    ) {
        insist(
            { completion in
                guard mayCall() else { return }
                // BlueZ has a call that it has not answered.
                device.disconnect { $0.failure == .timedOut ? answered($0) : completion($0) }
            }, answered: answered)
    }

    // MARK: Objects of this process

    /// Where this process has its objects, which BlueZ alone may call. Nil: there is no connection.
    func exportObjects() -> ObjectServer? {
        if exportedObjects == nil, let connection {
            let new = ObjectServer(connection: connection)
            new.intercept = { [weak connection, weak new] call in
                guard let connection, !connection.isFromOwner(call, of: BlueZ.busName) else { return false }
                new?.refuse(
                    call, name: "org.freedesktop.DBus.Error.AccessDenied", message: "these objects are for BlueZ alone")
                return true
            }
            exportedObjects = new
        }
        return exportedObjects
    }

    /// A path that no other object of this process has had.
    func newPath(_ kind: String) -> ObjectPath {
        objectCount += 1
        return ObjectPath("/org/bluezkit/\(kind)\(objectCount)") ?? "/"
    }
}
