/// Notices a scan that runs and brings nothing: some controllers, and some versions of BlueZ, fall silent until they are
/// started anew. But silence may be true, so what is done about it gets stronger only step by step, and ends. Pure.
struct ScanWatch {
    enum Action: Equatable {
        case startTimer(Duration), stopTimer
        /// Stop discovery, and start it again.
        case restart
        /// Switch Bluetooth off and on, for every program, if this one may.
        case powerCycle
    }

    /// How long nothing at all must be heard for the next step. Where there is any Bluetooth device near, something
    /// comes every few seconds.
    static var window: Duration { .seconds(60) }

    private var isScanning = false
    private var hasHeard = false
    private var silentWindows = 0

    mutating func scan(_ scans: Bool) -> [Action] {
        guard scans != isScanning else { return [] }
        (isScanning, hasHeard, silentWindows) = (scans, false, 0)
        return [scans ? .startTimer(Self.window) : .stopTimer]
    }

    /// Anything was received, of any device.
    mutating func hear() { hasHeard = true }

    mutating func timerFired() -> [Action] {
        guard isScanning else { return [] }
        silentWindows = hasHeard ? 0 : silentWindows + 1
        hasHeard = false
        let step: [Action] =
            switch silentWindows {
            case 1: [.restart]
            case 2: [.powerCycle]
            default: []
            }
        return step + [.startTimer(Self.window)]
    }
}
