/// Objects that must be read, each once, and not too many at a time: others on this connection have calls to make, too.
struct PathQueue {
    private let limit: Int
    private var waiting: [String] = []
    private var all: Set<String> = []
    private var running = 0

    init(limit: Int = 32) { self.limit = limit }

    mutating func add(_ path: String) {
        if all.insert(path).inserted { waiting.append(path) }
    }

    /// Gone before it was read.
    mutating func remove(_ path: UnsafePointer<CChar>) {
        if !all.isEmpty { all.remove(String(cString: path)) }
    }

    mutating func next() -> String? {
        while running < limit, let path = waiting.popLast() {
            guard all.contains(path) else { continue }
            running += 1
            return path
        }
        return nil
    }

    /// Something is being asked that may add objects…
    mutating func questionAsked() { running += 1 }
    /// …and is answered: ask for ``next()``.
    mutating func questionAnswered() { running = max(0, running - 1) }

    /// Whether nothing waits and nothing is being read.
    var isEmpty: Bool { running == 0 && waiting.isEmpty }

    /// - Returns: Whether the answer is still wanted.
    mutating func finish(_ path: String) -> Bool {
        running = max(0, running - 1)
        return all.remove(path) != nil
    }
}
