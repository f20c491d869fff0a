public import Dispatch

/// One timer for all deadlines of a connection. It is set again only for an earlier deadline, so a call that is
/// answered in time costs no system call for its deadline; it is inactive when there is no deadline.
struct DeadlineTimer {
    private let timer: QueueTimer
    private var next: DispatchTime?
    /// How often it was put off in a row.
    private var putOffs = 0
    /// Called on the queue when the earliest deadline may have passed. Call ``hasFired()``, and set the next one with
    /// ``mustFire(by:)``.
    var onDue: (() -> Void)? {
        didSet {
            let handler = onDue
            timer.setHandler { handler?() }
        }
    }

    init(queue: DispatchQueue) {
        timer = QueueTimer(queue: queue)
    }

    mutating func hasFired() { next = nil }

    /// A deadline that has passed is not put off, although its call waits for the queue.
    mutating func mustFire(by deadline: DispatchTime) {
        if let next, next <= deadline { return }
        next = deadline
        timer.set(deadline, leeway: .milliseconds(1))
    }

    /// Fires again soon, if something has arrived that may be an answer, and is handled by then.
    /// - Returns: Whether it does: not for longer than a second.
    mutating func putOff(if hasInput: Bool) -> Bool {
        putOffs = hasInput && putOffs < 100 ? putOffs + 1 : 0
        guard putOffs > 0 else { return false }
        mustFire(by: DispatchQueue.now.later(by: .milliseconds(10)))
        return true
    }

    func stop() { timer.cancel() }
}

extension DispatchTime {
    /// `duration` from now; immediately if it is negative. Durations beyond 292 years saturate.
    ///
    /// Uses `UInt64`, not `DispatchTimeInterval`, which holds an `Int`: 32 bits of nanoseconds end after 2 s.
    public func later(by duration: Duration) -> DispatchTime {
        let (seconds, attoseconds) = duration.components
        guard duration > .zero else { return self }
        guard seconds < Int64.max / 1_000_000_000 else { return .distantFuture }
        let nanoseconds = UInt64(seconds * 1_000_000_000 + attoseconds / 1_000_000_000)
        let (sum, isTooLate) = uptimeNanoseconds.addingReportingOverflow(nanoseconds)
        return isTooLate ? .distantFuture : DispatchTime(uptimeNanoseconds: sum)
    }
}
