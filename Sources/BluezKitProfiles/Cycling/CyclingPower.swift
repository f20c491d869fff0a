public import BluezKit

/// The Cycling Power service, 1818. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Cycling Power Service 1.1.
public enum CyclingPower: ServiceProfile {
    /// 1818.
    public static let uuid = CBUUID(string: "1818")
    /// Vector and control point are optional.
    public static let characteristics = [
        ProfileCharacteristic(CyclingPowerMeasurement.self, .notify),
        ProfileCharacteristic(CyclingPowerFeature.self, .read),
        ProfileCharacteristic(SensorLocation.self, .read),
        ProfileCharacteristic(CyclingPowerVector.self, .notify, isOptional: true),
        ProfileCharacteristic(CyclingPowerControlPoint.self, [.write, .indicate], isOptional: true),
    ]
}

/// The server side of ``CyclingPower``. BluezKit addition.
public typealias CyclingPowerService = ProfileService<CyclingPower>

/// Power and torque of a cyclist, characteristic 2A63. BluezKit addition.
///
/// A measurement with all fields has 35 bytes, which a notification has room for if the ATT_MTU is at least 38.
/// - SeeAlso: Bluetooth SIG, Cycling Power Service 1.1, 3.2; GATT Specification Supplement, "Cycling Power
///   Measurement".
public struct CyclingPowerMeasurement: StructuredValue, Hashable {
    /// 2A63.
    public static let uuid = CBUUID(string: "2A63")

    /// In W.
    public var power: Int16 = 0
    /// The part of one pedal in the power, in 0.5 %; nil: not included.
    public var pedalBalance: UInt8?
    /// ``pedalBalance`` is that of the left pedal; false: it is not known of which.
    public var isLeftBalance = false
    /// In 1/32 N m; it wraps. Nil: not included.
    public var accumulatedTorque: UInt16?
    /// The torque is measured at the crank, not at the wheel.
    public var isCrankTorque = false
    /// Of the wheel, with times in 1/2048 s; nil: not included.
    public var wheel: WheelRevolutions?
    /// Of the crank; nil: not included.
    public var crank: CrankRevolutions?
    /// The largest and smallest force in a revolution, in N; nil: not included.
    public var forces: Extremes?
    /// The largest and smallest torque in a revolution, in 1/32 N m; nil: not included.
    public var torques: Extremes?
    /// Where the force or torque is largest and smallest; nil: not included.
    public var angles: ExtremeAngles?
    /// The angle of the crank where the force changes to positive, in degrees; nil: not included.
    public var topDeadSpot: UInt16?
    /// The angle of the crank where the force changes to negative, in degrees; nil: not included.
    public var bottomDeadSpot: UInt16?
    /// In kJ; nil: not included.
    public var accumulatedEnergy: UInt16?
    /// The sensor asks for an offset compensation.
    public var needsOffsetCompensation = false

    /// 0 W.
    public init() {}

    /// The largest and smallest number in a revolution of the crank. BluezKit addition.
    public struct Extremes: FieldValue, Hashable {
        /// The largest.
        public var largest: Int16 = 0
        /// The smallest.
        public var smallest: Int16 = 0
        /// 0 and 0.
        public init() {}
        /// Reads or writes the fields, in the order in which they are transmitted.
        public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
            try fields.field("maximum \(name)", &largest)
            try fields.field("minimum \(name)", &smallest)
        }
    }

    /// Angles of the crank, in degrees, 0 to 4095. BluezKit addition.
    public struct ExtremeAngles: FieldValue, Hashable {
        /// Where it is largest.
        public var largest: UInt16 = 0
        /// Where it is smallest.
        public var smallest: UInt16 = 0
        /// 0° and 0°.
        public init() {}
        /// The fields: 12 bits each.
        public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
            var bits = UInt64(min(largest, 0xFFF)) | UInt64(min(smallest, 0xFFF)) << 12
            try fields.bits(name, &bits, bytes: 3)
            (largest, smallest) = (UInt16(bits & 0xFFF), UInt16(bits >> 12 & 0xFFF))
        }
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 2)
        fields.flag(1, &isLeftBalance)
        fields.flag(3, &isCrankTorque)
        fields.flag(12, &needsOffsetCompensation)
        try fields.field("power", &power)
        try fields.field("pedal power balance", &pedalBalance, ifBit: 0)
        try fields.field("accumulated torque", &accumulatedTorque, ifBit: 2)
        try fields.field("wheel revolutions", &wheel, ifBit: 4)
        try fields.field("crank revolutions", &crank, ifBit: 5)
        try fields.field("force", &forces, ifBit: 6)
        try fields.field("torque", &torques, ifBit: 7)
        try fields.field("extreme angles", &angles, ifBit: 8)
        try fields.field("top dead spot", &topDeadSpot, ifBit: 9)
        try fields.field("bottom dead spot", &bottomDeadSpot, ifBit: 10)
        try fields.field("accumulated energy", &accumulatedEnergy, ifBit: 11)
    }
}

