import CBluezDBus
public import Dispatch
import Foundation

/// One connection to a bus, driven by one serial queue.
///
/// Threads of its own wait for the socket: one handles what arrives *on the queue* with a `sync` that runs directly
/// when the queue is idle. So a message costs one wake-up, as in a C program that polls, and everything still happens
/// on the queue. (A dispatch source costs two: its manager thread, then a worker.)
///
/// Confined to `queue`, except where stated. Ends with ``close()``. A connection that the bus has closed cannot be
/// reopened: make a new one.
public final class Connection: @unchecked Sendable {  // holds: all state is confined to `queue`
    /// The address of the bus.
    public let address: BusAddress
    /// The serial queue on which everything happens.
    public let queue: DispatchQueue

    /// Called with each signal that the bus delivers, from any sender: see ``isFromOwner(_:of:)``.
    public var onSignal: ((Message) -> Void)?
    /// Called with each method call to this process.
    public var onCall: ((IncomingCall) -> Void)?
    /// Whether a `Ping` is answered as soon as it comes. Otherwise it is a call like any other, for ``onCall``.
    public var answersPings: Bool {
        get { presence.answersPings }
        set { presence.answersPings = newValue }
    }
    /// Called once when the bus is lost, before the unanswered calls fail: what was asked for ends with the bus. Not
    /// after ``close()``.
    public var onDisconnected: ((BusError) -> Void)?
    /// Called when everything that had arrived is handled, so that the results can be delivered together.
    ///
    /// If its parameter returns true it may return a delivery, which is made outside the queue by the thread that has
    /// waited, and may take as long as it likes.
    public var onTurnEnd: ((_ mayDeliver: () -> Bool) -> (() -> Void)?)?

    /// The bus' own identifier, which is new after each start. Nil while the connection is being made.
    public var serverGUID: String? {
        assertOnQueue()
        guard presence.isOpen, let text = dbus_connection_get_server_id(raw) else { return nil }
        defer { dbus_free(text) }
        return String(cString: text)
    }

    /// Called once for each call that has waited longer than ``slowCall``: either the call takes long, or the other
    /// side hangs.
    public var onSlowCall: (() -> Void)? {
        get { open.onSlow }
        set { open.onSlow = newValue }
    }
    /// How long a call may take before it counts as slow.
    public var slowCall: Duration {
        get { open.slow }
        set { open.slow = newValue }
    }

    /// The bus refused a rule: signals will be missing.
    public var onRuleRefused: ((MatchRule, BusError) -> Void)?

    /// This connection's name on the bus, `:1.42`. Nil until the bus has answered `Hello`.
    public var uniqueName: String? { presence.uniqueName }

    let raw: OpaquePointer
    let loop: EventLoop
    private let threads: WaitingThreads
    private let stream = MessageStream()
    var presence = BusPresence()
    var open: OpenCalls
    private var waiting = CallQueue<WaitingCall>()
    var matches: [MatchRule: Int] = [:]
    var watchedNames: [String: WatchedName] = [:]

    /// Gets the answer to a call, or the error.
    public typealias Completion = (Result<Message, BusError>) -> Void

    private struct WaitingCall {
        let message: OpaquePointer
        let deadline: Duration
        /// The receiver, if the call binds this connection.
        let bindingReceiver: String?
        let completion: Completion
    }

    /// Connects. The socket is opened before this returns, but the answer of the bus to `Hello` is not awaited: calls
    /// made meanwhile follow it.
    /// - Parameter queue: A serial queue; call this method on it.
    public init(address: BusAddress, queue: DispatchQueue) throws(BusError) {
        dispatchPrecondition(condition: .onQueue(queue))
        var failure = cdbus_error_t()
        guard let raw = cdbus_connection_open(address.rawValue, &failure) else {
            throw .disconnected(name: string(failure.name), message: string(failure.message))
        }
        let loop: EventLoop
        do throws(BusError) {
            loop = try EventLoop()
            try loop.attach(raw)
        } catch {
            cdbus_connection_close(raw)
            throw error
        }
        (self.address, self.queue, self.raw, self.loop) = (address, queue, raw, loop)
        threads = WaitingThreads(loop, on: queue)
        open = OpenCalls(on: queue)
        open.onDue = { [weak self] in self?.failOverdueCalls() }
        greet()
        guard threads.start({ [self] in handleReady() }) else {
            close()
            throw .limit("no thread for the connection to the bus")
        }
        open.time?.join(self)
    }

