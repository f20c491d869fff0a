public import BluezKit

/// The Glucose service, 1808. BluezKit addition.
///
/// A server keeps its measurements in a ``RecordStore``, which answers the record access control point.
/// - SeeAlso: Bluetooth SIG, Glucose Service 1.0.
public enum Glucose: ServiceProfile {
    /// 1808.
    public static let uuid = CBUUID(string: "1808")
    /// The context of the measurements is optional.
    public static let characteristics = [
        ProfileCharacteristic(GlucoseMeasurement.self, .notify),
        ProfileCharacteristic(GlucoseMeasurementContext.self, .notify, isOptional: true),
        ProfileCharacteristic(GlucoseFeature.self, .read),
        ProfileCharacteristic(RecordAccessControlPoint.self, [.write, .indicate]),
    ]
}

/// The server side of ``Glucose``. BluezKit addition.
public typealias GlucoseService = ProfileService<Glucose>

/// A concentration of glucose, characteristic 2A18. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Glucose Service 1.0, 3.1; GATT Specification Supplement, "Glucose Measurement".
public struct GlucoseMeasurement: StructuredValue, Hashable {
    /// 2A18.
    public static let uuid = CBUUID(string: "2A18")

    /// Of the measurement, and of its context.
    public var sequenceNumber: UInt16 = 0
    /// The device's time when it was measured, without ``timeOffset``.
    public var baseTime = DateTime()
    /// In minutes, how far the time that the user sees was ahead of ``baseTime``; nil: not included.
    public var timeOffset: Int16?
    /// The result; nil: not included.
    public var result: Result?
    /// ``Result/concentration`` is in mol/l, not in kg/l.
    public var isMolar = false
    /// What was wrong; nil: not included.
    public var status: Status?
    /// A ``GlucoseMeasurementContext`` with the same number follows.
    public var hasContext = false

    /// Without a result.
    public init() {}

    /// The result of a measurement. BluezKit addition.
    public struct Result: FieldValue, Hashable {
        /// In kg/l, or in mol/l if ``GlucoseMeasurement/isMolar``: 5.5 mmol/l is `MedFloat(0.0055, digits: 4)`.
        public var concentration = MedFloat16.notANumber
        /// What was measured; nil: a number that is not assigned.
        @Assigned public var sample: Sample? = .capillaryWholeBlood
        /// Where the sample is from; nil: a number that is not assigned.
        @Assigned public var location: Location? = .notAvailable
        /// No number.
        public init() {}
        /// Reads or writes the fields, in the order in which they are transmitted.
        public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
            try fields.field(name, &concentration)
            try fields.halves("type and sample location", &_sample, &_location)
        }
    }

    /// What was measured. BluezKit addition.
    public enum Sample: UInt8, EnumeratedValue {
        /// A fluid.
        case capillaryWholeBlood = 1, capillaryPlasma, venousWholeBlood, venousPlasma, arterialWholeBlood,
            arterialPlasma, undeterminedWholeBlood, undeterminedPlasma, interstitialFluid, controlSolution
        /// Of a finger.
        public init() { self = .capillaryWholeBlood }
    }

    /// Where a sample is from. BluezKit addition.
    public enum Location: UInt8, EnumeratedValue {
        /// A place on the body, or the control solution.
        case finger = 1, alternateSite, earLobe, controlSolution
        /// Not known.
        case notAvailable = 15
        /// Not known.
        public init() { self = .notAvailable }
    }

    /// What was wrong. BluezKit addition.
    public struct Status: FlagSet, Hashable {
        /// The flags as bits.
        public let rawValue: UInt16
        /// A status from its bits.
        public init(rawValue: UInt16) { self.rawValue = rawValue }

        /// The battery is low.
        public static let batteryLow = Self(rawValue: 1 << 0)
        /// The sensor failed.
        public static let sensorMalfunction = Self(rawValue: 1 << 1)
        /// The sample was too small.
        public static let sampleTooSmall = Self(rawValue: 1 << 2)
        /// The strip was not inserted correctly.
        public static let stripInsertion = Self(rawValue: 1 << 3)
        /// The strip is of a wrong type.
        public static let stripType = Self(rawValue: 1 << 4)
        /// The result is too high to be measured.
        public static let resultTooHigh = Self(rawValue: 1 << 5)
        /// The result is too low to be measured.
        public static let resultTooLow = Self(rawValue: 1 << 6)
        /// The sensor was too warm.
        public static let temperatureTooHigh = Self(rawValue: 1 << 7)
        /// The sensor was too cold.
        public static let temperatureTooLow = Self(rawValue: 1 << 8)
        /// The strip was removed too early.
        public static let readInterrupted = Self(rawValue: 1 << 9)
        /// Another fault.
        public static let deviceFault = Self(rawValue: 1 << 10)
        /// The time may be wrong.
        public static let timeFault = Self(rawValue: 1 << 11)
        /// All of these.
        public static let assigned = Self(rawValue: 0x0FFF)
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 1)
        fields.flag(2, &isMolar)
        fields.flag(4, &hasContext)
        try fields.field("sequence number", &sequenceNumber)
        try fields.field("base time", &baseTime)
        try fields.field("time offset", &timeOffset, ifBit: 0)
        try fields.field("glucose concentration", &result, ifBit: 1)
        try fields.field("sensor status annunciation", &status, ifBit: 3)
    }
}

/// What a glucose meter can do, characteristic 2A51. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, "Glucose Feature".
public struct GlucoseFeature: FlagSet, StructuredValue, Hashable {
    /// 2A51.
    public static let uuid = CBUUID(string: "2A51")
    /// The flags as bits.
    public let rawValue: UInt16
    /// Features from their bits.
    public init(rawValue: UInt16) { self.rawValue = rawValue }

    /// It detects a low battery.
    public static let lowBattery = Self(rawValue: 1 << 0)
    /// It detects a failure of the sensor.
    public static let sensorMalfunction = Self(rawValue: 1 << 1)
    /// It detects a sample that is too small.
    public static let sampleSize = Self(rawValue: 1 << 2)
    /// It detects a strip that is not inserted correctly.
    public static let stripInsertion = Self(rawValue: 1 << 3)
    /// It detects a strip of a wrong type.
    public static let stripType = Self(rawValue: 1 << 4)
    /// It detects results that are too high or too low.
    public static let resultRange = Self(rawValue: 1 << 5)
    /// It detects temperatures that are too high or too low.
    public static let temperatureRange = Self(rawValue: 1 << 6)
    /// It detects a strip that is removed too early.
    public static let readInterruption = Self(rawValue: 1 << 7)
    /// It detects other faults.
    public static let deviceFault = Self(rawValue: 1 << 8)
    /// It detects that its time may be wrong.
    public static let timeFault = Self(rawValue: 1 << 9)
    /// It can have several bonds.
    public static let multipleBonds = Self(rawValue: 1 << 10)
    /// All of these.
    public static let assigned = Self(rawValue: 0x07FF)
}
