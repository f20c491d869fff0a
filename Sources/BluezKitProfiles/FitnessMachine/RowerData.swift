public import BluezKit

/// What a rower measures, characteristic 2AD1. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Fitness Machine Service 1.0, 4.8; GATT Specification Supplement, "Rower Data".
public struct RowerData: FitnessMachineData {
    /// 2AD1.
    public static let uuid = CBUUID(string: "2AD1")

    /// The strokes; nil: the record continues.
    public var strokes: Strokes?
    /// Since the beginning, in 0.5 strokes per minute; nil: not included.
    public var averageStrokeRate: UInt8?
    /// In m, 24 bits; nil: not included.
    public var totalDistance: UInt32?
    /// In seconds for 500 m; nil: not included.
    public var pace: UInt16?
    /// Since the beginning, in seconds for 500 m; nil: not included.
    public var averagePace: UInt16?
    /// In W; nil: not included.
    public var power: Int16?
    /// Since the beginning, in W; nil: not included.
    public var averagePower: Int16?
    /// In the unit of ``SupportedResistanceLevelRange``; nil: not included.
    public var resistanceLevel: Int16?
    /// What all machines measure.
    public var progress = FitnessProgress()

    /// The record continues.
    public init() {}

    /// The record continues.
    public var hasMoreData: Bool { strokes == nil }

    /// The strokes of a rower. BluezKit addition.
    public struct Strokes: FieldValue, Hashable {
        /// In 0.5 strokes per minute.
        public var rate: UInt8 = 0
        /// Since the beginning.
        public var count: UInt16 = 0
        /// None.
        public init() {}
        /// ``rate`` in strokes per minute.
        public var perMinute: Double { Double(rate) / 2 }
        /// Reads or writes the fields, in the order in which they are transmitted.
        public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
            try fields.field("stroke rate", &rate)
            try fields.field("stroke count", &count)
        }
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 2)
        try fields.field("stroke rate and count", &strokes, unlessBit: 0)
        try fields.field("average stroke rate", &averageStrokeRate, ifBit: 1)
        try fields.field("total distance", &totalDistance, bytes: 3, ifBit: 2)
        try fields.field("instantaneous pace", &pace, ifBit: 3)
        try fields.field("average pace", &averagePace, ifBit: 4)
        try fields.field("instantaneous power", &power, ifBit: 5)
        try fields.field("average power", &averagePower, ifBit: 6)
        try fields.resistanceLevel(&resistanceLevel, ifBit: 7, before: FitnessProgress.widths(from: 8))
        try progress.code(&fields, from: 8)
    }
}
