import BluezDBus
import BluezKitRestore
import Dispatch
import Foundation

/// The way from one manager's app to its core in a keeper, in place of that core. Any thread.
///
/// A request is with the kernel when the call returns: it is carried out even if the process ends in the next line.
/// What the keeper sends is read by the ``KeeperLoop``, and the inbox delivers it. If the keeper is lost, the app hears
/// what it hears when bluetoothd restarts, and everything is asked for again of the next one, or of a core in this
/// process if there is none.
// holds: constants, and what is locked or confined to `queue`
final class KeptManager<Side: KeptSide>: Backend, EventSource, @unchecked Sendable {
    typealias Request = Side.Request
    typealias Event = Side.Event

    /// How often in a row a keeper may be missing, refuse the manager or end at once, and how long one lasts that
    /// does not.
    private static var mostFailures: Int { 4 }
    private static var lasting: Duration { .seconds(10) }

    let timing: BlueZTiming
    let isOnMainQueue: Bool
    let isKept = true
    private let connect: @Sendable () -> KeeperSocket?
    private let patience: Duration
    private var queue: DispatchQueue { KeeperLoop.shared.queue }
    private let delivery: KeptDelivery<Event>
    private let inbox: Inbox<KeptDelivery<Event>>
    let side: Side
    private let state: Protected<State>

    private struct State {
        var hello: KeeperHello
        /// Nil: there is no keeper at present.
        var socket: KeeperSocket?
        /// In this process, as there is no keeper any more.
        var own: Side.Core?
        /// Whether it has taken the manager.
        var isWelcome = false
        var isReleased = false
        /// A keeper may have the manager, and does not know of its release.
        var owesRelease = false
        /// What a new keeper has to be told, by kind.
        var lasting: [String: RequestMessage<Request>] = [:]
        var lastTicket: UInt32 = 0
        var questions: [UInt32: Question] = [:]
    }

    /// A thread of the app waits for the answer.
    private final class Question: @unchecked Sendable {  // holds: written before the signal, read after it
        let answered = DispatchSemaphore(value: 0)
        var answer: Data?
    }

    /// - Parameters:
    ///   - patience: How long a keeper may take to answer, and to take what it is sent.
    ///   - connect: Makes a connection to a keeper, which is started if there is none.
    init(
        _ hello: KeeperHello, side: Side, place: any CallbackPlace, timing: BlueZTiming,
        patience: Duration = .seconds(10), connect: @escaping @Sendable () -> KeeperSocket?,
        receive: @escaping @Sendable ([Event]) -> Void
    ) {
        (self.side, self.timing, self.patience, self.connect) = (side, timing, patience, connect)
        isOnMainQueue = (place as? DispatchQueue)?.isMain ?? false
        state = Protected(State(hello: hello))
        delivery = KeptDelivery(receive)
        inbox = Inbox(place)
        // libdispatch ends a process that has no descriptor for its first timer: it gets it while there are some.
        queue.asyncAfter(deadline: .now().later(by: .milliseconds(1))) {}
    }

    deinit { inbox.end() }

    /// The manager is ready for events.
    func start() { begin(after: 0) }

    /// Finds a keeper that takes the manager, in a thread of its own, as that may take seconds.
    private func begin(after failures: Int) {
        let hasThread = startThread(named: "bluezkit.keeper") { [self] in
            var failures = failures
            while failures < Self.mostFailures, isWanted {
                if failures > 1 { usleep(useconds_t(50_000 << failures)) }
                // Before a keeper hands over what cannot be handed over again.
                let attempt = Attempt()
                if let attempt, let socket = open(), awaitWelcome(socket, attempt), follow(socket, attempt, failures) {
                    return
                }
                close()
                failures = Self.failures(after: failures, attempt)
            }
            continueAlone()
        }
        if hasThread { return }
        Log.warning(from: "threads", "the process may have no more threads: the manager hears nothing until it may")
        queue.asyncAfter(deadline: .now().later(by: .seconds(1))) { [self] in if isWanted { begin(after: failures) } }
    }

