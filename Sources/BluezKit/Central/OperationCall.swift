import BluezDBus
import Dispatch

/// A call about a device that BlueZ may never answer. Confined to the bus queue.
///
/// An operation can be over before its call is answered: its attribute has gone, its link has ended, or its pairing was
/// refused.
final class OperationCall {
    let start = DispatchQueue.now
    /// Whether BlueZ has answered it.
    private(set) var isAnswered = false
    /// Whether it was not answered in time.
    private(set) var isOverdue = false
    /// Whether it counts as lost.
    var isCounted = false
    /// Whether its attribute was removed, with which BlueZ has let go of it.
    var isOfRemovedAttribute = false
    /// Called when it is answered or overdue after it was given up.
    var onEnd: (() -> Void)?

    func ended(_ error: BusError?) {
        switch error {
        case .timedOut: isOverdue = true
        case .disconnected where isCounted: break  // its connection was closed
        default: isAnswered = true
        }
        onEnd?()
        onEnd = nil
    }
}

/// The calls for the operations of one link.
struct OperationCalls {
    /// Over which they go; nil: there is no link, nor an attempt to make it.
    var lane: CallLane?
    /// What BlueZ was asked last for the running operation, unless it has answered.
    var open: OperationCall?
    /// Of operations that were over before BlueZ had answered.
    private(set) var abandoned: [OperationCall] = []
    /// Whether the link is being ended because BlueZ answers nothing on it any more: no other operation begins.
    var isHalted = false

    init(lane: CallLane? = nil) { self.lane = lane }

    mutating func abandon(_ call: OperationCall) {
        abandoned.removeAll(where: \.isAnswered)
        abandoned.append(call)
    }

    /// Whether the link should end so that its lane does: that has lost many calls, and some on this link (with those
    /// that were answered after their deadlines). However slowly: the bus counts them for as long as the lane lasts.
    func burdenLane(_ timing: BlueZTiming.Unanswered) -> Bool {
        guard let lane, lane.lost >= timing.lane else { return false }
        return abandoned.count { !$0.isAnswered } >= timing.calls || lane.lost >= timing.fullLane
    }
}
