import BluezDBus
import Dispatch

/// How many calls about one device BlueZ has left unanswered, and whether it is left alone because of that. Pure: the
/// caller provides the time.
struct CallBudget {
    private let timing: BlueZTiming.Unanswered
    /// When they were given up, since the last pause.
    private var lost: [DispatchTime] = []
    private var pauses = 0
    private var pauseEnd = DispatchTime(uptimeNanoseconds: 0)

    init(timing: BlueZTiming.Unanswered = BlueZTiming.Unanswered()) { self.timing = timing }

    /// A call was given up.
    mutating func lose(at now: DispatchTime) { lost.append(now) }

    /// It was answered after all.
    mutating func recover() { _ = lost.popLast() }

    /// - Returns: For how long no link is made; nil: one may be.
    mutating func pause(at now: DispatchTime) -> Duration? {
        forget(before: now)
        if lost.count >= timing.calls {
            pauseEnd = now.later(by: timing.pause.doubled(pauses, upTo: timing.longestPause))
            pauses += 1
            lost = []
        }
        guard pauseEnd > now else { return nil }
        return .nanoseconds(Int64(clamping: pauseEnd.uptimeNanoseconds - now.uptimeNanoseconds))
    }

    /// Whether nothing is held against the device any more.
    mutating func isFresh(at now: DispatchTime) -> Bool {
        forget(before: now)
        return lost.isEmpty && pauses == 0
    }

    /// The end of the last pause, or the last loss.
    var holdsUntil: DispatchTime { max(pauseEnd, lost.last ?? pauseEnd) }

    private mutating func forget(before now: DispatchTime) {
        lost.removeAll { $0.later(by: timing.window) <= now }
        if pauseEnd.later(by: timing.longestPause) <= now { pauses = 0 }
    }
}
