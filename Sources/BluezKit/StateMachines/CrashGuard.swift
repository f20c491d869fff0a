import BluezDBus
import Dispatch

/// Whether bluetoothd seems to crash of scans with services: it has ended right after it was asked for one, and so
/// again the next time. An app that resumes would ask for the same at each start of bluetoothd, which would never stay
/// up for any program. From then on it is asked for all devices. Decides; calls nothing.
struct CrashGuard {
    private let timing: BlueZTiming.Daemon
    /// When bluetoothd was first asked for a scan with services, since its start. Not the last time: an app that scans
    /// again and again would make every restart look like a crash.
    private var asked: DispatchTime?
    /// How many ends in a row came soon after that.
    private var crashes = 0

    init(timing: BlueZTiming.Daemon = BlueZTiming.Daemon()) { self.timing = timing }

    /// Whether services are left out.
    var avoidsFilters: Bool { crashes >= 2 }

    mutating func askedForFilter(at now: DispatchTime) { asked = asked ?? now }

    /// The connection to the bus is gone: whether bluetoothd has ended is not known.
    mutating func forget() { asked = nil }

    /// bluetoothd has ended.
    /// - Returns: Whether services are left out from now on.
    mutating func daemonEnded(at now: DispatchTime) -> Bool {
        guard !avoidsFilters else { return false }
        crashes = asked.map { $0.later(by: timing.crash) >= now } ?? false ? crashes + 1 : 0
        asked = nil
        return avoidsFilters
    }
}
