/// Whether a connection is of use, and what keeps it on the bus.
struct BusPresence {
    var isOpen = true
    /// Whether it is on the bus, which may last a little longer.
    var isConnected = true
    /// The unanswered calls that bind it (``MethodCall/bindsCaller``).
    var binding: Set<UInt32> = []
    /// What waits for their answers.
    var settled: [() -> Void] = []

    var isBound: Bool { !binding.isEmpty }

    /// - Returns: What to do now.
    mutating func answered(_ serial: UInt32) -> [() -> Void] {
        guard isBound, binding.remove(serial) != nil, !isBound else { return [] }
        return release()
    }

    /// Nothing is awaited any more.
    /// - Returns: What to do now.
    mutating func release() -> [() -> Void] {
        defer { (binding, settled) = ([], []) }
        return settled
    }
}
