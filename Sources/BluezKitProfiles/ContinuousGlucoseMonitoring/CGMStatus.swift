public import BluezKit

/// The status of a glucose sensor, characteristic 2AA9. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Continuous Glucose Monitoring Service 1.0.2, 3.3; GATT Specification Supplement, "CGM
///   Status".
public struct CGMStatus: StructuredValue, Hashable {
    /// 2AA9.
    public static let uuid = CBUUID(string: "2AA9")

    /// In minutes since ``CGMSessionStartTime``.
    public var timeOffset: UInt16 = 0
    /// What is wrong.
    public var status: CGMSensorStatus = []
    /// It ends with a checksum, which was correct.
    public var isSecured = false

    /// Nothing is wrong.
    public init() {}

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.field("time offset", &timeOffset)
        try fields.field("status", &status)
        try fields.e2eCRC(&isSecured)
    }
}

/// What can be wrong with a glucose sensor. BluezKit addition.
public struct CGMSensorStatus: FlagSet, Hashable {
    /// The flags as bits.
    public let rawValue: UInt32
    /// A status from its bits.
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// The session has ended.
    public static let sessionStopped = Self(rawValue: 1 << 0)
    /// The battery of the device is low.
    public static let batteryLow = Self(rawValue: 1 << 1)
    /// The sensor has a wrong type.
    public static let sensorTypeIncorrect = Self(rawValue: 1 << 2)
    /// The sensor failed.
    public static let sensorMalfunction = Self(rawValue: 1 << 3)
    /// An alert of the device.
    public static let deviceSpecificAlert = Self(rawValue: 1 << 4)
    /// Another fault.
    public static let deviceFault = Self(rawValue: 1 << 5)
    /// The clock has to be set.
    public static let timeSynchronizationRequired = Self(rawValue: 1 << 8)
    /// The sensor cannot be calibrated now.
    public static let calibrationNotAllowed = Self(rawValue: 1 << 9)
    /// The sensor should be calibrated.
    public static let calibrationRecommended = Self(rawValue: 1 << 10)
    /// The sensor has to be calibrated.
    public static let calibrationRequired = Self(rawValue: 1 << 11)
    /// The sensor is too warm.
    public static let temperatureTooHigh = Self(rawValue: 1 << 12)
    /// The sensor is too cold.
    public static let temperatureTooLow = Self(rawValue: 1 << 13)
    /// Below the patient's low level.
    public static let belowPatientLow = Self(rawValue: 1 << 16)
    /// Above the patient's high level.
    public static let abovePatientHigh = Self(rawValue: 1 << 17)
    /// Below the hypo level.
    public static let belowHypo = Self(rawValue: 1 << 18)
    /// Above the hyper level.
    public static let aboveHyper = Self(rawValue: 1 << 19)
    /// It decreases too fast.
    public static let rateOfDecreaseExceeded = Self(rawValue: 1 << 20)
    /// It increases too fast.
    public static let rateOfIncreaseExceeded = Self(rawValue: 1 << 21)
    /// The result is too low to be measured.
    public static let resultTooLow = Self(rawValue: 1 << 22)
    /// The result is too high to be measured.
    public static let resultTooHigh = Self(rawValue: 1 << 23)
    /// All of these.
    public static let assigned = Self(rawValue: 0x00FF_3F3F)
    /// 3.
    public static let bytes = 3
}
