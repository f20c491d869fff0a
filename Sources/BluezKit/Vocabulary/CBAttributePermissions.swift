/// The access that centrals have to a local characteristic's value.
/// - SeeAlso: Apple, `CBAttributePermissions`; Core Spec 5.4, Vol 3, Part F, 3.2.5.
public struct CBAttributePermissions: OptionSet, Sendable {
    /// The permissions as bits.
    public let rawValue: UInt

    /// Permissions from their bits.
    public init(rawValue: UInt) { self.rawValue = rawValue }

    /// It may be read.
    public static let readable = Self(rawValue: 0x01)
    /// It may be written. The spelling is Apple's.
    public static let writeable = Self(rawValue: 0x02)
    /// It may be read over an encrypted link.
    public static let readEncryptionRequired = Self(rawValue: 0x04)
    /// It may be written over an encrypted link.
    public static let writeEncryptionRequired = Self(rawValue: 0x08)
}
