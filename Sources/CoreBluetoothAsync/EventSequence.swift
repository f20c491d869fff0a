import Synchronization

/// Events in the order in which CoreBluetooth reported them: advertisements, values, states, requests.
///
/// What a sequence stands for (a scan, a subscription) begins with the call that returns it, not with the first
/// iteration, so nothing is missed that happens in between. It ends when the loop ends, when the task is cancelled, and
/// when the sequence and its iterators are released:
///
/// ```swift
/// for try await data in peripheral.values(for: characteristic) {  // subscribes
///     guard data.first != 0 else { break }                        // unsubscribes
/// }
/// ```
///
/// Several tasks may iterate one sequence. Each gets every element from when its iterator was made; the first one
/// from when the sequence was made.
///
/// Elements for which no task waits are kept in a buffer: all values of characteristics, unless a `bufferSize` is
/// given, and 256 of everything else. If it is full, the oldest one is dropped, and counted in ``droppedCount``.
public struct EventSequence<Element: Sendable, Failure: Error>: AsyncSequence, Sendable {
    private let source: EventSource<Element, Failure>

    /// - Parameters:
    ///   - first: How the first consumer subscribes, if not like the others. Called at once.
    ///   - subscribe: How a consumer subscribes.
    init(
        first: ((DropCounter) -> EventSubscription<Element, Failure>)? = nil,
        _ subscribe: @escaping @Sendable (DropCounter) -> EventSubscription<Element, Failure>
    ) {
        source = EventSource(first ?? subscribe, subscribe)
    }

    /// How many elements were dropped because a consumer did not keep up, of all iterators together.
    public var droppedCount: Int { source.dropped.value.withLock { $0 } }

    /// Begins to receive. The first iterator takes over what has been received since the sequence was made.
    public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(subscription: source.subscription()) }

    /// One consumer's place in the sequence.
    public struct AsyncIterator: AsyncIteratorProtocol {
        let subscription: EventSubscription<Element, Failure>

        /// The next element; nil after the end, and when the task is cancelled.
        /// - Throws: Why no more elements come, once.
        public mutating func next(isolation actor: isolated (any Actor)? = #isolation) async throws(Failure) -> Element?
        {
            try await subscription.next(isolation: actor).get()
        }

        /// The next element; nil after the end, and when the task is cancelled.
        /// - Throws: Why no more elements come, once.
        public mutating func next() async throws(Failure) -> Element? {
            try await subscription.next(isolation: nil).get()
        }
    }
}

/// What the iterators of one sequence have dropped.
final class DropCounter: Sendable {
    let value = Mutex(0)
}

/// How consumers of a sequence subscribe, and the subscription that waits for the first of them.
private final class EventSource<Element: Sendable, Failure: Error>: Sendable {
    let dropped = DropCounter()
    private let subscribe: @Sendable (DropCounter) -> EventSubscription<Element, Failure>
    private let prepared: Mutex<EventSubscription<Element, Failure>?>

    init(
        _ first: (DropCounter) -> EventSubscription<Element, Failure>,
        _ subscribe: @escaping @Sendable (DropCounter) -> EventSubscription<Element, Failure>
    ) {
        self.subscribe = subscribe
        prepared = Mutex(first(dropped))
    }

    /// The prepared one goes to its consumer entirely: with it the subscription ends, even if the sequence lives on.
    func subscription() -> EventSubscription<Element, Failure> {
        let taken = prepared.withLock { prepared in
            let taken = prepared
            prepared = nil
            return taken
        }
        return taken ?? subscribe(dropped)
    }
}

/// One consumer's subscription. Its release ends it.
final class EventSubscription<Element: Sendable, Failure: Error>: Sendable {
    private typealias Answer = Result<Element?, Failure>
    private let mailbox: Mutex<Mailbox<Element, Failure, CheckedContinuation<Answer, Never>>>
    private let dropped: DropCounter
    private let once: Once<Element>?
    private let onEnd: Mutex<(@Sendable (ArraySlice<Element?>, Bool) -> Void)?>