    /// One that ends at once is not there: the app may ask for what it cannot bear.
    private static func failures(after failures: Int, _ attempt: Attempt?) -> Int {
        guard let began = attempt?.welcomed, began.later(by: lasting) < .now() else { return failures + 1 }
        return 1
    }

    /// One keeper, from the connect on. Confined to the thread that begins, then to `queue`.
    private final class Attempt: @unchecked Sendable {  // holds: used by one of them at a time
        var reader = FrameReader()
        /// Nil: the keeper has not taken the manager yet.
        var page: DeliveryPage?
        var welcomed: DispatchTime?
        /// What an earlier process has left is in the keeper's hands.
        var isTaken = false
        private let hasJoined = KeeperLoop.shared.join()

        /// Nil: the process may not have what it takes to read.
        init?() { if !hasJoined { return nil } }

        deinit {
            reader.end()
            if hasJoined { KeeperLoop.shared.leave() }
        }
    }

    /// There is no keeper: the manager restores, or resumes, as one that has not asked for one.
    private func continueAlone() {
        let hello = state.withLock { $0.isReleased ? nil : $0.hello }
        guard let hello, let configuration = Side.configuration(in: hello) else { return }
        Log.warning("\(hello.statePath) does without a keeper until its next process")
        Keeper.leave(hello.statePath)
        let (core, start) = Side.core(
            configuration, in: .shared(hello.session), preserved: hello.preserved, place: queue, isHosted: false
        ) { [self] events in post(events.map { KeptEvent(event: $0) }) }
        let lasting = state.withLock { state -> [RequestMessage<Request>]? in
            guard !state.isReleased else { return nil }
            state.own = core
            return Array(state.lasting.values)
        }
        guard let lasting else { return }
        for message in lasting { core.send(message.request, generation: message.generation) }
        start()
    }

    /// Whether a keeper is to hear of the manager, or of its end.
    private var isWanted: Bool { state.withLock { !$0.isReleased || $0.owesRelease } }
    var own: Side.Core? { state.withLock { $0.own } }
    var hello: KeeperHello { state.withLock { $0.hello } }

    // MARK: Requests

    func send(_ request: Request, generation: UInt64?) {
        let message = RequestMessage(request: request, generation: generation)
        let kind = side.lastingKind(of: request)
        let own = state.withLock { state in
            if let kind { state.lasting[kind] = message }
            // Without a keeper it is lost, as what follows the end of Bluetooth.
            if let socket = state.socket { Self.send(try? .request(message), to: socket) }
            return state.own
        }
        own?.send(request, generation: generation)
    }

    /// - Returns: Whether it was taken. If not, the end of the connection is found by who reads.
    @discardableResult
    private static func send(_ frame: Frame?, to socket: KeeperSocket) -> Bool {
        guard let frame else { return false }
        defer { frame.closeDescriptors() }
        // A hello with too much preserved state: the manager does without a keeper, and the log says so then. Not here,
        // under the lock.
        guard frame.body.count <= Frame.longestBody else { return false }
        if socket.sendAll(frame) { return true }
        socket.shutDown()
        return false
    }

    /// Asks the keeper, and waits for its answer.
    /// - Returns: Nil: there is none in time.
    func ask<Answer: Codable & Sendable>(_ query: some Codable & Sendable, _ type: Answer.Type) -> Answer? {
        let question = Question()
        let ticket = state.withLock { state -> UInt32? in
            guard let socket = state.socket else { return nil }
            state.lastTicket &+= 1
            state.questions[state.lastTicket] = question
            Self.send(try? .message(.query, KeeperQuery(ticket: state.lastTicket, query: query)), to: socket)
            return state.lastTicket
        }
        guard let ticket else { return nil }
        let result = question.answered.wait(timeout: .now().later(by: BlueZTiming.Deadline.blockedList))
        _ = state.withLock { $0.questions.removeValue(forKey: ticket) }
        guard result == .success else { return nil }
        return question.answer.flatMap { try? BorderFormat.decode(KeeperAnswer<Answer>.self, from: $0).answer }
    }

