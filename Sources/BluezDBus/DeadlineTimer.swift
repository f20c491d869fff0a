public import Dispatch

/// One timer for all deadlines of a connection. Set again only when an earlier one comes, so a call that is answered
/// in time costs no system call for its deadline; asleep when there is none.
struct DeadlineTimer {
    private let timer: any DispatchSourceTimer
    private var next: DispatchTime?
    /// Called on the queue when the earliest deadline may be over. Tell the next one by ``mustFire(by:)``.
    var onDue: (() -> Void)? {
        didSet {
            let handler = onDue
            timer.setEventHandler { handler?() }
        }
    }

    init(queue: DispatchQueue) {
        timer = DispatchSource.makeTimerSource(queue: queue)
        timer.schedule(deadline: .distantFuture)
        timer.activate()
    }

    mutating func mustFire(by deadline: DispatchTime) {
        if let next, next <= deadline, next > .now() { return }
        next = deadline
        timer.schedule(deadline: deadline, leeway: .milliseconds(1))
    }

    func stop() { timer.cancel() }
}

extension DispatchTime {
    /// `duration` later; at once if it is negative. Durations beyond 292 years saturate.
    ///
    /// In `UInt64`, not by `DispatchTimeInterval`, which holds an `Int`: 32 bits of nanoseconds end after 2 s.
    public func later(by duration: Duration) -> DispatchTime {
        let (seconds, attoseconds) = duration.components
        guard duration > .zero else { return self }
        guard seconds < Int64.max / 1_000_000_000 else { return .distantFuture }
        let nanoseconds = UInt64(seconds * 1_000_000_000 + attoseconds / 1_000_000_000)
        let (sum, isTooLate) = uptimeNanoseconds.addingReportingOverflow(nanoseconds)
        return isTooLate ? .distantFuture : DispatchTime(uptimeNanoseconds: sum)
    }
}
