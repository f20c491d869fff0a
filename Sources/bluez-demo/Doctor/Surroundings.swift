/// What was found where this program runs. Facts only; ``DoctorReport`` says what they mean.
struct Surroundings: Equatable, Sendable {
    /// What the bus says about `org.bluez`.
    enum Daemon: Equatable, Sendable {
        case running
        /// It does not run, and the bus cannot start it.
        case notRunning(message: String)
        /// The policy of the bus does not let this user talk to it.
        case denied(message: String)
        /// It has the name but does not answer.
        case silent(message: String)
    }

    struct Adapter: Equatable, Sendable {
        var name: String
        var address: String?
        var isPowered = false
        /// `off-blocked` and the like; not in every version of BlueZ.
        var powerState: String?
        /// Nil: not told.
        var roles: [String]?
        var hasGattManager = false
        var hasAdvertisingManager = false
        var experimentalFeatures = 0
        /// BlueZ's, as it tells others by radio. Nil: it is configured to tell something else.
        var daemonVersion: Version?
    }

    struct Version: Equatable, Comparable, Sendable, CustomStringConvertible {
        var major: Int
        var minor: Int
        var description: String { "\(major).\(minor)" }
        static func < (left: Version, right: Version) -> Bool {
            (left.major, left.minor) < (right.major, right.minor)
        }
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

    var busAddress = ""
    /// Nil: the bus answers.
    var busError: String?
    /// Nil: not asked, as there is no bus.
    var daemon: Daemon?
    var daemonVersion: Version?
    var runsExperimental = false
    var isDaemonInstalled = true
    /// Nil: not told.
    var adapters: [Adapter]?
    /// What the user asked for with `--adapter`.
    var chosenAdapter: String?
    var rfkill: [RFKill] = []
    /// Nil: not tried.
    var sockets: SocketFamily?
    var isContainer = false
}

extension Surroundings.Version {
    /// From an adapter's `Modalias`: `usb:v1D6Bp0246d0542` is BlueZ (Linux Foundation, 0246), version 5.66.
    init?(modalias: String) {
        let prefix = "usb:v1D6Bp0246d"
        let digits = modalias.dropFirst(prefix.count)
        guard modalias.hasPrefix(prefix), digits.count == 4, digits.allSatisfy(\.isHexDigit),
            let number = UInt16(digits, radix: 16)
        else { return nil }
        (major, minor) = (Int(number >> 8), Int(number & 0xFF))
    }
}
