public import BluezKit

/// What an indoor bike measures, characteristic 2AD2. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Fitness Machine Service 1.0, 4.9; GATT Specification Supplement, "Indoor Bike Data".
public struct IndoorBikeData: FitnessMachineData {
    /// 2AD2.
    public static let uuid = CBUUID(string: "2AD2")

    /// In 0.01 km/h; nil: the record continues.
    public var speed: UInt16?
    /// Since the beginning, in 0.01 km/h; nil: not included.
    public var averageSpeed: UInt16?
    /// In 0.5 revolutions per minute; nil: not included.
    public var cadence: UInt16?
    /// Since the beginning, in 0.5 revolutions per minute; nil: not included.
    public var averageCadence: UInt16?
    /// In m, 24 bits; nil: not included.
    public var totalDistance: UInt32?
    /// In the unit of ``SupportedResistanceLevelRange``; nil: not included.
    public var resistanceLevel: Int16?
    /// In W; nil: not included.
    public var power: Int16?
    /// Since the beginning, in W; nil: not included.
    public var averagePower: Int16?
    /// What all machines measure.
    public var progress = FitnessProgress()

    /// The record continues.
    public init() {}

    /// The record continues.
    public var hasMoreData: Bool { speed == nil }

    /// ``speed`` in km/h.
    public var kilometersPerHour: Double? { speed.map { Double($0) / 100 } }

    /// ``cadence`` in revolutions per minute.
    public var revolutionsPerMinute: Double? { cadence.map { Double($0) / 2 } }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 2)
        try fields.field("instantaneous speed", &speed, unlessBit: 0)
        try fields.field("average speed", &averageSpeed, ifBit: 1)
        try fields.field("instantaneous cadence", &cadence, ifBit: 2)
        try fields.field("average cadence", &averageCadence, ifBit: 3)
        try fields.field("total distance", &totalDistance, bytes: 3, ifBit: 4)
        try fields.resistanceLevel(
            &resistanceLevel, ifBit: 5, before: [(6, 2), (7, 2)] + FitnessProgress.widths(from: 8))
        try fields.field("instantaneous power", &power, ifBit: 6)
        try fields.field("average power", &averagePower, ifBit: 7)
        try progress.code(&fields, from: 8)
    }
}
