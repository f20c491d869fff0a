public import BluezKit

/// What a cross trainer measures, characteristic 2ACE. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Fitness Machine Service 1.0, 4.5; GATT Specification Supplement, "Cross Trainer Data".
public struct CrossTrainerData: FitnessMachineData {
    /// 2ACE.
    public static let uuid = CBUUID(string: "2ACE")

    /// In 0.01 km/h; nil: the record continues.
    public var speed: UInt16?
    /// Since the beginning, in 0.01 km/h; nil: not included.
    public var averageSpeed: UInt16?
    /// In m, 24 bits; nil: not included.
    public var totalDistance: UInt32?
    /// Steps per minute; nil: not included.
    public var stepRate: StepRate?
    /// Since the beginning, in 0.1; a stride is two steps. Nil: not included.
    public var strideCount: UInt16?
    /// What was climbed, in m; nil: not included.
    public var elevationGain: ElevationGain?
    /// How steep it is; nil: not included.
    public var inclination: FitnessInclination?
    /// In the unit of ``SupportedResistanceLevelRange``; nil: not included.
    public var resistanceLevel: Int16?
    /// In W; nil: not included.
    public var power: Int16?
    /// Since the beginning, in W; nil: not included.
    public var averagePower: Int16?
    /// What all machines measure.
    public var progress = FitnessProgress()
    /// The user moves backwards.
    public var isBackward = false

    /// The record continues.
    public init() {}

    /// The record continues.
    public var hasMoreData: Bool { speed == nil }

    /// ``speed`` in km/h.
    public var kilometersPerHour: Double? { speed.map { Double($0) / 100 } }

    /// Steps per minute. BluezKit addition.
    public struct StepRate: FieldValue, Hashable {
        /// In the last minute; nil: not available.
        public var current: UInt16?
        /// Since the beginning; nil: not available.
        public var average: UInt16?
        /// Not available.
        public init() {}
        /// Reads or writes the fields, in the order in which they are transmitted.
        public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
            try fields.field("step per minute", &current, unknown: 0xFFFF)
            try fields.field("average step rate", &average, unknown: 0xFFFF)
        }
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 3)
        fields.flag(15, &isBackward)
        try fields.field("instantaneous speed", &speed, unlessBit: 0)
        try fields.field("average speed", &averageSpeed, ifBit: 1)
        try fields.field("total distance", &totalDistance, bytes: 3, ifBit: 2)
        try fields.field("step count", &stepRate, ifBit: 3)
        try fields.field("stride count", &strideCount, ifBit: 4)
        try fields.field("elevation gain", &elevationGain, ifBit: 5)
        try fields.field("inclination", &inclination, ifBit: 6)
        try fields.resistanceLevel(
            &resistanceLevel, ifBit: 7, before: [(8, 2), (9, 2)] + FitnessProgress.widths(from: 10))
        try fields.field("instantaneous power", &power, ifBit: 8)
        try fields.field("average power", &averagePower, ifBit: 9)
        try progress.code(&fields, from: 10)
    }
}
