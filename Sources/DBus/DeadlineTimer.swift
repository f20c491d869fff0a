import Dispatch

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
    /// `time` later. Durations beyond 292 years saturate.
    static func + (time: DispatchTime, duration: Duration) -> DispatchTime {
        let (seconds, attoseconds) = duration.components
        guard seconds < Int64.max / 1_000_000_000 else { return .distantFuture }
        return time + DispatchTimeInterval.nanoseconds(Int(seconds * 1_000_000_000 + attoseconds / 1_000_000_000))
    }
}
