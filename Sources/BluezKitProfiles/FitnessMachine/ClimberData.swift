public import BluezKit

/// What a step climber measures, characteristic 2ACF. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Fitness Machine Service 1.0, 4.6; GATT Specification Supplement, "Step Climber Data".
public struct StepClimberData: FitnessMachineData {
    /// 2ACF.
    public static let uuid = CBUUID(string: "2ACF")

    /// What was climbed; nil: the record continues.
    public var climb: Climb?
    /// In steps per minute; nil: not included.
    public var stepRate: UInt16?
    /// Since the beginning, in steps per minute; nil: not included.
    public var averageStepRate: UInt16?
    /// Since the beginning, in m; nil: not included.
    public var elevationGain: UInt16?
    /// What all machines measure.
    public var progress = FitnessProgress()

    /// The record continues.
    public init() {}

    /// The record continues.
    public var hasMoreData: Bool { climb == nil }

    /// What was climbed since the beginning. BluezKit addition.
    public struct Climb: FieldValue, Hashable {
        /// Floors.
        public var floors: UInt16 = 0
        /// Steps.
        public var steps: UInt16 = 0
        /// None.
        public init() {}
        /// Reads or writes the fields, in the order in which they are transmitted.
        public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
            try fields.field("floors", &floors)
            try fields.field("step count", &steps)
        }
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 2)
        try fields.field("floors and step count", &climb, unlessBit: 0)
        try fields.field("step per minute", &stepRate, ifBit: 1)
        try fields.field("average step rate", &averageStepRate, ifBit: 2)
        try fields.field("positive elevation gain", &elevationGain, ifBit: 3)
        try progress.code(&fields, from: 4)
    }
}

/// What a stair climber measures, characteristic 2AD0. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Fitness Machine Service 1.0, 4.7; GATT Specification Supplement, "Stair Climber Data".
public struct StairClimberData: FitnessMachineData {
    /// 2AD0.
    public static let uuid = CBUUID(string: "2AD0")

    /// Climbed since the beginning; nil: the record continues.
    public var floors: UInt16?
    /// In steps per minute; nil: not included.
    public var stepRate: UInt16?
    /// Since the beginning, in steps per minute; nil: not included.
    public var averageStepRate: UInt16?
    /// Since the beginning, in m; nil: not included.
    public var elevationGain: UInt16?
    /// Since the beginning; nil: not included.
    public var strideCount: UInt16?
    /// What all machines measure.
    public var progress = FitnessProgress()

    /// The record continues.
    public init() {}

    /// The record continues.
    public var hasMoreData: Bool { floors == nil }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 2)
        try fields.field("floors", &floors, unlessBit: 0)
        try fields.field("step per minute", &stepRate, ifBit: 1)
        try fields.field("average step rate", &averageStepRate, ifBit: 2)
        try fields.field("positive elevation gain", &elevationGain, ifBit: 3)
        try fields.field("stride count", &strideCount, ifBit: 4)
        try progress.code(&fields, from: 5)
    }
}
