/// Requests that are made one after the other, so that an answer belongs to the request that was made, and a request
/// whose task is cancelled before its turn is never made. An event goes in, actions come out; every request that was
/// added is named in one `resume`.
struct RequestQueue<Content> {
    struct Request {
        let number: UInt64
        let content: Content
    }

    enum Action {
        /// Make it, and then say ``didMake()``; or do nothing if there is no room for it, and ``retry()`` later.
        case make(Request)
        case resume(Request, Outcome)
    }

    enum Outcome {
        /// With the event's answer.
        case answered
        /// The task was cancelled. If the request was made, its answer is awaited, but not reported.
        case cancelled
        /// With the event's error.
        case failed
    }

    private enum State { case due, made, abandoned }
    private var current: (request: Request, state: State)?
    private var waiting: [Request] = []

    /// The request that was made and is not answered, even if it was cancelled since.
    var made: Request? { current.flatMap { $0.state == .due ? nil : $0.request } }

    var isEmpty: Bool { current == nil && waiting.isEmpty }

    var all: [Request] { (current.map { [$0.request] } ?? []) + waiting }

    mutating func add(_ number: UInt64, _ content: Content) -> [Action] {
        waiting.append(Request(number: number, content: content))
        return next()
    }

    /// The request that was to be made has been made.
    mutating func didMake() { current?.state = .made }

    /// There may be room again for a request that is due.
    func retry() -> [Action] { current.map { $0.state == .due ? [.make($0.request)] : [] } ?? [] }

    /// The request that was made is answered, or has failed.
    mutating func didAnswer(_ outcome: Outcome = .answered) -> [Action] {
        guard let (request, state) = current else { return [] }
        current = nil
        return (state == .abandoned ? [] : [.resume(request, outcome)]) + next()
    }

    /// The task of a request was cancelled.
    mutating func cancel(_ number: UInt64) -> [Action] {
        if let (request, state) = current, request.number == number {
            switch state {
            case .due: return didAnswer(.cancelled)
            case .made:
                current?.state = .abandoned
                return [.resume(request, .cancelled)]
            case .abandoned: return []
            }
        }
        return drop(number, .cancelled)
    }

    /// What a request is about is gone. If it was made, perhaps no answer comes.
    mutating func fail(_ number: UInt64) -> [Action] {
        current?.request.number == number ? didAnswer(.failed) : drop(number, .failed)
    }

    /// No answers come any more.
    mutating func end() -> [Action] {
        let isAbandoned = current?.state == .abandoned
        let rest = isAbandoned ? waiting : all
        (current, waiting) = (nil, [])
        return rest.map { .resume($0, .failed) }
    }

    private mutating func drop(_ number: UInt64, _ outcome: Outcome) -> [Action] {
        guard let index = waiting.firstIndex(where: { $0.number == number }) else { return [] }
        return [.resume(waiting.remove(at: index), outcome)]
    }

    private mutating func next() -> [Action] {
        guard current == nil, !waiting.isEmpty else { return [] }
        let request = waiting.removeFirst()
        current = (request, .due)
        return [.make(request)]
    }
}