/// Forces or torques in the course of a revolution, characteristic 2A64. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Cycling Power Service 1.1, 3.5; GATT Specification Supplement, "Cycling Power Vector".
public struct CyclingPowerVector: StructuredValue, Hashable {
    /// 2A64.
    public static let uuid = CBUUID(string: "2A64")

    /// The direction in which is measured. BluezKit addition.
    public enum Direction: UInt8, CaseIterable, Sendable {
        /// A direction.
        case unknown, tangential, radial, lateral
    }

    /// Of the crank; nil: not included.
    public var crank: CrankRevolutions?
    /// The angle of the crank at the first number, in degrees; nil: not included.
    public var firstAngle: UInt16?
    /// In N.
    public var forces: [Int16] = []
    /// In 1/32 N m. A vector has forces or torques; with both only the forces are transmitted.
    public var torques: [Int16] = []
    /// The direction in which is measured.
    public var direction = Direction.unknown

    /// Without forces and torques.
    public init() {}

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 1)
        var (isLow, isHigh) = (direction.rawValue & 1 != 0, direction.rawValue & 2 != 0)
        fields.flag(4, &isLow)
        fields.flag(5, &isHigh)
        direction = Direction(rawValue: (isLow ? 1 : 0) + (isHigh ? 2 : 0)) ?? .unknown
        try fields.field("crank revolutions", &crank, ifBit: 0)
        try fields.field("first angle", &firstAngle, ifBit: 1)
        try fields.list("force", &forces, ifBit: 2)
        if !forces.isEmpty { torques = [] }
        // With both flags the bytes could be either: the torques have none left.
        try fields.list("torque", &torques, ifBit: 3)
    }
}

/// What a power meter can do, characteristic 2A65. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, "Cycling Power Feature".
public struct CyclingPowerFeature: FlagSet, StructuredValue, Hashable {
    /// 2A65.
    public static let uuid = CBUUID(string: "2A65")
    /// The flags as bits.
    public let rawValue: UInt32
    /// Features from their bits.
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// It measures the balance of the pedals.
    public static let pedalBalance = Self(rawValue: 1 << 0)
    /// It accumulates the torque.
    public static let accumulatedTorque = Self(rawValue: 1 << 1)
    /// It counts the revolutions of the wheel.
    public static let wheelRevolutions = Self(rawValue: 1 << 2)
    /// It counts the revolutions of the crank.
    public static let crankRevolutions = Self(rawValue: 1 << 3)
    /// It finds the largest and smallest force or torque.
    public static let extremeMagnitudes = Self(rawValue: 1 << 4)
    /// It finds their angles.
    public static let extremeAngles = Self(rawValue: 1 << 5)
    /// It finds the dead spots.
    public static let deadSpots = Self(rawValue: 1 << 6)
    /// It accumulates the energy.
    public static let accumulatedEnergy = Self(rawValue: 1 << 7)
    /// It says when it needs an offset compensation.
    public static let offsetCompensationIndicator = Self(rawValue: 1 << 8)
    /// Its offset can be compensated.
    public static let offsetCompensation = Self(rawValue: 1 << 9)
    /// Fields of the measurement can be left out.
    public static let contentMasking = Self(rawValue: 1 << 10)
    /// It can be mounted at several locations.
    public static let multipleSensorLocations = Self(rawValue: 1 << 11)
    /// The length of the crank can be set.
    public static let crankLength = Self(rawValue: 1 << 12)
    /// The length of the chain can be set.
    public static let chainLength = Self(rawValue: 1 << 13)
    /// The weight of the chain can be set.
    public static let chainWeight = Self(rawValue: 1 << 14)
    /// The length of the span can be set.
    public static let spanLength = Self(rawValue: 1 << 15)
    /// It measures torques, not forces.
    public static let measuresTorque = Self(rawValue: 1 << 16)
    /// It knows the direction in which it measures.
    public static let direction = Self(rawValue: 1 << 17)
    /// It knows the date of its calibration.
    public static let factoryCalibrationDate = Self(rawValue: 1 << 18)
    /// It has an enhanced offset compensation.
    public static let enhancedOffsetCompensation = Self(rawValue: 1 << 19)
    /// It is not for use with another meter on the same bicycle.
    public static let notDistributed = Self(rawValue: 1 << 20)
    /// It can be used with another meter on the same bicycle.
    public static let distributed = Self(rawValue: 1 << 21)
    /// All of these.
    public static let assigned = Self(rawValue: 0x003F_FFFF)
}