    func report(_ event: Event) { queue.async { [self] in post([KeptEvent(event: event)]) } }

    func release() {
        inbox.abandon()
        let own = state.withLock { state in
            state.isReleased = true
            let isSent = state.socket?.sendAll(Frame(kind: .release, body: Data())) ?? false
            if !isSent, state.own == nil {
                state.owesRelease = true
                state.socket?.shutDown()
            }
            defer { state.own = nil }
            return state.own
        }
        own?.release()
    }

    func die() {
        inbox.abandon()
        let own = state.withLock { state in
            state.isReleased = true
            state.socket?.shutDown()
            return state.own
        }
        own?.die()
    }

    // MARK: The keeper

    /// Connects, and tells of the manager.
    private func open() -> KeeperSocket? {
        guard let socket = connect() else { return nil }
        // Once it has taken the manager, it may be silent.
        socket.limitWaiting(to: patience, receiving: patience)
        side.begins()
        let isOpen = state.withLock { state in
            guard Self.send(try? .message(.hello, state.hello), to: socket) else { return false }
            if state.isReleased {
                if socket.sendAll(Frame(kind: .release, body: Data())) { state.owesRelease = false }
                return false
            }
            for request in state.lasting.values { Self.send(try? .request(request), to: socket) }
            state.socket = socket
            return true
        }
        return isOpen ? socket : nil
    }

    /// - Returns: Whether the keeper takes the manager.
    private func awaitWelcome(_ socket: KeeperSocket, _ attempt: Attempt) -> Bool {
        while case .bytes = socket.receive(into: &attempt.reader, waits: true) {
            let (events, isReadable) = take(attempt)
            queue.sync { post(events) }
            guard isReadable else { return false }
            if attempt.page != nil { return true }
        }
        return false
    }

    /// Reads whenever there is something, until the connection ends; then another keeper is looked for.
    /// - Returns: Whether that is possible.
    private func follow(_ socket: KeeperSocket, _ attempt: Attempt, _ failures: Int) -> Bool {
        queue.sync {
            KeeperLoop.shared.watch(socket.descriptor) { [self] in
                switch socket.receive(into: &attempt.reader, waits: false) {
                case .notReady: return
                case .bytes:
                    let (events, isReadable) = take(attempt)
                    add(events)
                    if isReadable { return }
                case .ended: break
                }
                KeeperLoop.shared.unwatch(socket.descriptor)
                // Before there is another one, which the keeper would take for that of another process.
                socket.shutDown()
                close()
                if isWanted { begin(after: Self.failures(after: failures, attempt)) }
            }
        }
    }

    /// - Returns: The events that have come, up to what cannot be read.
    private func take(_ attempt: Attempt) -> (events: [KeptEvent<Event>], isReadable: Bool) {
        var events: [KeptEvent<Event>] = []
        do {
            while let frame = try attempt.reader.next() { try take(frame, attempt, &events) }
            return (events, true)
        } catch {
            Log.warning(from: "the keeper", "the keeper has sent what cannot be read, and is left: \(error)")
            return (events, false)
        }
    }

