import BluezDBus
import BluezKitRestore
import Dispatch
import Foundation

/// The way from one manager's app to its core in a keeper, in place of that core. Any thread.
///
/// A request is with the kernel when the call returns: it is carried out even if the process ends in the next line. A
/// thread reads what the keeper sends, and the inbox delivers it. If the keeper is lost, the app hears what it hears
/// when bluetoothd restarts, and everything is asked for again of the next one.
// holds: constants, and what is locked or confined to `queue`
final class KeptManager<Request: Codable & Sendable, Event: Codable & Sendable>: @unchecked Sendable {
    let timing: BlueZTiming
    let isOnMainQueue: Bool
    let isKept = true
    private let connect: @Sendable () -> KeeperSocket?
    /// In place of the bus queue.
    private let queue = DispatchQueue(label: "bluezkit.keeper")
    private let delivery: KeptDelivery<Event>
    private let inbox: Inbox<KeptDelivery<Event>>
    private let side: any KeptSide<Request, Event>
    private let state: Protected<State>

    private struct State {
        var hello: KeeperHello
        /// Nil: there is no keeper at present.
        var socket: KeeperSocket?
        /// Whether it has taken the manager.
        var isWelcome = false
        var isReleased = false
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

    /// - Parameter connect: Makes a connection to a keeper, which is started if there is none.
    init(
        _ hello: KeeperHello, side: any KeptSide<Request, Event>, place: any CallbackPlace, timing: BlueZTiming,
        connect: @escaping @Sendable () -> KeeperSocket?, receive: @escaping @Sendable (Event) -> Void
    ) {
        (self.side, self.timing, self.connect) = (side, timing, connect)
        isOnMainQueue = (place as? DispatchQueue)?.isMain ?? false
        state = Protected(State(hello: hello))
        delivery = KeptDelivery(receive)
        inbox = Inbox(place)
    }

    deinit { inbox.end() }

    /// The manager is ready for events. - Returns: whether the process may have one more thread.
    func start() -> Bool {
        startThread(named: "bluezkit.keeper") { [self] in
            var tries = 0
            repeat {
                let socket = open()
                if let socket, read(from: socket) { tries = 0 } else { tries += 1 }
                close()
                if tries > 0 { usleep(useconds_t(50_000 << min(tries, 6))) }
            } while !state.withLock({ $0.isReleased })
        }
    }

    // MARK: Requests

    func send(_ request: Request, generation: UInt64?) {
        let message = RequestMessage(request: request, generation: generation)
        let kind = side.lastingKind(of: request)
        state.withLock { state in
            if let kind { state.lasting[kind] = message }
            // Without a keeper it is lost, as what follows the end of Bluetooth.
            if let socket = state.socket { Self.send(.request, message, to: socket) }
        }
    }

    /// - Returns: Whether it was taken. If not, the end of the connection is found by who reads.
    @discardableResult
    private static func send(_ kind: Frame.Kind, _ message: some Codable, to socket: KeeperSocket) -> Bool {
        guard let (bytes, descriptors) = try? BorderFormat.encode(message) else { return false }
        let frame = Frame(kind: kind, body: bytes, descriptors: descriptors)
        defer { frame.closeDescriptors() }
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
            Self.send(.query, KeeperQuery(ticket: state.lastTicket, query: query), to: socket)
            return state.lastTicket
        }
        guard let ticket else { return nil }
        let result = question.answered.wait(timeout: .now().later(by: BlueZTiming.Deadline.blockedList))
        _ = state.withLock { $0.questions.removeValue(forKey: ticket) }
        guard result == .success else { return nil }
        return question.answer.flatMap { try? BorderFormat.decode(KeeperAnswer<Answer>.self, from: $0).answer }
    }

    func report(_ event: Event) { queue.async { [self] in post(KeptEvent(event: event)) } }

    func release() {
        inbox.abandon()
        state.withLock { state in
            state.isReleased = true
            guard let socket = state.socket else { return }
            _ = socket.sendAll(Frame(kind: .release, body: Data()))
        }
    }

    // MARK: The keeper

    /// Connects, and tells of the manager.
    private func open() -> KeeperSocket? {
        guard let socket = connect() else { return nil }
        socket.limitWaiting(to: .seconds(10), receiving: .zero)
        let isOpen = state.withLock { state in
            guard Self.send(.hello, state.hello, to: socket) else { return false }
            if state.isReleased {
                _ = socket.sendAll(Frame(kind: .release, body: Data()))
                return false
            }
            for request in state.lasting.values { Self.send(.request, request, to: socket) }
            state.socket = socket
            return true
        }
        return isOpen ? socket : nil
    }

