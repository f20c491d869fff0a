public import BluezKit

/// The Immediate Alert service, 1802: a central writes a level without response, and the device alerts. BluezKit
/// addition.
/// - SeeAlso: Bluetooth SIG, Immediate Alert Service 1.0.
public enum ImmediateAlert: ServiceProfile {
    /// 1802.
    public static let uuid = CBUUID(string: "1802")
    /// The level.
    public static let characteristics = [ProfileCharacteristic(AlertLevel.self, .writeWithoutResponse)]
}

/// The Link Loss service, 1803: how the device is to alert when the link is lost. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Link Loss Service 1.0.
public enum LinkLoss: ServiceProfile {
    /// 1803.
    public static let uuid = CBUUID(string: "1803")
    /// The level.
    public static let characteristics = [ProfileCharacteristic(AlertLevel.self, [.read, .write])]
}

/// The Tx Power service, 1804. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Tx Power Service 1.0.
public enum TxPower: ServiceProfile {
    /// 1804.
    public static let uuid = CBUUID(string: "1804")
    /// The level.
    public static let characteristics = [ProfileCharacteristic(TxPowerLevel.self, .read)]
}

/// The server side of ``ImmediateAlert``. BluezKit addition.
public typealias ImmediateAlertService = ProfileService<ImmediateAlert>
/// The server side of ``LinkLoss``. BluezKit addition.
public typealias LinkLossService = ProfileService<LinkLoss>
/// The server side of ``TxPower``. BluezKit addition.
public typealias TxPowerService = ProfileService<TxPower>

/// How loudly a device alerts, characteristic 2A06. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, "Alert Level".
public enum AlertLevel: UInt8, EnumeratedValue, StructuredValue {
    /// A level.
    case noAlert, mild, high

    /// 2A06.
    public static let uuid = CBUUID(string: "2A06")

    /// No alert.
    public init() { self = .noAlert }
}

/// The power with which a device transmits, characteristic 2A07. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Tx Power Service 1.0, 3.1; GATT Specification Supplement, "Tx Power Level".
public struct TxPowerLevel: StructuredValue, Hashable {
    /// 2A07.
    public static let uuid = CBUUID(string: "2A07")

    /// In dBm, -100 to 20.
    public var dBm: Int8 = 0

    /// 0 dBm.
    public init() {}

    /// The field.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.field("Tx power level", &dBm, in: -100...20)
    }
}