    /// - Parameters:
    ///   - once: What the consumer takes as its last element, if it is the first to take it.
    ///   - onEnd: Called once, on any thread, when the consumer needs nothing more: with what it was sent and has not
    ///     taken (none of it is nil), and whether it has taken anything.
    init(
        bufferSize: Int, dropped: DropCounter, once: Once<Element>? = nil,
        onEnd: @escaping @Sendable (_ untaken: ArraySlice<Element?>, _ hasTaken: Bool) -> Void
    ) {
        mailbox = Mutex(Mailbox(limit: bufferSize))
        (self.dropped, self.once) = (dropped, once)
        self.onEnd = Mutex(onEnd)
    }

    deinit { end() }

    var isEnded: Bool { mailbox.withLock { $0.isEnded } }

    /// - Returns: Whether the consumer can take it: it has not ended.
    @discardableResult
    func send(_ element: Element) -> Bool {
        let (isOpen, sent) = mailbox.withLock { (!$0.isEnded, $0.send(element)) }
        if sent.hasDropped { dropped.value.withLock { $0 += 1 } }
        sent.waiter?.resume(returning: .success(element))
        return isOpen
    }

    /// The same for an element that may be older than some of those that wait.
    /// - Parameter isOlder: Whether one of these comes before it.
    /// - Returns: Whether the consumer can take it, and which one was dropped for it: itself, if it is the oldest.
    func insert(_ element: Element, behind isOlder: @Sendable (Element) -> Bool) -> (isOpen: Bool, dropped: Element?) {
        let (isOpen, sent) = mailbox.withLock { (!$0.isEnded, $0.insert(element, behind: isOlder)) }
        if sent.dropped != nil { dropped.value.withLock { $0 += 1 } }
        sent.waiter?.resume(returning: .success(element))
        return (isOpen, sent.dropped)
    }

    func finish(throwing failure: Failure?) {
        for (waiter, answer) in mailbox.withLock({ $0.finish(throwing: failure) }) {
            waiter.resume(returning: last(answer))
        }
    }

    /// At the end comes what only one consumer gets. One that has gone takes nothing.
    private func last(_ answer: Answer) -> Answer {
        guard let once, case .success(.none) = answer, !mailbox.withLock({ $0.isCancelled }) else { return answer }
        return .success(once.take())
    }

    func next(isolation actor: isolated (any Actor)?) async -> Result<Element?, Failure> {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                if let answer = mailbox.withLock({ $0.next(continuation) }) {
                    continuation.resume(returning: last(answer))
                }
            }
        } onCancel: {
            end()
        }
    }

    private func end() {
        let (untaken, hasTaken, waiters) = mailbox.withLock { ($0.untaken, $0.hasDelivered, $0.cancel()) }
        for waiter in waiters { waiter.resume(returning: .success(nil)) }
        let action = onEnd.withLock { action in
            let taken = action
            action = nil
            return taken
        }
        action?(untaken, hasTaken)
    }
}

/// The consumers of one kind of event. It does not keep them alive.
struct EventHub<Element: Sendable, Failure: Error> {
    private struct Weak {
        weak var subscription: EventSubscription<Element, Failure>?
    }
    private var subscriptions: [Weak] = []
    private var isClosed = false

    var isEmpty: Bool { subscriptions.isEmpty }

    mutating func add(_ subscription: EventSubscription<Element, Failure>) {
        if isClosed { return subscription.finish(throwing: nil) }
        subscriptions.append(Weak(subscription: subscription))
    }

    /// Forgets those that have ended.
    mutating func prune() { subscriptions.removeAll { $0.subscription?.isEnded ?? true } }

    func send(_ element: Element) {
        for each in subscriptions { each.subscription?.send(element) }
    }

    /// Sends an element that may be older than some of those that wait for the consumers.
    /// - Parameter isOlder: Whether one of these comes before it.
    /// - Returns: How many can take it, and what was dropped for it, once for each consumer: also itself.
    func insert(
        _ element: Element, behind isOlder: @Sendable (Element) -> Bool
    ) -> (takers: Int, dropped: [Element]) {
        let sent = subscriptions.compactMap { $0.subscription?.insert(element, behind: isOlder) }
        return (sent.count { $0.isOpen }, sent.compactMap { $0.dropped })
    }

    mutating func finish(throwing failure: Failure?) {
        for each in subscriptions { each.subscription?.finish(throwing: failure) }
        subscriptions = []
    }

    /// Nothing more happens: those who come later hear that at once.
    mutating func close() {
        isClosed = true
        finish(throwing: nil)
    }
}
