/// Whether a connection is of use, answers that it is there, and what keeps it on the bus.
struct BusPresence {
    var isOpen = true
    /// Whether it is on the bus, which may last a little longer.
    var isConnected = true
    /// As in ``Connection/uniqueName``.
    var uniqueName: String?
    var answersPings = true
    /// Whether it makes no more calls that bind it.
    var isLeaving = false
    /// The receivers of the unanswered calls that bind it (``MethodCall/bindsCaller``), by serial.
    var binding: [UInt32: String] = [:]
    /// Those that are asked whether they have handled them.
    var asked: [UInt32: String] = [:]
    /// What waits for that.
    var settled: [() -> Void] = []

    /// What is to be sent when it continues (``Connection/stop()``); nil: it is not stopped.
    var held: [() -> Void]?
    var isStopped: Bool { held != nil }

    var isBound: Bool { !binding.isEmpty }
    var unasked: Set<String> { Set(binding.values).subtracting(asked.values) }

    /// - Returns: What to do now.
    mutating func answered(_ serial: UInt32) -> [() -> Void] {
        guard isBound else { return [] }
        if let receiver = asked.removeValue(forKey: serial) {
            binding = binding.filter { $0.value != receiver }
        } else {
            binding[serial] = nil
        }
        return isBound ? [] : release()
    }

    /// Nothing is awaited any more.
    /// - Returns: What to do now.
    mutating func release() -> [() -> Void] {
        defer { (binding, asked, settled) = ([:], [:], []) }
        return settled
    }
}
