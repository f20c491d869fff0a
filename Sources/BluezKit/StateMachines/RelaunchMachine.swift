/// When a keeper starts an app again: once for all that happens until the app is there, after pauses if it dies at
/// once, and not without a limit. Pure; all times are of one clock.
struct RelaunchMachine {
    enum Action: Equatable {
        case start
        /// Call ``timerFired(at:)`` after this time.
        case wait(Duration)
        /// It has died too often.
        case giveUp
    }

    /// How long a process must last to count as one that works, and how long one may take until it is there.
    static let lasting: Duration = .seconds(10)
    static let starting: Duration = .seconds(60)
    static let mostFailures = 8

    private enum Phase { case running, dead, paused, starting, givenUp }
    private var phase = Phase.running
    private var failures = 0
    private var cameAt: Duration = .zero
    /// How often it was started, and when last.
    private(set) var starts = 0

    /// The app has made its manager.
    mutating func appCame(at now: Duration) { (phase, cameAt) = (.running, now) }

    /// - Parameter isDue: Whether something waits for its next process.
    mutating func appDied(at now: Duration, isDue: Bool) -> Action? {
        if now - cameAt >= Self.lasting { failures = 0 } else { failures += starts > 0 ? 1 : 0 }
        phase = .dead
        return isDue ? somethingHappened() : nil
    }

    /// Something that it is started for.
    mutating func somethingHappened() -> Action? {
        guard phase == .dead else { return nil }
        guard failures < Self.mostFailures else {
            phase = .givenUp
            return .giveUp
        }
        guard failures > 0 else { return start() }
        phase = .paused
        return .wait(.seconds(1) * (1 << (failures - 1)))
    }

    private mutating func start() -> Action {
        (phase, starts) = (.starting, starts + 1)
        return .start
    }

    /// It could not be started.
    mutating func startFailed() -> Action? {
        guard phase == .starting else { return nil }
        (phase, failures) = (.dead, failures + 1)
        return somethingHappened()
    }

    mutating func timerFired() -> Action? {
        switch phase {
        case .paused: return start()
        case .starting: return startFailed()
        default: return nil
        }
    }
}
