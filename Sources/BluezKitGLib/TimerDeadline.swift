/// When GLib must run the main run loop for its next timer. Timers have dates of the wall clock, which may be set;
/// GLib waits by the monotonic clock. So a date is converted once, when it is first seen.
struct TimerDeadline {
    /// Seconds since 2001; 0: no timer.
    private var date = 0.0
    /// By the monotonic clock, in microseconds; nil: no timer.
    private(set) var time: Int64?
    /// Until the next attempt if the run loop finds its timer not due, in microseconds.
    private var pause = firstPause

    private static let firstPause: Int64 = 1_000
    private static let longestPause: Int64 = 1_000_000
    /// A year: all that is later is the same, and no number overflows.
    private static let farthest = 365 * 86_400.0

    /// The next timer is due at `date`, and it is `now`.
    mutating func update(date: Double, now: Double, monotonic: Int64) {
        guard date != self.date else { return }
        self.date = date
        pause = Self.firstPause
        time = date == 0 ? nil : monotonic + Int64(min(max(date - now, 0), Self.farthest) * 1e6)
    }

    /// The run loop has run, and `date` is the date of its next timer now. If that is still the same one, it was not
    /// due by the run loop's own clock, and the next attempt waits: a loop must not spin.
    mutating func didRun(date: Double, now: Double, monotonic: Int64) {
        guard date == self.date, date != 0 else { return update(date: date, now: now, monotonic: monotonic) }
        time = monotonic + pause
        pause = min(pause * 2, Self.longestPause)
    }
}
