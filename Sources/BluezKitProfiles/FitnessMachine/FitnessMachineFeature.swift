public import BluezKit

/// What a machine can do, characteristic 2ACC. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Fitness Machine Service 1.0, 4.3.
public struct FitnessMachineFeature: StructuredValue, Hashable {
    /// 2ACC.
    public static let uuid = CBUUID(string: "2ACC")

    /// What it measures.
    public var features: Features = []
    /// What can be set.
    public var targetSettings: TargetSettings = []

    /// Nothing.
    public init() {}

    /// What a machine measures. BluezKit addition.
    public struct Features: FlagSet, Hashable {
        /// The flags as bits.
        public let rawValue: UInt32
        /// Features from their bits.
        public init(rawValue: UInt32) { self.rawValue = rawValue }

        /// The average speed.
        public static let averageSpeed = Self(rawValue: 1 << 0)
        /// The cadence.
        public static let cadence = Self(rawValue: 1 << 1)
        /// The total distance.
        public static let totalDistance = Self(rawValue: 1 << 2)
        /// The inclination.
        public static let inclination = Self(rawValue: 1 << 3)
        /// The elevation gain.
        public static let elevationGain = Self(rawValue: 1 << 4)
        /// The pace.
        public static let pace = Self(rawValue: 1 << 5)
        /// The number of steps.
        public static let stepCount = Self(rawValue: 1 << 6)
        /// The resistance level.
        public static let resistanceLevel = Self(rawValue: 1 << 7)
        /// The number of strides.
        public static let strideCount = Self(rawValue: 1 << 8)
        /// The energy.
        public static let expendedEnergy = Self(rawValue: 1 << 9)
        /// The heart rate.
        public static let heartRate = Self(rawValue: 1 << 10)
        /// The metabolic equivalent.
        public static let metabolicEquivalent = Self(rawValue: 1 << 11)
        /// The time since the beginning.
        public static let elapsedTime = Self(rawValue: 1 << 12)
        /// The time until the end.
        public static let remainingTime = Self(rawValue: 1 << 13)
        /// The power.
        public static let power = Self(rawValue: 1 << 14)
        /// The force on the belt, and the power.
        public static let forceOnBelt = Self(rawValue: 1 << 15)
        /// It keeps data of its users.
        public static let userDataRetention = Self(rawValue: 1 << 16)
        /// All of these.
        public static let assigned = Self(rawValue: 0x0001_FFFF)
    }

    /// What can be set with ``FitnessMachineControlPoint``. BluezKit addition.
    public struct TargetSettings: FlagSet, Hashable {
        /// The flags as bits.
        public let rawValue: UInt32
        /// Settings from their bits.
        public init(rawValue: UInt32) { self.rawValue = rawValue }

        /// ``FitnessMachineTarget/speed(_:)``
        public static let speed = Self(rawValue: 1 << 0)
        /// ``FitnessMachineTarget/inclination(_:)``
        public static let inclination = Self(rawValue: 1 << 1)
        /// ``FitnessMachineTarget/resistanceLevel(_:)``
        public static let resistanceLevel = Self(rawValue: 1 << 2)
        /// ``FitnessMachineTarget/power(_:)``
        public static let power = Self(rawValue: 1 << 3)
        /// ``FitnessMachineTarget/heartRate(_:)``
        public static let heartRate = Self(rawValue: 1 << 4)
        /// ``FitnessMachineTarget/expendedEnergy(_:)``
        public static let expendedEnergy = Self(rawValue: 1 << 5)
        /// ``FitnessMachineTarget/steps(_:)``
        public static let steps = Self(rawValue: 1 << 6)
        /// ``FitnessMachineTarget/strides(_:)``
        public static let strides = Self(rawValue: 1 << 7)
        /// ``FitnessMachineTarget/distance(_:)``
        public static let distance = Self(rawValue: 1 << 8)
        /// ``FitnessMachineTarget/trainingTime(_:)``
        public static let trainingTime = Self(rawValue: 1 << 9)
        /// ``FitnessMachineTarget/timeInTwoZones(fatBurn:fitness:)``
        public static let timeInTwoZones = Self(rawValue: 1 << 10)
        /// ``FitnessMachineTarget/timeInThreeZones(light:moderate:hard:)``
        public static let timeInThreeZones = Self(rawValue: 1 << 11)
        /// ``FitnessMachineTarget/timeInFiveZones(veryLight:light:moderate:hard:maximum:)``
        public static let timeInFiveZones = Self(rawValue: 1 << 12)
        /// ``FitnessMachineTarget/simulation(_:)``
        public static let simulation = Self(rawValue: 1 << 13)
        /// ``FitnessMachineTarget/wheelCircumference(_:)``
        public static let wheelCircumference = Self(rawValue: 1 << 14)
        /// ``FitnessMachineCommand/startSpinDown``
        public static let spinDown = Self(rawValue: 1 << 15)
        /// ``FitnessMachineTarget/cadence(_:)``
        public static let cadence = Self(rawValue: 1 << 16)
        /// All of these.
        public static let assigned = Self(rawValue: 0x0001_FFFF)
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.field("fitness machine features", &features)
        try fields.field("target setting features", &targetSettings)
    }
}
