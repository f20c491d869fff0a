/// The versions of BlueZ that the simulator imitates. Between two of them nothing changed that the simulator has.
public enum SimulatorVersion: String, CaseIterable, Comparable, Sendable {
    /// Debian 12.
    case v5_66 = "5.66"
    /// Values of 512 bytes can be written to an application. A discovery filter with the transport alone is none
    /// (5.67).
    case v5_72 = "5.72"
    /// Each subscriber of an application's characteristic has a socket (5.76), and adapters have `Connectable`. A
    /// device may stay although RemoveDevice has been answered (5.73).
    case v5_79 = "5.79"
    /// Debian 13. The socket tells of confirmed indications (5.80), and a bond is signalled after the answer that it
    /// was needed for.
    case v5_82 = "5.82"
    /// A signal tells why a link ended.
    case v5_83 = "5.83"
    /// A refused `AcquireNotify` is answered (5.84), and a client may leave the bus with the socket of one.
    case v5_86 = "5.86"
    /// It crashes at the first advertisement with services that is heard in a discovery with services.
    case v5_87 = "5.87"

    /// Whether `left` is the earlier version.
    public static func < (left: Self, right: Self) -> Bool { left.minor < right.minor }

    private var minor: Int { Int(rawValue.dropFirst(2)) ?? 0 }

    /// As an adapter's `Modalias` has it.
    var modalias: String { "usb:v1D6Bp0246d05" + String(minor, radix: 16) }
}
