/// What the peer's count says about the rung that is measured. Pure.
struct LadderCount: Equatable {
    enum Verdict: Equatable {
        /// Nothing was sent yet: send.
        case begin
        /// Everything has arrived.
        case complete
        /// Some are still on their way: ask again. `isProgress`: something has arrived since it was asked last.
        case ask(isProgress: Bool)
        /// Nothing can be sent, however often it is begun.
        case stuck
    }

    /// How often a rung is begun in which nothing can be sent.
    private static let attempts = 3

    /// What it was before the rung.
    private var before = 0
    private var last = 0
    private var begun = 0

    /// - Parameter moved: The number of bytes that were sent in this rung.
    mutating func take(_ counted: Int, moved: Int) -> Verdict {
        guard moved > 0 else {
            (before, last, begun) = (counted, counted, begun + 1)
            return begun <= Self.attempts ? .begin : .stuck
        }
        defer { last = counted }
        // None of them is negative, whatever a peer says.
        return counted - before >= moved ? .complete : .ask(isProgress: counted != last)
    }
}
