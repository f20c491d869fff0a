/// Elements on their way to one consumer: those that wait in a bounded buffer, and the consumers that wait for one.
///
/// It does not resume any task itself but returns those that are to be resumed, each waiter once.
struct Mailbox<Element, Failure: Error, Waiter> {
    typealias Answer = Result<Element?, Failure>

    private let limit: Int
    private var elements: [Element?] = []
    private var first = 0
    private var waiting: [Waiter] = []
    private var end: Answer?
    /// Whether the consumer has taken any.
    private(set) var hasDelivered = false
    private(set) var isCancelled = false

    /// - Parameter limit: How many elements wait at most, at least one. A further one replaces the oldest.
    init(limit: Int) { self.limit = max(1, limit) }

    var isEnded: Bool { end != nil }
    private var count: Int { elements.count - first }
    /// The elements that wait, as they are: without a copy.
    var untaken: ArraySlice<Element?> { elements[first...] }

    /// - Returns: Who gets the element now, and whether another one was dropped for it.
    mutating func send(_ element: Element) -> (waiter: Waiter?, hasDropped: Bool) {
        guard end == nil else { return (nil, false) }
        if !waiting.isEmpty {
            hasDelivered = true
            return (waiting.removeFirst(), false)
        }
        let isFull = count == limit
        if isFull { _ = takeFirst() }
        elements.append(element)
        return (nil, isFull)
    }

    /// The same for an element that may be older than some of those that wait.
    /// - Parameter isOlder: Whether one of these comes before it.
    /// - Returns: Who gets the element now, and which one was dropped for it: itself, if it is the oldest.
    mutating func insert(_ element: Element, behind isOlder: (Element) -> Bool) -> (waiter: Waiter?, dropped: Element?)
    {
        guard end == nil else { return (nil, nil) }
        if !waiting.isEmpty {
            hasDelivered = true
            return (waiting.removeFirst(), nil)
        }
        let last = elements[first...].lastIndex { $0.map(isOlder) == true }
        elements.insert(element, at: last.map { $0 + 1 } ?? first)
        return (nil, count > limit ? takeFirst() : nil)
    }

    /// - Returns: The answer; nil if it comes later.
    mutating func next(_ waiter: Waiter) -> Answer? {
        if count > 0 {
            hasDelivered = true
            return .success(takeFirst())
        }
        if let end {
            // An error is reported once, as sequences do.
            self.end = .success(nil)
            return end
        }
        waiting.append(waiter)
        return nil
    }

    /// No more elements come. Those in the buffer are still delivered.
    /// - Returns: Who gets which answer; an error goes to one of them.
    mutating func finish(throwing failure: Failure?) -> [(Waiter, Answer)] {
        guard end == nil else { return [] }
        let answer = failure.map { Answer.failure($0) } ?? .success(nil)
        end = waiting.isEmpty ? answer : .success(nil)
        defer { waiting = [] }
        return waiting.enumerated().map { ($1, $0 == 0 ? answer : .success(nil)) }
    }

    /// The consumer is gone, or its task is cancelled.
    mutating func cancel() -> [Waiter] {
        (end, isCancelled) = (.success(nil), true)
        (elements, first) = ([], 0)
        defer { waiting = [] }
        return waiting
    }

    private mutating func takeFirst() -> Element? {
        let element = elements[first]
        elements[first] = nil
        first += 1
        // Seldom enough that an element costs the same, however many wait.
        if first == elements.count || first > 32 && first > elements.count / 2 {
            elements.removeFirst(first)
            first = 0
        }
        return element
    }
}
