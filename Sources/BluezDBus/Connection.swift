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
    /// Called once when the bus is lost, after every unanswered call has failed; not after ``close()``.
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
    public var onSlowCall: (() -> Void)?
    /// How long a call may take before it counts as slow.
    public var slowCall = Duration.seconds(10)

    /// This connection's name on the bus, `:1.42`. Nil until the bus has answered `Hello`.
    public private(set) var uniqueName: String?

    private let raw: OpaquePointer
    let loop: EventLoop
    private let threads: WaitingThreads
    private let stream = MessageStream()
    private var presence = BusPresence()
    private var open: [UInt32: OpenCall] = [:]
    private var waiting = CallQueue<WaitingCall>()
    private var deadlines: DeadlineTimer
    private var matches: [MatchRule: Int] = [:]
    var watchedNames: [String: WatchedName] = [:]

    /// Gets the answer to a call, or the error.
    public typealias Completion = (Result<Message, BusError>) -> Void

    private struct OpenCall {
        let start: DispatchTime
        let deadline: DispatchTime
        /// When the call becomes slow; nil: it already has.
        var slow: DispatchTime?
        /// Nil: the deadline has passed. The bus counts the call until it is answered, however late.
        var completion: Completion?
    }

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
        deadlines = DeadlineTimer(queue: queue)
        deadlines.onDue = { [weak self] in self?.failOverdueCalls() }
        greet()
        guard threads.start({ [self] in handleReady() }) else {
            close()
            throw .limit("no thread for the connection to the bus")
        }
    }

    /// Closes the connection. Unanswered calls fail before this returns, and nothing is received any more. Harmless if
    /// it is already closed.
    ///
    /// This process leaves the bus when the calls that bind it (``MethodCall/bindsCaller``) are handled: usually at
    /// once, and ten minutes later at most. A receiver that watches for the end of its callers from the moment at which
    /// it handles a call, as bluetoothd does, would keep without a limit what one asks for that has left before.
    public func close() {
        guard end(.disconnected(name: Self.disconnected, message: "the connection to the bus was closed")) else {
            return
        }
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

    private func disconnect() {
        guard presence.isConnected else { return }
        presence.isConnected = false
        loop.detach(raw)
        cdbus_connection_close(raw)
        for body in presence.release() { body() }
    }

    private static let disconnected = "org.freedesktop.DBus.Error.Disconnected"

    /// - Returns: Whether it was of use until now.
    @discardableResult private func end(_ error: BusError) -> Bool {
        assertOnQueue()
        guard presence.isOpen else { return false }
        presence.isOpen = false
        deadlines.stop()
        loop.unwatchAll()
        (onSignal, onCall, onDisconnected, onTurnEnd) = (nil, nil, nil, nil)
        watchedNames.removeAll()
        let unsent = waiting.removeAll()
        unsent.forEach { dbus_message_unref($0.message) }
        let failed = open.sorted { $0.key < $1.key }.compactMap(\.value.completion) + unsent.map(\.completion)
        open.removeAll()
        for completion in failed { completion(.failure(error)) }
        return true
    }

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
        loop.pacing.beginTurn()
        do throws(BusError) {
            try loop.handle()
            try receiveMessages()
        } catch {
            lose(error)
        }
        if presence.isOpen { loop.handleReaders() }
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
        guard let call = open.removeValue(forKey: serial) else { return }
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
        end(error)
        notify?(error)
        _ = turnEnd? { false }
    }

    // MARK: Calling

    private func greet() {
        call(.bus("Hello"), deadline: .seconds(30)) { [weak self] result in
            if case .success(let reply) = result, var reader = Optional(reply.reader) {
                self?.uniqueName = try? reader.readString()
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
        if presence.isLeaving, call.bindingReceiver != nil {
            dbus_message_unref(call.message)
            return fail(call.completion, .disconnected(name: Self.disconnected, message: "the process ends"))
        }
        do {
            let serial = try send(call.message)
            let now = DispatchTime.now()
            let (due, slow) = (now.later(by: call.deadline), now.later(by: slowCall))
            open[serial] = OpenCall(
                start: now, deadline: due, slow: slow < due ? slow : nil, completion: call.completion)
            if let receiver = call.bindingReceiver { presence.binding[serial] = receiver }
            deadlines.mustFire(by: min(due, slow))
            loop.recordCall(at: now.uptimeNanoseconds)
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

    private func message(for call: MethodCall) throws(BusError) -> OpaquePointer {
        let names = [call.destination, call.interface, call.member]
        guard names.allSatisfy(isCString),
            let message = cdbus_message_new_call(call.destination, call.path.rawValue, call.interface, call.member)
        else { throw .invalid(names.joined(separator: " ")) }
        dbus_message_set_auto_start(message, call.mayStartDestination ? 1 : 0)
        if let arguments = call.arguments { try write(arguments, into: message) }
        return message
    }

    private func write(
        _ arguments: (inout MessageWriter) throws(BusError) -> Void, into message: OpaquePointer
    ) throws(BusError) {
        var writer = MessageWriter(message)
        do { try arguments(&writer) } catch {
            dbus_message_unref(message)
            throw error
        }
    }

    @discardableResult
    private func send(_ message: OpaquePointer, whileLeaving: Bool = false) throws(BusError) -> UInt32 {
        assertOnQueue()
        defer { dbus_message_unref(message) }
        guard presence.isOpen || whileLeaving && presence.isConnected else {
            throw .disconnected(name: Self.disconnected, message: "not connected to a bus")
        }
        var serial: UInt32 = 0
        guard dbus_connection_send(raw, message, &serial) != 0 else { throw .limit("out of memory") }
        return serial
    }

    /// How many calls have passed their deadlines, and are not answered.
    public var overdueCalls: Int { open.values.count { $0.completion == nil } }

    /// How many calls are not answered for that time, or longer.
    public func openCalls(for period: Duration) -> Int {
        let now = DispatchTime.now()
        return open.values.count { $0.start.later(by: period) <= now }
    }

    private func failOverdueCalls() {
        deadlines.hasFired()
        // An answer that has arrived is in time, however late this process looks: it may have been stopped, or the
        // machine.
        if deadlines.putOff(if: loop.hasInput) { return }
        let (now, turnEnd) = (DispatchTime.now(), onTurnEnd)
        let waited = open.filter { $0.value.completion != nil }
        // In the order of their deadlines, however late this is.
        let overdue = waited.filter { $0.value.deadline <= now }
            .sorted { ($0.value.deadline, $0.key) < ($1.value.deadline, $1.key) }.map(\.key)
        for serial in overdue {
            guard let completion = open[serial]?.completion else { continue }  // closed by the one before
            open[serial]?.completion = nil
            completion(.failure(.timedOut))
        }
        let slow = waited.filter { $0.value.slow.map { $0 <= now } ?? false }.keys
        for serial in slow { open[serial]?.slow = nil }
        let moments = open.values.compactMap { $0.completion == nil ? nil : $0.slow ?? $0.deadline }
        if let next = moments.min() { deadlines.mustFire(by: next) }
        if !slow.isEmpty { onSlowCall?() }
        if overdueCalls >= CallQueue<WaitingCall>.limit {
            // They are counted as long as this connection lasts, so no other call could be made.
            lose(.limit("\(overdueCalls) calls were never answered, and the bus allows no more"))
        }
        if !overdue.isEmpty || !slow.isEmpty { _ = turnEnd? { false } }
    }

    // MARK: Answering and signalling

    /// Answers a call. Does nothing if the caller expects no answer.
    public func reply(to call: IncomingCall, _ arguments: ((inout MessageWriter) throws(BusError) -> Void)? = nil) {
        guard call.expectsReply else { return }
        guard let message = cdbus_message_new_return(call.serial, call.senderC) else { return }
        do {
            if let arguments { try write(arguments, into: message) }
            try send(message, whileLeaving: true)
        } catch {
            refuse(call, name: "org.freedesktop.DBus.Error.Failed", message: error.message)
        }
    }

    /// Answers a call with an error. A `name` that is not an error name becomes `…Error.Failed`.
    public func refuse(_ call: IncomingCall, name: String, message: String) {
        guard call.expectsReply else { return }
        let answer =
            cdbus_message_new_error(call.serial, call.senderC, name, message)
            ?? cdbus_message_new_error(
                call.serial, call.senderC, "org.freedesktop.DBus.Error.Failed", message)
        if let answer { _ = try? send(answer, whileLeaving: true) }
    }

    /// Sends a signal, to all subscribers of a matching rule or only to `destination`.
    public func emit(
        path: ObjectPath, interface: String, member: String, to destination: String? = nil,
        _ arguments: (inout MessageWriter) throws(BusError) -> Void
    ) throws(BusError) {
        guard [destination ?? "", interface, member].allSatisfy(isCString),
            let message = cdbus_message_new_signal(destination, path.rawValue, interface, member)
        else { throw .invalid("signal \(interface).\(member)") }
        try write(arguments, into: message)
        try send(message)
    }

    /// Whether this bus transfers file descriptors: those over tcp or ssh do not.
    public var carriesFileDescriptors: Bool {
        presence.isOpen && dbus_connection_can_send_type(raw, CDBUS_TYPE_UNIX_FD) != 0
    }

    // MARK: Match rules

    /// Asks the bus for the signals of `rule`, until ``removeMatch(_:)`` has been called as often.
    public func addMatch(_ rule: MatchRule) {
        assertOnQueue()
        matches[rule, default: 0] += 1
        if matches[rule] == 1 { setMatch(rule, "AddMatch") }
    }

    /// Undoes one ``addMatch(_:)``; with the last one the bus stops sending these signals.
    public func removeMatch(_ rule: MatchRule) {
        assertOnQueue()
        guard let users = matches[rule] else { return }
        matches[rule] = users > 1 ? users - 1 : nil
        if users == 1 { setMatch(rule, "RemoveMatch") }
    }

    /// The number of different rules that the bus holds for this connection.
    public var matchRuleCount: Int { matches.count }

    private func setMatch(_ rule: MatchRule, _ member: String) {
        // A bus refuses a rule only at its limit; the answer is awaited so that the refusal can be reported.
        call(.bus(member) { (writer) throws(BusError) in try writer.write(rule.text) }, deadline: .seconds(30)) {
            [weak self] result in
            if case .failure(let error) = result { self?.onRuleRefused?(rule, error) }
        }
    }

    /// The bus refused a rule: signals will be missing.
    public var onRuleRefused: ((MatchRule, BusError) -> Void)?
}

/// C would treat a text with a NUL character as a shorter one, which may be another program's name.
private func isCString(_ text: String) -> Bool { !text.utf8.contains(0) }

/// The C array as a string.
private func string<T>(_ tuple: T) -> String {
    withUnsafeBytes(of: tuple) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
}
