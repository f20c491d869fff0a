import Dispatch

/// Marks queues, so that code can tell whether it runs on one of them.
final class QueueMark: @unchecked Sendable {  // holds: a key never changes
    private let key = DispatchSpecificKey<Bool>()

    func mark(_ queue: DispatchQueue) { queue.setSpecific(key: key, value: true) }

    /// Whether this runs on a marked queue.
    var isHere: Bool { DispatchQueue.getSpecific(key: key) == true }
}
