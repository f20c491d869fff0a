/// Notices a scan that runs and brings nothing: some controllers, and some versions of BlueZ, fall silent until they
/// are restarted. But silence may be true, so what is done about it gets stronger only step by step, and ends. Pure.
struct ScanWatch {
    enum Action: Equatable {
        case startTimer(Duration), stopTimer
        /// After this, see whether the discovery that has just begun has heard anything (``firstTimerFired()``).
        case startFirstTimer(Duration)
        /// Stop discovery, and start it again as it is.
        case startAgain
        /// Stop discovery, and start it again, for every device (``isUnfiltered``).
        case restart
        /// There are devices, so back to what the scans want.
        case restoreFilter
        /// Switch Bluetooth off and on, for every program, if this one may.
        case powerCycle
    }

    /// How long nothing at all must be heard for the next step.
    var window: Duration
    /// How long a discovery that has just begun may hear nothing.
    var firstWindow: Duration
    /// Bluetooth was switched off and on, and nothing was heard since: doing so again would not help.
    var hasPowerCycled = false
    /// How many silent windows let the next restart be without a filter, after one that was not justified: more for a
    /// filter, which is likely to be what makes it silent.
    var windowsBeforeUnfiltered = 1

    private var isScanning = false
    private var hasHeard = false
    private var silentWindows = 0
    /// Of the discovery that runs.
    private var hasHeardSinceStart = false
    /// It was started again early, and nothing was heard since: it is quiet here.
    private var hasStartedAgain = false

    init(timing: BlueZTiming.Scan = BlueZTiming.Scan()) {
        (window, firstWindow) = (timing.silence, timing.firstSilence)
    }

    /// Whether to listen to every device: BlueZ says nothing of those that a filter leaves out, so that a filtered scan
    /// may be silent among many.
    var isUnfiltered: Bool { silentWindows > 0 }

    mutating func scan(_ scans: Bool) -> [Action] {
        guard scans != isScanning else { return [] }
        reset()
        isScanning = scans
        return [scans ? .startTimer(window) : .stopTimer]
    }

    /// Anything was received, of any device.
    mutating func hear() {
        (hasHeard, hasPowerCycled) = (true, false)
        (hasHeardSinceStart, hasStartedAgain) = (true, false)
    }

    /// BlueZ has begun to scan. With Linux 6.12 and later, what begins while the computer is asleep may hear nothing
    /// when it has woken up, and nothing tells that it did: it is started again once, much sooner than one that did
    /// hear.
    mutating func began() -> [Action] {
        hasHeardSinceStart = false
        return isScanning && !hasStartedAgain ? [.startFirstTimer(firstWindow)] : []
    }

    mutating func firstTimerFired() -> [Action] {
        guard isScanning, !hasHeardSinceStart, !hasStartedAgain else { return [] }
        hasStartedAgain = true
        return [.startAgain]
    }

    mutating func timerFired() -> [Action] {
        guard isScanning else { return [] }
        let wasUnfiltered = isUnfiltered
        silentWindows =
            !hasHeard ? silentWindows + 1 : wasUnfiltered ? 1 - windowsBeforeUnfiltered : min(silentWindows, 0)
        hasHeard = false
        let step: [Action] =
            switch silentWindows {
            case ...0: wasUnfiltered ? [.restoreFilter] : []
            case 1: [.restart]
            case 2: hasPowerCycled ? [] : [.powerCycle]
            default: []
            }
        return step + [.startTimer(window)]
    }

    /// Bluetooth is not on: no scan runs. What was tried without success is remembered.
    mutating func reset() {
        (isScanning, hasHeard, silentWindows, windowsBeforeUnfiltered) = (false, false, 0, 1)
        (hasHeardSinceStart, hasStartedAgain) = (false, false)
    }
}