    /// Closes the connection. Unanswered calls fail before this returns, and nothing is received any more. Harmless if
    /// it is already closed.
    ///
    /// This process leaves the bus when the calls that bind it (``MethodCall/bindsCaller``) are handled: usually at
    /// once, and ten minutes later at most. A receiver that watches for the end of its callers from the moment at which
    /// it handles a call, as bluetoothd does, would keep without a limit what one asks for that has left before.
    public func close() {
        guard end(Self.closed) else { return }
        settle { [self] in disconnect() }
        if presence.isConnected { queue.later(.seconds(600)) { [weak self] in self?.disconnect() } }
    }

    /// The process ends: no more calls are made that bind it. Calls `body`, on the queue, as soon as those that were
    /// made are handled, or the connection is lost.
    public func leave(_ body: @escaping () -> Void) {
        presence.isLeaving = true
        settle(body)
    }

    private func settle(_ body: @escaping () -> Void) {
        assertOnQueue()
        guard presence.isBound else { return body() }
        presence.settled.append(body)
        // Some calls are never answered. But a receiver handles them in their order: with this one, it has handled
        // those.
        for receiver in presence.unasked {
            let question = MethodCall(
                destination: receiver, path: "/", interface: "org.freedesktop.DBus.Peer", member: "Ping")
            guard let serial = try? send(try message(for: question), whileLeaving: true) else { continue }
            presence.asked[serial] = receiver
        }
    }

    func disconnect() {
        guard presence.isConnected else { return }
        presence.isConnected = false
        loop.detach(raw)
        cdbus_connection_close(raw)
        for body in presence.release() { body() }
    }

    static var closed: BusError { .disconnected(name: disconnected, message: "the connection to the bus was closed") }
    private static let disconnected = "org.freedesktop.DBus.Error.Disconnected"

    /// - Parameter notify: Called before the calls fail.
    /// - Returns: Whether it was of use until now.
    @discardableResult func end(_ error: BusError, _ notify: ((BusError) -> Void)? = nil) -> Bool {
        assertOnQueue()
        guard presence.isOpen else { return false }
        presence.isOpen = false
        goOn()
        open.stop()
        loop.unwatchAll()
        (onSignal, onCall, onDisconnected, onTurnEnd) = (nil, nil, nil, nil)
        watchedNames.removeAll()
        let unsent = waiting.removeAll()
        unsent.forEach { dbus_message_unref($0.message) }
        let failed = open.removeAll() + unsent.map(\.completion)
        notify?(error)
        for completion in failed { completion(.failure(error)) }
        return true
    }

    /// Whether something has arrived that was not read.
    public var hasInput: Bool { presence.isConnected && loop.hasInput }

    /// In debug builds, traps if the caller is not on the connection's queue.
    public func assertOnQueue() {
        #if DEBUG
        dispatchPrecondition(condition: .onQueue(queue))
        #endif
    }

    // MARK: Waiting and receiving

    /// Of messages with descriptors each takes a read of its own.
    private static let mostReads = 16

    private func handleReady() -> WaitingThreads.Turn {
        guard presence.isConnected else { return .init() }
        if presence.isStopped { return loop.rest() }
        loop.pacing.beginTurn()
        do throws(BusError) {
            try loop.handle()
            try receiveMessages()
        } catch {
            lose(error)
        }
        if presence.isOpen, loop.handleReaders() { open.time?.note() }
        let delivery = onTurnEnd?(threads.mayDeliver)
        if delivery != nil { threads.willDeliver() }
        guard presence.isConnected else { return .init(delivery: delivery) }
        let isPaused = loop.endTurn(at: DispatchTime.now().uptimeNanoseconds, hasOpenCalls: !open.isEmpty)
        return .init(isPaused: isPaused, delivery: delivery)
    }

