public import BluezKit

/// What a treadmill measures, characteristic 2ACD. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Fitness Machine Service 1.0, 4.4; GATT Specification Supplement, "Treadmill Data".
public struct TreadmillData: FitnessMachineData {
    /// 2ACD.
    public static let uuid = CBUUID(string: "2ACD")

    /// Of the belt, in 0.01 km/h; nil: the record continues.
    public var speed: UInt16?
    /// Since the beginning, in 0.01 km/h; nil: not included.
    public var averageSpeed: UInt16?
    /// In m, 24 bits; nil: not included.
    public var totalDistance: UInt32?
    /// How steep it is; nil: not included.
    public var inclination: FitnessInclination?
    /// What was climbed, in 0.1 m; nil: not included.
    public var elevationGain: ElevationGain?
    /// In seconds for 500 m, or in 0.1 km per minute if ``isPaceSpeed``; nil: not included.
    public var pace: UInt16?
    /// Since the beginning, in the same unit; nil: not included.
    public var averagePace: UInt16?
    /// ``pace`` and ``averagePace`` are in 0.1 km per minute, and have one byte each, as the Bluetooth SIG defined them
    /// in 2017; in the GATT Specification Supplement since version 5 they have two.
    public var isPaceSpeed = false
    /// What all machines measure.
    public var progress = FitnessProgress()
    /// Force and power; nil: not included.
    public var belt: Belt?

    /// The record continues.
    public init() {}

    /// The record continues.
    public var hasMoreData: Bool { speed == nil }

    /// ``speed`` in km/h.
    public var kilometersPerHour: Double? { speed.map { Double($0) / 100 } }

    /// What the user does to the belt. BluezKit addition.
    public struct Belt: FieldValue, Hashable {
        /// In N; nil: not available.
        public var force: Int16?
        /// In W; nil: not available.
        public var power: Int16?
        /// Not available.
        public init() {}
        /// Reads or writes the fields, in the order in which they are transmitted.
        public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
            try fields.field("force on belt", &force, unknown: 0x7FFF)
            try fields.field("power output", &power, unknown: 0x7FFF)
        }
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 2)
        try fields.field("instantaneous speed", &speed, unlessBit: 0)
        try fields.field("average speed", &averageSpeed, ifBit: 1)
        try fields.field("total distance", &totalDistance, bytes: 3, ifBit: 2)
        try fields.field("inclination", &inclination, ifBit: 3)
        try fields.field("elevation gain", &elevationGain, ifBit: 4)
        if fields.isReading, fields.hasFlag(5) || fields.hasFlag(6) {
            isPaceSpeed = fields.endsAfter([(5, 1), (6, 1)] + FitnessProgress.widths(from: 7) + [(12, 4)])
        }
        try fields.field("instantaneous pace", &pace, bytes: isPaceSpeed ? 1 : 2, ifBit: 5)
        try fields.field("average pace", &averagePace, bytes: isPaceSpeed ? 1 : 2, ifBit: 6)
        try progress.code(&fields, from: 7)
        try fields.field("force on belt and power output", &belt, ifBit: 12)
    }
}
