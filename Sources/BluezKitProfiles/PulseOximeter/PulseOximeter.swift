public import BluezKit

/// The Pulse Oximeter service, 1822. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Pulse Oximeter Service 1.0.
public enum PulseOximeter: ServiceProfile {
    /// 1822.
    public static let uuid = CBUUID(string: "1822")
    /// A server has one of the measurements, or both. The record access control point is for stored spot checks.
    public static let characteristics = [
        ProfileCharacteristic(PLXSpotCheckMeasurement.self, .indicate, isOptional: true),
        ProfileCharacteristic(PLXContinuousMeasurement.self, .notify, isOptional: true),
        ProfileCharacteristic(PLXFeatures.self, .read),
        ProfileCharacteristic(RecordAccessControlPoint.self, [.write, .indicate], isOptional: true),
    ]
}

/// The server side of ``PulseOximeter``. BluezKit addition.
public typealias PulseOximeterService = ProfileService<PulseOximeter>

/// The oxygen saturation and the pulse. BluezKit addition.
public struct OxygenAndPulse: FieldValue, Hashable {
    /// The oxygen saturation, in %.
    public var saturation = MedFloat16.notANumber
    /// The pulse, in beats per minute.
    public var pulseRate = MedFloat16.notANumber
    /// A value without measurements: its numbers are `notANumber`.
    public init() {}
    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
        try fields.field("\(name) SpO2", &saturation)
        try fields.field("\(name) pulse rate", &pulseRate)
    }
}

/// A single measurement of a pulse oximeter, characteristic 2A5E. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Pulse Oximeter Service 1.0, 3.1; GATT Specification Supplement, "PLX Spot-Check
///   Measurement".
public struct PLXSpotCheckMeasurement: StructuredValue, Hashable {
    /// 2A5E.
    public static let uuid = CBUUID(string: "2A5E")

    /// The result.
    public var result = OxygenAndPulse()
    /// When it was measured; nil: not included.
    public var time: DateTime?
    /// How valid it is; nil: not included.
    public var status: PLXMeasurementStatus?
    /// What was wrong; nil: not included.
    public var deviceStatus: PLXDeviceStatus?
    /// The pulse amplitude index, in %; nil: not included.
    public var pulseAmplitudeIndex: MedFloat16?
    /// The device's clock has not been set.
    public var isClockNotSet = false

    /// A value without measurements: its numbers are `notANumber`.
    public init() {}

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 1)
        fields.flag(4, &isClockNotSet)
        try fields.field("spot-check", &result)
        try fields.field("time stamp", &time, ifBit: 0)
        try fields.field("measurement status", &status, ifBit: 1)
        try fields.field("device and sensor status", &deviceStatus, ifBit: 2)
        try fields.field("pulse amplitude index", &pulseAmplitudeIndex, ifBit: 3)
    }
}

/// One of many measurements of a pulse oximeter, characteristic 2A5F. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Pulse Oximeter Service 1.0, 3.2; GATT Specification Supplement, "PLX Continuous
///   Measurement".
public struct PLXContinuousMeasurement: StructuredValue, Hashable {
    /// 2A5F.
    public static let uuid = CBUUID(string: "2A5F")

    /// The result.
    public var normal = OxygenAndPulse()
    /// With a faster response to changes; nil: not included.
    public var fast: OxygenAndPulse?
    /// With a slower response to changes; nil: not included.
    public var slow: OxygenAndPulse?
    /// How valid it is; nil: not included.
    public var status: PLXMeasurementStatus?
    /// What was wrong; nil: not included.
    public var deviceStatus: PLXDeviceStatus?
    /// The pulse amplitude index, in %; nil: not included.
    public var pulseAmplitudeIndex: MedFloat16?

    /// A value without measurements: its numbers are `notANumber`.
    public init() {}

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 1)
        try fields.field("normal", &normal)
        try fields.field("fast", &fast, ifBit: 0)
        try fields.field("slow", &slow, ifBit: 1)
        try fields.field("measurement status", &status, ifBit: 2)
        try fields.field("device and sensor status", &deviceStatus, ifBit: 3)
        try fields.field("pulse amplitude index", &pulseAmplitudeIndex, ifBit: 4)
    }
}

/// What a pulse oximeter can do, characteristic 2A60. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Pulse Oximeter Service 1.0, 3.3; GATT Specification Supplement, "PLX Features".
public struct PLXFeatures: StructuredValue, Hashable {
    /// 2A60.
    public static let uuid = CBUUID(string: "2A60")

