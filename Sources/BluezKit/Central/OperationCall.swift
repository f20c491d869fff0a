import BluezDBus

/// A call about a device that BlueZ may never answer. Confined to the bus queue.
///
/// An operation can be over before its call is answered: its attribute has gone, its link has ended, or its pairing was
/// refused.
final class OperationCall {
    /// Whether BlueZ has answered it, however late.
    private(set) var isAnswered = false
    /// Called when it is answered after it was given up.
    var onLateAnswer: (() -> Void)?

    func answered(_ error: BusError?) {
        guard error != .timedOut, !isAnswered else { return }
        isAnswered = true
        onLateAnswer?()
        onLateAnswer = nil
    }
}

/// The calls for the operations of one link.
struct OperationCalls {
    /// Over which they go.
    let lane: CallLane?
    /// What BlueZ was asked last for the running operation, unless it has answered.
    var open: OperationCall?
    /// Of operations that were over before BlueZ had answered, and whose attribute is there.
    var abandoned: [OperationCall] = []
    /// Whether the link is being ended because BlueZ answers nothing on it any more: no other operation begins.
    var isHalted = false
}
