/// One manager's advertisement. Each attempt has a number, and an object of its own on the bus, so that the end of one
/// and the start of the next do not have to wait for each other. Pure.
struct AdvertiserStateMachine {
    enum Phase: Equatable { case off, starting, on }

    enum Action: Equatable {
        /// Export the advertisement and register it.
        case register(Int)
        /// Withdraw it, whether it is on air or not, and take its object off the bus.
        case unregister(Int)
        /// Answer `startAdvertising`: it is on air; BlueZ has refused; it was on already (AD-4).
        case confirm, fail, refuse
    }

    private(set) var phase = Phase.off
    private(set) var attempt = 0
    /// Starts that came while one was under way: answered after it.
    private var surplus = 0

    /// Whether the app still waits for that attempt.
    func isStarting(_ attempt: Int) -> Bool { phase == .starting && attempt == self.attempt }

    mutating func start() -> [Action] {
        switch phase {
        case .off:
            attempt += 1
            (phase, surplus) = (.starting, 0)
            return [.register(attempt)]
        case .starting:
            surplus += 1
            return []
        case .on: return [.refuse]
        }
    }

    mutating func replied(_ attempt: Int, _ succeeded: Bool) -> [Action] {
        guard isStarting(attempt) else { return succeeded ? [.unregister(attempt)] : [] }
        phase = succeeded ? .on : .off
        defer { surplus = 0 }
        let answer = succeeded ? Action.confirm : .fail
        return [answer] + [Action](repeating: succeeded ? .refuse : .fail, count: surplus)
    }

    /// The app does not want it any more, or Bluetooth is off. An attempt under way is undone when BlueZ has answered.
    mutating func stop() -> [Action] {
        defer { phase = .off }
        return phase == .on ? [.unregister(attempt)] : []
    }

    /// BlueZ has dropped it (`Release`), or is gone.
    mutating func lost() { phase = .off }
}
