/// The operations of one link, one after the other in call order (RW-1): BlueZ refuses a second one on the same
/// attribute, and answers to different attributes would overtake each other. Pure.
struct AttributeQueue<Operation> {
    /// One waiting or running operation.
    struct Entry {
        let id: Int
        let operation: Operation
    }

    private var waiting: [Entry] = []
    private var first = 0
    private var nextID = 0
    /// What is being done. Nothing else starts until ``finish(_:)``.
    private(set) var running: Entry?

    var isEmpty: Bool { running == nil && first == waiting.count }

    /// - Returns: What to start now, if nothing is running.
    mutating func add(_ operation: Operation) -> Entry? {
        waiting.append(Entry(id: nextID, operation: operation))
        nextID += 1
        return startNext()
    }

    /// - Returns: What to start next. Nothing if `id` is not what runs: its link had ended.
    mutating func finish(_ id: Int) -> Entry? {
        guard running?.id == id else { return nil }
        running = nil
        return startNext()
    }

    /// Whether anything that waits satisfies the predicate.
    func isWaiting(where predicate: (Operation) -> Bool) -> Bool {
        waiting[first...].contains { predicate($0.operation) }
    }

    /// Drops what `predicate` names, but for what is running: BlueZ finishes that.
    mutating func removeWaiting(where predicate: (Operation) -> Bool) {
        waiting.removeFirst(first)
        first = 0
        waiting.removeAll { predicate($0.operation) }
    }

    /// The link has ended: nothing of it will be answered.
    mutating func removeAll() {
        waiting.removeAll()
        first = 0
        running = nil
    }

    private mutating func startNext() -> Entry? {
        guard running == nil, first < waiting.count else { return nil }
        running = waiting[first]
        first += 1
        if first == waiting.count || first > 64 {
            waiting.removeFirst(first)
            first = 0
        }
        return running
    }
}