    /// It stores spot checks.
    public var storesSpotChecks = false
    /// Spot checks have a time.
    public var hasTimeStamp = false
    /// Continuous measurements have a fast result.
    public var hasFast = false
    /// Continuous measurements have a slow result.
    public var hasSlow = false
    /// It measures the pulse amplitude index.
    public var hasPulseAmplitudeIndex = false
    /// It can have several bonds.
    public var hasMultipleBonds = false
    /// Which status of a measurement it knows; nil: none.
    public var status: PLXMeasurementStatus?
    /// Which faults it knows; nil: none.
    public var deviceStatus: PLXDeviceStatus?

    /// No feature.
    public init() {}

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 2)
        fields.flag(2, &storesSpotChecks)
        fields.flag(3, &hasTimeStamp)
        fields.flag(4, &hasFast)
        fields.flag(5, &hasSlow)
        fields.flag(6, &hasPulseAmplitudeIndex)
        fields.flag(7, &hasMultipleBonds)
        try fields.field("measurement status support", &status, ifBit: 0)
        try fields.field("device and sensor status support", &deviceStatus, ifBit: 1)
    }
}

/// How valid a measurement is. BluezKit addition.
public struct PLXMeasurementStatus: FlagSet, Hashable {
    /// The flags as bits.
    public let rawValue: UInt16
    /// A status from its bits.
    public init(rawValue: UInt16) { self.rawValue = rawValue }

    /// The measurement is under way.
    public static let ongoing = Self(rawValue: 1 << 5)
    /// An early estimate.
    public static let earlyEstimate = Self(rawValue: 1 << 6)
    /// Validated.
    public static let validated = Self(rawValue: 1 << 7)
    /// Fully qualified.
    public static let fullyQualified = Self(rawValue: 1 << 8)
    /// From the storage.
    public static let stored = Self(rawValue: 1 << 9)
    /// For a demonstration.
    public static let demonstration = Self(rawValue: 1 << 10)
    /// For a test.
    public static let test = Self(rawValue: 1 << 11)
    /// The device is calibrated.
    public static let calibrationOngoing = Self(rawValue: 1 << 12)
    /// There is no measurement.
    public static let unavailable = Self(rawValue: 1 << 13)
    /// Questionable.
    public static let questionable = Self(rawValue: 1 << 14)
    /// Invalid.
    public static let invalid = Self(rawValue: 1 << 15)
    /// All of these.
    public static let assigned = Self(rawValue: 0xFFE0)
}

/// What was wrong with an oximeter or its sensor. BluezKit addition.
public struct PLXDeviceStatus: FlagSet, Hashable {
    /// The flags as bits.
    public let rawValue: UInt32
    /// A status from its bits.
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// The display is updated late.
    public static let extendedDisplayUpdate = Self(rawValue: 1 << 0)
    /// The device failed.
    public static let equipmentMalfunction = Self(rawValue: 1 << 1)
    /// The signal could not be processed regularly.
    public static let signalIrregularity = Self(rawValue: 1 << 2)
    /// The signal is too weak.
    public static let inadequateSignal = Self(rawValue: 1 << 3)
    /// The signal is poor.
    public static let poorSignal = Self(rawValue: 1 << 4)
    /// The perfusion is low.
    public static let lowPerfusion = Self(rawValue: 1 << 5)
    /// The signal is erratic.
    public static let erraticSignal = Self(rawValue: 1 << 6)
    /// The signal is not that of a pulse.
    public static let nonPulsatileSignal = Self(rawValue: 1 << 7)
    /// The pulse is questionable.
    public static let questionablePulse = Self(rawValue: 1 << 8)
    /// The signal is still being analyzed.
    public static let analysisOngoing = Self(rawValue: 1 << 9)
    /// The interface to the sensor failed.
    public static let sensorInterface = Self(rawValue: 1 << 10)
    /// There is no sensor on the patient.
    public static let sensorUnconnected = Self(rawValue: 1 << 11)
    /// The sensor is unknown.
    public static let unknownSensor = Self(rawValue: 1 << 12)
    /// The sensor is displaced.
    public static let sensorDisplaced = Self(rawValue: 1 << 13)
    /// The sensor failed.
    public static let sensorMalfunction = Self(rawValue: 1 << 14)
    /// The sensor is disconnected from the device.
    public static let sensorDisconnected = Self(rawValue: 1 << 15)
    /// All of these.
    public static let assigned = Self(rawValue: 0xFFFF)
    /// 3.
    public static let bytes = 3
}
