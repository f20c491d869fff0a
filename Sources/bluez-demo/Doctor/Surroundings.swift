import BluezKit

/// The environment in which this program runs. Facts only; ``DoctorReport`` interprets them.
struct Surroundings: Equatable, Sendable {
    /// Why the bus cannot be used.
    enum BusFailure: Equatable, Sendable {
        case unreachable(message: String)
        /// It is there, and does not take this program, of this user.
        case refused(message: String, user: User)
    }

    /// The number of a user, here and outside of the user namespace.
    struct User: Equatable, Sendable {
        var here: UInt32
        var outside: UInt32
    }

    /// The state of `org.bluez` on the bus.
    enum Daemon: Equatable, Sendable {
        case running
        /// It is not running, and the bus cannot start it.
        case notRunning(message: String)
        /// The policy of the bus denies this user access.
        case denied(message: String)
        /// It owns the name but does not answer.
        case silent(message: String)
    }

    struct Adapter: Equatable, Sendable {
        var name: String
        var address: String?
        var isPowered = false
        /// `off-blocked` and similar values; not in every version of BlueZ.
        var powerState: String?
        /// Nil: unknown.
        var roles: [String]?
        var hasGattManager = false
        var hasAdvertisingManager = false
        var experimentalFeatures = 0
        /// BlueZ's version, as announced to other devices. Nil: it is configured to announce something else.
        var daemonVersion: BlueZVersion?
    }

    struct RFKill: Equatable, Sendable {
        var name: String
        var isSoftBlocked: Bool
        var isHardBlocked: Bool
    }

    enum SocketFamily: Equatable, Sendable {
        case available
        case refused(message: String)
    }

    struct KeeperFindings: Equatable, Sendable {
        enum Process: Equatable, Sendable {
            case none
            case running(managers: Int)
            /// It has another version, or does not answer.
            case unusable(message: String)
        }

        /// Nil: `XDG_RUNTIME_DIR` is not set.
        var socket: String?
        /// Nil: there is none.
        var program: String?
        var process = Process.none
        /// The directory of the socket, if others can put one there.
        var sharedDirectory: String?
    }

    var busAddress = ""
    /// By `DBUS_SYSTEM_BUS_ADDRESS`.
    var isBusChosenByEnvironment = false
    /// Nil: the bus answers.
    var busFailure: BusFailure?
    /// Nil: not queried, because there is no bus.
    var daemon: Daemon?
    var daemonVersion: BlueZVersion?
    var runsExperimental = false
    var isDaemonInstalled = true
    /// Nil: unknown.
    var adapters: [Adapter]?
    /// The value of `--adapter`, or else of `BLUEZKIT_ADAPTER`.
    var chosenAdapter: AdapterChoice?
    var isChosenByEnvironment = false
    /// Nil: unknown.
    var rfkill: [RFKill]? = []
    /// Nil: not tried.
    var sockets: SocketFamily?
    /// Nil: not examined.
    var keeper: KeeperFindings?
    var isContainer = false
    /// Whether services are systemd's.
    var hasSystemd = true
    /// Nil: it does not say.
    var kernel: LinuxVersion?
}
