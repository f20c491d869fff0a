/// How long to let signals come together before they are received, where they come faster than 4,000 in a second:
/// waking up costs several times as much as handling one. One link does not bring so many, so what it brings is never
/// late. No answer waits for the end of a pause, nor does what is known to be there. Times are in nanoseconds. Pure.
struct TurnPacing {
    /// The longest pause; signals are fast if at least two come in it.
    var longest: UInt64 = 500_000
    /// So many at once are enough: the share of waking up is small then.
    var enough: UInt64 = 16
    /// A flow in which nothing has come for this long has ended. A new one runs for that long before its first pause: a
    /// daemon that was held up sends what has come meanwhile in one go, and a socket for notifications has no room for
    /// all of it.
    var steadiness: UInt64 = 20_000_000
    /// A call this recent may be answered at any moment. Those that take longer, as a `Connect`, take seconds.
    private static let openCallGrace: UInt64 = 100_000_000

    private var arrivals = 0
    private var mustKeepGoing = false
    private var isPausing = false
    private var lastTurn: UInt64 = 0
    private var flowBegan: UInt64 = 0
    private var lastPause: UInt64 = 0
    private var lastCall: UInt64 = 0

    mutating func beginTurn() { (arrivals, mustKeepGoing, isPausing) = (0, false, false) }

    /// So many signals, or values by sockets, have come.
    mutating func receive(_ count: Int) { arrivals += count }

    /// The next turn must follow at once: an answer has come, or a call, whose caller waits; or more is there than one
    /// turn takes.
    mutating func keepGoing() { mustKeepGoing = true }

    /// - Returns: Whether a pause ends by that.
    mutating func call(at now: UInt64) -> Bool {
        defer { isPausing = false }
        lastCall = now
        return isPausing
    }

    /// - Returns: How long to pause: 0 unless more are likely to come within ``longest``, at the rate since the last
    ///   turn.
    mutating func endTurn(at now: UInt64, hasOpenCalls: Bool) -> UInt64 {
        defer { lastTurn = now }
        if now - lastTurn > steadiness { flowBegan = now }
        guard now - flowBegan >= steadiness, arrivals > 0, !mustKeepGoing,
            !hasOpenCalls || now - lastCall > Self.openCallGrace
        else { return 0 }
        let interval = (now - lastTurn) / UInt64(arrivals)
        guard interval > 0, interval <= longest / 2 else { return 0 }
        var pause = min(interval * enough, longest)
        // They may come much faster than that: dbus-broker hands over sixteen at a time, and the next ones when these
        // are taken. It would wait with all others, and end the connection of a program that takes too few.
        if arrivals >= enough { pause = min(pause, lastPause / 2) }
        lastPause = pause
        isPausing = pause > 0
        return pause
    }
}
