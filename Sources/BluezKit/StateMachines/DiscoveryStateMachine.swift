/// What BlueZ should scan for: all scans of this process merged, since BlueZ knows one discovery for each bus
/// client. Decides; calls nothing.
struct DiscoveryStateMachine {
    /// What the scans ask for, merged.
    struct Filter: Equatable {
        /// UUIDs in BlueZ's spelling; nil: every device.
        var services: Set<String>?
        var wantsDuplicates: Bool

        /// What satisfies both.
        func merged(with other: Filter) -> Filter {
            var both: Set<String>?
            if let mine = services, let others = other.services { both = mine.union(others) }
            return Filter(services: both, wantsDuplicates: wantsDuplicates || other.wantsDuplicates)
        }
    }

    enum Action: Equatable {
        case setFilter(Filter), start, stop
        case startTimer(Duration)
        /// BlueZ has refused again and again, for seconds.
        case reportRefusal
    }

    enum Reply: Equatable {
        case done
        /// BlueZ does something else: try again later.
        case busy
        /// For another reason: try again later, unless it was to be ended, and there is none. If Bluetooth has been
        /// switched off, ``reset()`` ends that.
        case refused
    }

    private enum Step: Equatable { case none, setFilter(Filter), start(Filter), stop, wait }

    /// The first ones are everyday: BlueZ refuses while it does something else, or goes off. This is after three
    /// seconds.
    private static let reportedRefusal = 5

    private let timing: BlueZTiming.Scan
    private var wished: Filter?
    private var running: Filter?
    /// How many attempts to connect hold it back.
    private var pauses = 0
    private var mustRestart = false
    private var step = Step.none
    private var refusals = 0
    /// BlueZ was too busy to end the discovery, as it is while another filter takes effect. It may then discover
    /// without a client, as far as it knows, and a discovery with the same filter would hear nothing. Seen with 5.66
    /// (src/adapter.c, `stop_discovery_complete`).
    private var isStranded = false

    init(timing: BlueZTiming.Scan = BlueZTiming.Scan()) { self.timing = timing }

    /// Whether BlueZ scans for this process, as far as it has answered.
    var isRunning: Bool { running != nil }
    var isPaused: Bool { pauses > 0 }
    /// Whether BlueZ was told to leave some devices out.
    var isFiltered: Bool { wished?.services != nil }
    /// Whether BlueZ leaves some out now: it has answered, and is not being asked for something else.
    var filterIsInForce: Bool { step == .none && !isPaused && running?.services != nil && running == wished }

    /// - Parameter afresh: An app began a new scan: devices that BlueZ has reported already must be reported
    ///   again, which takes a restart.
    mutating func request(_ filter: Filter?, afresh: Bool = false) -> [Action] {
        wished = filter
        if afresh, running != nil || isStarting { mustRestart = true }
        return next()
    }

    /// Connecting goes faster while nothing scans.
    /// - Parameter pauses: An attempt begins; or one ends that has paused it.
    mutating func pause(_ pauses: Bool) -> [Action] {
        self.pauses += pauses ? 1 : -1
        return next()
    }

    mutating func replied(_ reply: Reply) -> [Action] {
        let finished = step
        step = .none
        switch (finished, reply) {
        case (.setFilter(let filter), .done):
            if running != nil {
                (running, refusals) = (filter, 0)
                return next()
            }
            if isPaused || wished == nil { return next() }
            step = .start(filter)
            return [.start]
        case (.start(let filter), .done):
            (running, refusals, isStranded) = (filter, 0, false)
        case (.stop, .refused) where isStranded:
            // It is there as long as another one is, with the same filter, which can be ended.
            step = .start(running ?? Filter(services: nil, wantsDuplicates: false))
            mustRestart = true
            return [.start]
        case (.stop, .done), (.stop, .refused): (running, refusals, isStranded) = (nil, 0, false)
        case (_, .busy), (_, .refused):
            if finished == .stop { (isStranded, mustRestart) = (true, true) }
            step = .wait
            refusals += 1
            return [.startTimer(timing.retry.doubled(refusals - 1, upTo: timing.longestRetry))]
                + (refusals == Self.reportedRefusal ? [.reportRefusal] : [])
        default: break
        }
        return next()
    }

    mutating func timerFired() -> [Action] {
        guard step == .wait else { return [] }
        step = .none
        return next()
    }

    /// BlueZ has begun to scan, as it was asked to before ``reset()``.
    mutating func startedLate() -> [Action] {
        running = running ?? Filter(services: nil, wantsDuplicates: false)
        mustRestart = true
        return next()
    }

    /// BlueZ has forgotten: it was restarted, or the adapter was off. Attempts end on their own.
    mutating func reset() {
        let pauses = pauses
        self = DiscoveryStateMachine(timing: timing)
        self.pauses = pauses
    }

    private var isStarting: Bool {
        switch step {
        case .setFilter, .start: true
        default: false
        }
    }

    private mutating func next() -> [Action] {
        guard step == .none else { return [] }
        let target = isPaused ? nil : wished
        if running != nil, target == nil || mustRestart {
            mustRestart = false
            step = .stop
            return [.stop]
        }
        mustRestart = false
        guard let target, target != running else { return [] }
        step = .setFilter(target)
        return [.setFilter(target)]
    }
}
