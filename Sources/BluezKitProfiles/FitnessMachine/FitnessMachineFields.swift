/// What all machines measure of a training session. BluezKit addition.
public struct FitnessProgress: Hashable, Sendable {
    /// The energy since the beginning; nil: not included.
    public var energy: FitnessEnergy?
    /// In beats per minute; nil: not included.
    public var heartRate: UInt8?
    /// The metabolic equivalent, in 0.1; nil: not included.
    public var metabolicEquivalent: UInt8?
    /// Since the beginning, in seconds; nil: not included.
    public var elapsedTime: UInt16?
    /// Until the end, in seconds; nil: not included.
    public var remainingTime: UInt16?

    /// Nothing.
    public init() {}

    /// The five fields, of which the first is included by a flag, and the others by those after it.
    mutating func code(_ fields: inout FieldCoder, from bit: Int) throws(CharacteristicValueError) {
        try fields.field("expended energy", &energy, ifBit: bit)
        try fields.field("heart rate", &heartRate, ifBit: bit + 1)
        try fields.field("metabolic equivalent", &metabolicEquivalent, ifBit: bit + 2)
        try fields.field("elapsed time", &elapsedTime, ifBit: bit + 3)
        try fields.field("remaining time", &remainingTime, ifBit: bit + 4)
    }

    /// The flags of the fields, and their bytes.
    static func widths(from bit: Int) -> [(bit: Int, bytes: Int)] {
        [(bit, 5), (bit + 1, 1), (bit + 2, 1), (bit + 3, 2), (bit + 4, 2)]
    }
}

/// Energy, in kcal. BluezKit addition.
public struct FitnessEnergy: FieldValue, Hashable {
    /// Since the beginning; nil: not available.
    public var total: UInt16?
    /// In an hour; nil: not available.
    public var perHour: UInt16?
    /// In a minute; nil: not available.
    public var perMinute: UInt8?
    /// Not available.
    public init() {}
    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
        try fields.field("total energy", &total, unknown: 0xFFFF)
        try fields.field("energy per hour", &perHour, unknown: 0xFFFF)
        try fields.field("energy per minute", &perMinute, unknown: 0xFF)
    }
}

/// How steep it is. BluezKit addition.
public struct FitnessInclination: FieldValue, Hashable {
    /// In 0.1 %, positive uphill; nil: not available.
    public var inclination: Int16?
    /// The angle that is set, in 0.1°; nil: not available.
    public var rampAngle: Int16?
    /// Not available.
    public init() {}
    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
        try fields.field("inclination", &inclination, unknown: 0x7FFF)
        try fields.field("ramp angle setting", &rampAngle, unknown: 0x7FFF)
    }
}

/// What was climbed since the beginning. BluezKit addition.
public struct ElevationGain: FieldValue, Hashable {
    /// Uphill, in 0.1 m (treadmill) or m (cross trainer); nil: not available.
    public var positive: UInt16?
    /// Downhill, in the same unit; nil: not available.
    public var negative: UInt16?
    /// Not available.
    public init() {}
    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
        try fields.field("positive elevation gain", &positive, unknown: 0xFFFF)
        try fields.field("negative elevation gain", &negative, unknown: 0xFFFF)
    }
}

extension FieldCoder {
    /// A resistance level. What machines send and apps expect has two bytes, as in 2017; in the GATT Specification
    /// Supplement since version 5 it has one, which the length of the value shows.
    mutating func resistanceLevel(
        _ level: inout Int16?, ifBit bit: Int, before others: [(bit: Int, bytes: Int)]
    ) throws(CharacteristicValueError) {
        guard hasFlag(bit), endsAfter([(bit, 1)] + others) else {
            return try field("resistance level", &level, ifBit: bit)
        }
        var byte: UInt8?
        try field("resistance level", &byte, ifBit: bit)
        level = byte.map { Int16($0) }
    }
}