    private func take(_ frame: Frame, _ attempt: Attempt, _ events: inout [KeptEvent<Event>]) throws {
        // A keeper sends them beside these alone.
        if frame.kind != .welcome, frame.kind != .event { frame.closeDescriptors() }
        switch frame.kind {
        case .welcome:
            for descriptor in frame.descriptors.dropFirst() { Glibc.close(descriptor) }
            guard let descriptor = frame.descriptors.first, let new = DeliveryPage(descriptor: descriptor) else {
                throw FrameReader.Failure.malformed
            }
            (attempt.page, attempt.welcomed) = (new, .now())
            // The keeper had nothing of the manager.
            if frame.body.isEmpty { return }
            let handOver = try BorderFormat.decode(HandOver.self, from: frame.body)
            let hello = taken()
            if !hello.resumes { events += side.taken(over: handOver, hello.preserved).map { KeptEvent(event: $0) } }
        case .event, .value, .written, .sent:
            let (number, event) = try frame.event(Event.self)
            if !attempt.isTaken { _ = taken() }
            attempt.isTaken = true
            guard let heard = side.passed(event) else { return }
            events.append(KeptEvent(event: heard, number: number == 0 ? nil : number, page: attempt.page))
        case .answer:
            let ticket = try BorderFormat.decode(KeeperTicket.self, from: frame.body).ticket
            let question = state.withLock { $0.questions.removeValue(forKey: ticket) }
            question?.answer = frame.body
            question?.answered.signal()
        case .refusal:
            let reason = String(decoding: frame.body, as: UTF8.self)
            Log.warning(from: "the keeper", "the keeper refuses the manager: \(reason)")
        case .greeting, .hello, .request, .write, .update, .query, .release, .status, .discard, .replace:
            throw FrameReader.Failure.malformed
        }
    }

    /// The keeper has the manager, and what an earlier process has left is in its hands. - Returns: the hello before.
    private func taken() -> KeeperHello {
        state.withLock { state in
            defer {
                if !state.isWelcome {
                    (state.hello.preserved, state.hello.resumes, state.isWelcome) = (nil, true, true)
                }
            }
            return state.hello
        }
    }

    /// The connection has ended.
    private func close() {
        let (wasOpen, questions) = state.withLock { state -> (Bool, [Question]) in
            defer { (state.socket, state.questions, state.isWelcome) = (nil, [:], false) }
            return (state.isWelcome && !state.isReleased, Array(state.questions.values))
        }
        for question in questions { question.answered.signal() }
        guard wasOpen else { return }
        Log.warning("the keeper is gone; waiting for another one")
        report(side.lost)
    }

    // MARK: Events

    private func post(_ events: [KeptEvent<Event>]) {
        for event in events { _ = inbox.add(event) }
        _ = flush { false }
    }

    /// They are delivered at the end of this turn of the loop.
    private func add(_ events: [KeptEvent<Event>]) {
        for event in events where inbox.add(event) { KeeperLoop.shared.hasOutgoing(self) }
    }

    func flush(mayDeliver: () -> Bool) -> (() -> Void)? { inbox.flush(to: delivery, mayDeliver: mayDeliver) }
}

extension KeptManager {
    /// The way to a keeper; nil: there is none, and the log says why.
    /// - Parameter hello: Nil: the app does not ask for one.
    static func make(
        _ hello: KeeperHello?, _ statePath: String?, side: Side, place: any CallbackPlace,
        receive: @escaping @Sendable ([Event]) -> Void
    ) -> KeptManager? {
        guard let hello else {
            // An earlier version of the app may have asked for one.
            if let statePath { Keeper.leave(statePath) }
            return nil
        }
        #if DEBUG
        if BorderFormat.isHosted {
            return KeptManager(
                hello, side: side, place: place, timing: Session.timing(on: hello.session.address),
                connect: Keeper.connectInProcess, receive: receive)
        }
        #endif
        let first: KeeperSocket?
        do throws(Keeper.Failure) { first = try Keeper.connectOrStart() } catch {
            // systemd may be starting it, and everything else: the manager waits for it, and the app does not.
            if case .noAnswer = error {
                first = nil
            } else {
                Log.warning("there is no keeper, so \(hello.statePath) is restored without one: \(error)")
                Keeper.leave(hello.statePath)
                return nil
            }
        }
        let given = Protected<KeeperSocket?>(first)
        return KeptManager(
            hello, side: side, place: place, timing: BlueZTiming(),
            connect: {
                let socket = given.withLock { first in
                    defer { first = nil }
                    return first
                }
                return socket ?? (try? Keeper.connectOrStart())
            }, receive: receive)
    }
}
