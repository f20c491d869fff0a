public import BluezKit

/// The Blood Pressure service, 1810. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Blood Pressure Service 1.1.
public enum BloodPressure: ServiceProfile {
    /// 1810.
    public static let uuid = CBUUID(string: "1810")
    /// The characteristic of the pressure while the cuff deflates, 2A36, in the layout of ``BloodPressureMeasurement``:
    /// it is ``BloodPressureMeasurement/systolic``, and the other two are not numbers.
    public static let intermediateCuffPressure = CBUUID(string: "2A36")
    /// The intermediate pressure is optional.
    public static let characteristics = [
        ProfileCharacteristic(BloodPressureMeasurement.self, .indicate),
        ProfileCharacteristic(intermediateCuffPressure, .notify, isOptional: true),
        ProfileCharacteristic(BloodPressureFeature.self, .read),
    ]
}

/// The server side of ``BloodPressure``. BluezKit addition.
public typealias BloodPressureService = ProfileService<BloodPressure>

/// A blood pressure, characteristic 2A35; also the layout of 2A36. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Blood Pressure Service 1.1, 3.1; GATT Specification Supplement,
///   "Blood Pressure Measurement".
public struct BloodPressureMeasurement: StructuredValue, Hashable {
    /// 2A35.
    public static let uuid = CBUUID(string: "2A35")

    /// The highest pressure, in mmHg, or in kPa if ``isKilopascal``.
    public var systolic = MedFloat16.notANumber
    /// The lowest pressure, in the same unit.
    public var diastolic = MedFloat16.notANumber
    /// The mean arterial pressure, in the same unit.
    public var mean = MedFloat16.notANumber
    /// The unit is kPa.
    public var isKilopascal = false
    /// When it was measured; nil: not included.
    public var time: DateTime?
    /// The pulse, in beats per minute; nil: not included.
    public var pulseRate: MedFloat16?
    /// The user; 255: unknown. Nil: not included.
    public var user: UInt8?
    /// What can have disturbed the measurement; nil: not included.
    public var status: Status?

    /// No number.
    public init() {}

    /// What can have disturbed a measurement. BluezKit addition.
    public struct Status: FlagSet, Hashable {
        /// The flags as bits.
        public let rawValue: UInt16
        /// A status from its bits.
        public init(rawValue: UInt16) { self.rawValue = rawValue }

        /// The body moved.
        public static let bodyMovement = Self(rawValue: 1 << 0)
        /// The cuff was loose.
        public static let cuffTooLoose = Self(rawValue: 1 << 1)
        /// The pulse was irregular.
        public static let irregularPulse = Self(rawValue: 1 << 2)
        /// The pulse was too fast.
        public static let pulseAboveRange = Self(rawValue: 1 << 3)
        /// The pulse was too slow.
        public static let pulseBelowRange = Self(rawValue: 1 << 4)
        /// The body, or the device, was in a wrong position.
        public static let improperPosition = Self(rawValue: 1 << 5)
        /// All of these.
        public static let assigned = Self(rawValue: 0x003F)
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 1)
        fields.flag(0, &isKilopascal)
        try fields.field("systolic pressure", &systolic)
        try fields.field("diastolic pressure", &diastolic)
        try fields.field("mean arterial pressure", &mean)
        try fields.field("time stamp", &time, ifBit: 1)
        try fields.field("pulse rate", &pulseRate, ifBit: 2)
        try fields.field("user ID", &user, ifBit: 3)
        try fields.field("measurement status", &status, ifBit: 4)
    }
}

/// What a blood pressure monitor can do, characteristic 2A49. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, "Blood Pressure Feature".
public struct BloodPressureFeature: FlagSet, StructuredValue, Hashable {
    /// 2A49.
    public static let uuid = CBUUID(string: "2A49")
    /// The flags as bits.
    public let rawValue: UInt16
    /// Features from their bits.
    public init(rawValue: UInt16) { self.rawValue = rawValue }

    /// It detects movement.
    public static let bodyMovement = Self(rawValue: 1 << 0)
    /// It detects a loose cuff.
    public static let cuffFit = Self(rawValue: 1 << 1)
    /// It detects an irregular pulse.
    public static let irregularPulse = Self(rawValue: 1 << 2)
    /// It detects a pulse out of range.
    public static let pulseRange = Self(rawValue: 1 << 3)
    /// It detects a wrong position.
    public static let position = Self(rawValue: 1 << 4)
    /// It can have several bonds.
    public static let multipleBonds = Self(rawValue: 1 << 5)
    /// All of these.
    public static let assigned = Self(rawValue: 0x003F)
}