    /// Handles what has arrived, a block of it or ``mostReads`` at most, so that its events are delivered before the
    /// next one is read.
    private func receiveMessages() throws(BusError) {
        let input = loop.input
        let isReady = loop.isReady(input)
        // libdbus ends a connection to which it cannot write, or which it cannot authenticate. What came before that is
        // read.
        let isLost = dbus_connection_get_is_connected(raw) == 0
        var reads = 0
        while presence.isConnected, input >= 0, isReady || isLost, try stream.receive(from: input) {
            reads += 1
            let isLast = reads == Self.mostReads || !stream.endsWithDescriptors
            if stream.isFull || reads == Self.mostReads { loop.pacing.keepGoing() }
            while presence.isConnected, let message = try stream.next() { receive(message) }
            if isLast, !isLost { return }
        }
        if isLost { lose() }
    }

    // MARK: Other descriptors

    /// Calls `body`, on the queue, whenever `descriptor` can be read from or is closed by the other side, until
    /// ``unwatch(_:)`` or the end of the connection. The thread that waits for the bus waits for it as well, so that it
    /// costs no more than a message. Where more than 4,000 come in a second, the thread lets messages and what `body`
    /// reads come together for up to half a millisecond.
    /// - Parameter body: Returns how many values it has read.
    /// - Returns: Whether that is so: not without a connection, memory or a free descriptor.
    public func watch(_ descriptor: Int32, _ body: @escaping () -> Int) -> Bool {
        assertOnQueue()
        return presence.isOpen && loop.watch(descriptor, body)
    }

    /// Call it before the descriptor is closed.
    public func unwatch(_ descriptor: Int32) {
        assertOnQueue()
        loop.unwatch(descriptor)
    }

    private func receive(_ message: Message) {
        guard message.header.type <= DBUS_MESSAGE_TYPE_SIGNAL else { return }  // of a later version of D-Bus
        open.time?.note()
        if message.kind == .signal { loop.pacing.receive(1) } else { loop.pacing.keepGoing() }
        switch message.kind {
        case .signal:
            updateOwner(message)
            onSignal?(message)
        case .reply: finish(message.replySerial, .success(message))
        case .error: finish(message.replySerial, .failure(message.remoteError))
        case .call: answer(message)
        }
    }

    private func finish(_ serial: UInt32, _ result: Result<Message, BusError>) {
        for body in presence.answered(serial) { body() }
        if let body = open.removeEcho(serial) { return body() }
        guard let call = open.remove(serial) else { return }
        sendWaiting()
        call.completion?(result)
    }

    private func answer(_ call: Message) {
        if call.isPing, presence.answersPings { return reply(to: call) }
        if let onCall { return onCall(call) }
        refuse(
            call, name: "org.freedesktop.DBus.Error.UnknownObject",
            message: "this process does not export an object at \(call.path?.rawValue ?? "")")
    }

    private func lose() {
        lose(.disconnected(name: Self.disconnected, message: "the connection to the bus \(address) was lost"))
    }

    private func lose(_ error: BusError) {
        let (notify, turnEnd) = (onDisconnected, onTurnEnd)
        disconnect()
        end(error, notify)
        _ = turnEnd? { false }
    }

    // MARK: Calling

    private func greet() {
        call(.bus("Hello"), deadline: .seconds(30)) { [weak self] result in
            if case .success(let reply) = result, var reader = Optional(reply.reader) {
                self?.presence.uniqueName = try? reader.readString()
            } else {
                self?.lose()  // a bus that refuses `Hello` closes the connection; one that does not answer is not a bus
            }
        }
    }

