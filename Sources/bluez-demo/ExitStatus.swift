/// The exit status of the program. Documented in Docs/DEMO.md.
enum ExitStatus: Int32 {
    case success = 0
    case failure = 1
    case usage = 2
    /// Bluetooth is not available: no daemon, no permission, no adapter, switched off.
    case unavailable = 3
    /// 128 plus the number of the signal, as in shells.
    case hungUp = 129, interrupted = 130, terminated = 143
}