    /// Reads until the connection ends. - Returns: whether there was a keeper that has taken the manager.
    private func read(from socket: KeeperSocket) -> Bool {
        var reader = FrameReader()
        defer { reader.end() }
        var page: DeliveryPage?
        var isSound = true
        do {
            while case .bytes = socket.receive(into: &reader, waits: true) {
                var events: [KeptEvent<Event>] = []
                while let frame = try reader.next() { try take(frame, &page, &events) }
                queue.sync { for event in events { add(event) } }
                flush()
            }
        } catch {
            Log.warning(from: "the keeper", "the keeper has sent what cannot be read, and is left: \(error)")
            isSound = false
        }
        return page != nil && isSound
    }

    private func take(_ frame: Frame, _ page: inout DeliveryPage?, _ events: inout [KeptEvent<Event>]) throws {
        switch frame.kind {
        case .welcome:
            guard let descriptor = frame.descriptors.first, let new = DeliveryPage(descriptor: descriptor) else {
                throw FrameReader.Failure.malformed
            }
            page = new
            let welcome = try BorderFormat.decode(KeeperWelcome.self, from: frame.body)
            let hello = state.withLock { state in
                defer { (state.hello.preserved, state.hello.resumes, state.isWelcome) = (nil, true, true) }
                return state.hello
            }
            guard let handOver = welcome.handOver, !hello.resumes else { return }
            events += side.taken(over: handOver, hello.preserved).map { KeptEvent(event: $0) }
        case .event, .value:
            let (number, event) = try frame.event(Event.self)
            events.append(KeptEvent(event: event, number: number, page: page))
        case .answer:
            let ticket = try BorderFormat.decode(KeeperTicket.self, from: frame.body).ticket
            let question = state.withLock { $0.questions.removeValue(forKey: ticket) }
            question?.answer = frame.body
            question?.answered.signal()
        case .refusal:
            frame.closeDescriptors()
            let reason = String(decoding: frame.body, as: UTF8.self)
            Log.warning(from: "the keeper", "the keeper refuses the manager: \(reason)")
        case .greeting, .hello, .request, .query, .release:
            frame.closeDescriptors()
            throw FrameReader.Failure.malformed
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

    private func post(_ event: KeptEvent<Event>) {
        add(event)
        _ = inbox.flush(to: delivery) { false }
    }

    private func add(_ event: KeptEvent<Event>) { _ = inbox.add(event) }

    private func flush() { queue.sync { _ = inbox.flush(to: delivery) { false } } }
}

/// What is particular to a role.
protocol KeptSide<Request, Event>: Sendable {
    associatedtype Request
    associatedtype Event
    /// Nil: a new keeper need not hear of the request; otherwise what the next one of this kind replaces.
    func lastingKind(of request: Request) -> String?
    /// What the app hears first of a manager that the keeper has kept.
    func taken(over: HandOver, _ preserved: Snapshot?) -> [Event]
    /// The keeper is gone, and with it all that it did.
    var lost: Event { get }
}

struct KeeperTicket: Codable { let ticket: UInt32 }

struct KeeperQuery<Query: Codable & Sendable>: Codable, Sendable {
    let ticket: UInt32
    let query: Query
}

struct KeeperAnswer<Answer: Codable & Sendable>: Codable, Sendable {
    let ticket: UInt32
    let answer: Answer
}

/// An event on its way to the app.
struct KeptEvent<Event: Sendable>: Sendable {
    let event: Event
    /// Nil: of the app's own side.
    var number: UInt64?
    /// Where its delivery is noted.
    var page: DeliveryPage?
}

/// Delivers what a keeper sends, and notes how far the app has come.
final class KeptDelivery<Event: Sendable>: Recipient {
    private let receive: @Sendable (Event) -> Void

    init(_ receive: @escaping @Sendable (Event) -> Void) { self.receive = receive }

    func deliver(_ event: KeptEvent<Event>) {
        if let number = event.number { event.page?.begun = number }
        receive(event.event)
        if let number = event.number { event.page?.delivered = number }
    }

    static func outlivesManager(_ event: KeptEvent<Event>) -> Bool {
        (event.event as? CentralEvent)?.outlivesManager ?? false
    }
}
