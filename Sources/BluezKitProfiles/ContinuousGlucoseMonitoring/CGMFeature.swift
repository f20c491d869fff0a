public import BluezKit

/// What a glucose sensor can do, characteristic 2AA8. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Continuous Glucose Monitoring Service 1.0.2, 3.2; GATT Specification Supplement, "CGM
///   Feature".
public struct CGMFeature: StructuredValue, Hashable {
    /// 2AA8.
    public static let uuid = CBUUID(string: "2AA8")

    /// What it can do. With ``Features/e2eCRC`` this value ends with a checksum, and so do others.
    public var features: Features = []
    /// What is measured; nil: a number that is not assigned.
    @Assigned public var sample: GlucoseMeasurement.Sample? = .interstitialFluid
    /// Where it is measured; nil: a number that is not assigned.
    @Assigned public var location: CGMLocation? = .notAvailable

    /// No feature.
    public init() {}

    /// What a glucose sensor can do. BluezKit addition.
    public struct Features: FlagSet, Hashable {
        /// The flags as bits.
        public let rawValue: UInt32
        /// Features from their bits.
        public init(rawValue: UInt32) { self.rawValue = rawValue }

        /// It can be calibrated.
        public static let calibration = Self(rawValue: 1 << 0)
        /// It knows the patient's high and low levels.
        public static let patientAlerts = Self(rawValue: 1 << 1)
        /// It knows the hypo level.
        public static let hypoAlerts = Self(rawValue: 1 << 2)
        /// It knows the hyper level.
        public static let hyperAlerts = Self(rawValue: 1 << 3)
        /// It knows how fast the level may change.
        public static let rateAlerts = Self(rawValue: 1 << 4)
        /// It has alerts of its own.
        public static let deviceSpecificAlert = Self(rawValue: 1 << 5)
        /// It detects a failure of the sensor.
        public static let sensorMalfunction = Self(rawValue: 1 << 6)
        /// It detects temperatures that are too high or too low.
        public static let temperatureRange = Self(rawValue: 1 << 7)
        /// It detects results that are too high or too low.
        public static let resultRange = Self(rawValue: 1 << 8)
        /// It detects a low battery.
        public static let lowBattery = Self(rawValue: 1 << 9)
        /// It detects a sensor of a wrong type.
        public static let sensorType = Self(rawValue: 1 << 10)
        /// It detects other faults.
        public static let deviceFault = Self(rawValue: 1 << 11)
        /// Values end with a checksum, and so must those that are written.
        public static let e2eCRC = Self(rawValue: 1 << 12)
        /// It can have several bonds.
        public static let multipleBonds = Self(rawValue: 1 << 13)
        /// It can have several sessions.
        public static let multipleSessions = Self(rawValue: 1 << 14)
        /// It measures how fast the level changes.
        public static let trend = Self(rawValue: 1 << 15)
        /// It knows how good a measurement is.
        public static let quality = Self(rawValue: 1 << 16)
        /// All of these.
        public static let assigned = Self(rawValue: 0x0001_FFFF)
        /// 3.
        public static let bytes = 3
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.field("features", &features)
        try fields.halves("type and sample location", &_sample, &_location)
        var (isSecured, none) = (features.contains(.e2eCRC), UInt16(0xFFFF))
        guard isSecured else { return try fields.field("E2E-CRC", &none) }
        let count = fields.bytesLeft
        try fields.e2eCRC(&isSecured)
        if !isSecured { throw count < 2 ? .truncated(field: "E2E-CRC") : .checksum }
    }
}

/// Where a glucose sensor measures. BluezKit addition.
public enum CGMLocation: UInt8, EnumeratedValue {
    /// A place on the body, or the control solution.
    case finger = 1, alternateSite, earLobe, controlSolution, subcutaneousTissue
    /// Not known.
    case notAvailable = 15
    /// Not known.
    public init() { self = .notAvailable }
}