    /// Makes a call. `completion` runs on the queue, exactly once, never before this returns, and after every signal
    /// that the other side sent before its answer.
    ///
    /// A bus accepts a limited number of open calls from one connection. Further calls wait here and are made in the
    /// order in which they were requested, urgent ones first (``MethodCall/isUrgent``).
    /// - Parameter deadline: How long to wait for the answer, from the moment at which the call is made. The other side
    ///   continues to process the call after that.
    public func call(_ call: MethodCall, deadline: Duration, completion: @escaping Completion) {
        assertOnQueue()
        do {
            let prepared = WaitingCall(
                message: try message(for: call), deadline: deadline,
                bindingReceiver: call.bindsCaller ? call.destination : nil, completion: completion)
            if call.destination == MethodCall.busName {
                send(prepared)  // the bus answers at once, and does not count these
            } else {
                waiting.add(prepared, to: call.path, isUrgent: call.isUrgent)
                sendWaiting()
            }
        } catch { fail(completion, error) }
    }

    private func sendWaiting() {
        while let call = waiting.next(open: open.count) { send(call) }
    }

    private func send(_ call: WaitingCall) {
        if presence.isStopped { return hold { [self] in send(call) } }
        if presence.isLeaving, call.bindingReceiver != nil {
            dbus_message_unref(call.message)
            return fail(call.completion, .disconnected(name: Self.disconnected, message: "the process ends"))
        }
        do {
            let serial = try send(call.message)
            open.add(serial, at: DispatchQueue.now, for: call.deadline, call.completion)
            if let receiver = call.bindingReceiver { presence.binding[serial] = receiver }
            loop.recordCall(at: DispatchTime.now().uptimeNanoseconds)
        } catch { fail(call.completion, error) }
    }

    private func fail(_ completion: @escaping Completion, _ error: BusError) {
        queue.later { [self] in
            completion(.failure(error))
            _ = onTurnEnd? { false }
        }
    }

    /// Makes a call without asking for an answer.
    public func send(_ call: MethodCall) throws(BusError) {
        let message = try message(for: call)
        dbus_message_set_no_reply(message, 1)
        try send(message)
    }

    @discardableResult
    func send(_ message: OpaquePointer, whileLeaving: Bool = false) throws(BusError) -> UInt32 {
        assertOnQueue()
        if presence.isStopped {
            hold { [self] in _ = try? send(message, whileLeaving: whileLeaving) }
            return 0
        }
        defer { dbus_message_unref(message) }
        guard presence.isOpen || whileLeaving && presence.isConnected else {
            throw .disconnected(name: Self.disconnected, message: "not connected to a bus")
        }
        var serial: UInt32 = 0
        open.time?.note()
        guard dbus_connection_send(raw, message, &serial) != 0 else { throw .limit("out of memory") }
        return serial
    }

    /// How many calls have passed their deadlines, and are not answered.
    public var overdueCalls: Int { open.overdue }

    /// How many calls are not answered for that time, or longer.
    public func openCalls(for period: Duration) -> Int { open.count(for: period) }

    private func failOverdueCalls() {
        let turnEnd = onTurnEnd
        guard let (overdue, hasSlow) = open.due(hasInput: loop.hasInput) else { return }
        // Those that the one before has ended, as it has closed the connection, are not there any more.
        for serial in overdue { open.fail(serial)?(.failure(.timedOut)) }
        open.schedule()
        if hasSlow { onSlowCall?() }
        if overdueCalls >= CallQueue<WaitingCall>.limit {
            // They are counted as long as this connection lasts, so no other call could be made.
            lose(.limit("\(overdueCalls) calls were never answered, and the bus allows no more"))
        }
        if !overdue.isEmpty || hasSlow { _ = turnEnd? { false } }
    }
}

/// The C array as a string.
private func string<T>(_ tuple: T) -> String {
    withUnsafeBytes(of: tuple) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
}
