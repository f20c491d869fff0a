/// Passes the first of many similar events, and then one a minute, for each source. Pure: the caller provides the time.
struct FloodGate {
    private struct Source {
        var last: ContinuousClock.Instant
        var withheld = 0
    }

    /// A program can use ever new names; those beyond this number count as one source.
    static let sourceLimit = 64

    let interval: Duration
    private var sources: [String: Source] = [:]

    init(interval: Duration = BlueZTiming.Log().repetition) { self.interval = interval }

    /// An event from `source`.
    /// - Returns: Nil: suppress it. Otherwise the number of events suppressed since the last one that passed.
    mutating func admit(_ source: String, at now: ContinuousClock.Instant) -> Int? {
        if sources[source] == nil, sources.count >= Self.sourceLimit {
            // Also those of which something is withheld: a program that has left the bus does not come again.
            sources = sources.filter { now - $0.value.last < interval }
        }
        let name = sources[source] != nil || sources.count < Self.sourceLimit ? source : ""
        guard var known = sources[name] else {
            sources[name] = Source(last: now)
            return 0
        }
        guard now - known.last >= interval else {
            known.withheld += 1
            sources[name] = known
            return nil
        }
        sources[name] = Source(last: now)
        return known.withheld
    }
}
