/// The operations that a characteristic declares. A hint: the peer may still refuse them.
/// - SeeAlso: Core Spec 5.4, Vol 3, Part G, 3.3.1.1.
public struct CBCharacteristicProperties: OptionSet, Sendable {
    /// Bits 0 to 7 as transmitted, bits 8 and 9 for local characteristics.
    public let rawValue: UInt

    /// Properties from their bits.
    public init(rawValue: UInt) { self.rawValue = rawValue }

    /// The value may be broadcast. Not allowed on local characteristics.
    public static let broadcast = Self(rawValue: 0x001)
    /// The value can be read.
    public static let read = Self(rawValue: 0x002)
    /// The value can be written without response.
    public static let writeWithoutResponse = Self(rawValue: 0x004)
    /// The value can be written with response.
    public static let write = Self(rawValue: 0x008)
    /// Notifications can be subscribed to; they are not acknowledged.
    public static let notify = Self(rawValue: 0x010)
    /// Indications can be subscribed to; the receiving system acknowledges them.
    public static let indicate = Self(rawValue: 0x020)
    /// Writes without response may carry a signature.
    public static let authenticatedSignedWrites = Self(rawValue: 0x040)
    /// There is an Extended Properties descriptor, 2900. Not allowed on local characteristics.
    public static let extendedProperties = Self(rawValue: 0x080)
    /// Only bonded centrals may subscribe to notifications. Local characteristics only.
    public static let notifyEncryptionRequired = Self(rawValue: 0x100)
    /// Only bonded centrals may subscribe to indications. Local characteristics only.
    public static let indicateEncryptionRequired = Self(rawValue: 0x200)
}
