public import BluezKit

/// What a ``FitnessMachineRange`` is the range of. BluezKit addition.
public protocol FitnessMachineQuantity: Sendable {
    /// The type of the limits.
    associatedtype Limit: FieldValue & FixedWidthInteger
    /// The type of the increment.
    associatedtype Increment: FieldValue & FixedWidthInteger & UnsignedInteger
    /// The characteristic.
    static var range: CBUUID { get }
}

/// Which targets a machine accepts. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Fitness Machine Service 1.0, 4.11 to 4.15; GATT Specification Supplement, "Supported Speed
///   Range" and others.
public struct FitnessMachineRange<Quantity: FitnessMachineQuantity>: StructuredValue, Hashable {
    /// That of the quantity.
    public static var uuid: CBUUID { Quantity.range }

    /// The smallest target.
    public var minimum: Quantity.Limit = 0
    /// The largest target.
    public var maximum: Quantity.Limit = 0
    /// The smallest difference between two targets.
    public var increment: Quantity.Increment = 0

    /// Only 0.
    public init() {}

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        // As in FieldCoder.resistanceLevel.
        if Quantity.self == FitnessResistanceLevel.self, fields.isReading, fields.bytesLeft == 3 {
            let bytes = try fields.bytes("resistance levels", count: 3)
            (minimum, maximum) = (Quantity.Limit(bytes[0]), Quantity.Limit(bytes[1]))
            increment = Quantity.Increment(bytes[2])
            return
        }
        try fields.field("minimum", &minimum)
        try fields.field("maximum", &maximum)
        try fields.field("minimum increment", &increment)
    }
}

/// Speeds, in 0.01 km/h, characteristic 2AD4. BluezKit addition.
public enum FitnessSpeed: FitnessMachineQuantity {
    /// 0 to 655.35 km/h.
    public typealias Limit = UInt16
    /// At most 655.35 km/h.
    public typealias Increment = UInt16
    /// 2AD4.
    public static let range = CBUUID(string: "2AD4")
}

/// Inclinations, in 0.1 %, characteristic 2AD5. BluezKit addition.
public enum FitnessSlope: FitnessMachineQuantity {
    /// -3276.8 to 3276.7 %.
    public typealias Limit = Int16
    /// At most 6553.5 %.
    public typealias Increment = UInt16
    /// 2AD5.
    public static let range = CBUUID(string: "2AD5")
}

/// Resistance levels, characteristic 2AD6. BluezKit addition.
///
/// Numbers as transmitted: the Bluetooth SIG's documents disagree about the unit, and about the bytes. In 2017 it was
/// 0.1 in two bytes, or 1 in the data of bikes and rowers; since version 5 of the GATT Specification Supplement it is
/// 10 in one byte. Machines send two bytes, and mostly a number of steps.
public enum FitnessResistanceLevel: FitnessMachineQuantity {
    /// In two bytes; one byte is read as well.
    public typealias Limit = Int16
    /// In two bytes; one byte is read as well.
    public typealias Increment = UInt16
    /// 2AD6.
    public static let range = CBUUID(string: "2AD6")
}

/// Powers, in W, characteristic 2AD8. BluezKit addition.
public enum FitnessPower: FitnessMachineQuantity {
    /// -32768 to 32767 W.
    public typealias Limit = Int16
    /// At most 65535 W.
    public typealias Increment = UInt16
    /// 2AD8.
    public static let range = CBUUID(string: "2AD8")
}

/// Heart rates, in beats per minute, characteristic 2AD7. BluezKit addition.
public enum FitnessHeartRate: FitnessMachineQuantity {
    /// 0 to 255 beats per minute.
    public typealias Limit = UInt8
    /// At most 255 beats per minute.
    public typealias Increment = UInt8
    /// 2AD7.
    public static let range = CBUUID(string: "2AD7")
}

/// The speeds that a machine accepts, in 0.01 km/h, characteristic 2AD4. BluezKit addition.
public typealias SupportedSpeedRange = FitnessMachineRange<FitnessSpeed>
/// The inclinations that a machine accepts, in 0.1 %, characteristic 2AD5. BluezKit addition.
public typealias SupportedInclinationRange = FitnessMachineRange<FitnessSlope>
/// The resistance levels that a machine accepts, characteristic 2AD6. BluezKit addition.
public typealias SupportedResistanceLevelRange = FitnessMachineRange<FitnessResistanceLevel>
/// The powers that a machine accepts, in W, characteristic 2AD8. BluezKit addition.
public typealias SupportedPowerRange = FitnessMachineRange<FitnessPower>
/// The heart rates that a machine accepts, in beats per minute, characteristic 2AD7. BluezKit addition.
public typealias SupportedHeartRateRange = FitnessMachineRange<FitnessHeartRate>
