public import BluezKit

/// The circumstances of a ``GlucoseMeasurement``, characteristic 2A34. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Glucose Service 1.0, 3.2; GATT Specification Supplement, "Glucose Measurement Context".
public struct GlucoseMeasurementContext: StructuredValue, Hashable {
    /// 2A34.
    public static let uuid = CBUUID(string: "2A34")

    /// Of the measurement.
    public var sequenceNumber: UInt16 = 0
    /// Flags for later versions of the service; nil: not included.
    public var extendedFlags: UInt8?
    /// What was eaten; nil: not included.
    public var carbohydrate: Carbohydrate?
    /// When, in relation to a meal; nil: not included, or a number that is not assigned.
    @Assigned public var meal: Meal?
    /// Who measured, and the health; nil: not included.
    public var tester: TesterAndHealth?
    /// The exercise before; nil: not included.
    public var exercise: Exercise?
    /// The insulin; nil: not included.
    public var medication: Medication?
    /// ``Medication/amount`` is in l, not in kg.
    public var isMedicationInLiters = false
    /// The glycated hemoglobin, in %; nil: not included.
    public var hbA1c: MedFloat16?

    /// Nothing is known.
    public init() {}

    /// What was eaten. BluezKit addition.
    public struct Carbohydrate: FieldValue, Hashable {
        /// The meal; nil: a number that is not assigned.
        @Assigned public var kind: Kind? = .breakfast
        /// In kg.
        public var amount = MedFloat16()
        /// A breakfast of 0 kg.
        public init() {}
        /// Reads or writes the fields, in the order in which they are transmitted.
        public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
            try fields.field("carbohydrate ID", &_kind)
            try fields.field(name, &amount)
        }

        /// A meal. BluezKit addition.
        public enum Kind: UInt8, EnumeratedValue {
            /// A meal.
            case breakfast = 1, lunch, dinner, snack, drink, supper, brunch
            /// Breakfast.
            public init() { self = .breakfast }
        }
    }

    /// A time in relation to a meal. BluezKit addition.
    public enum Meal: UInt8, EnumeratedValue {
        /// Before, after, after a fast, at any time, or at bedtime.
        case preprandial = 1, postprandial, fasting, casual, bedtime
        /// At any time.
        public init() { self = .casual }
    }

    /// Who measured, and the health. BluezKit addition.
    public struct TesterAndHealth: FieldValue, Hashable {
        /// Who measured; nil: a number that is not assigned.
        @Assigned public var tester: Tester? = .notAvailable
        /// The health; nil: a number that is not assigned.
        @Assigned public var health: Health? = .notAvailable
        /// Not known.
        public init() {}
        /// Reads or writes the fields, in the order in which they are transmitted.
        public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
            try fields.halves(name, &_tester, &_health)
        }

        /// Who measured. BluezKit addition.
        public enum Tester: UInt8, EnumeratedValue {
            /// The user, a professional, or a laboratory.
            case user = 1, healthCareProfessional, laboratory
            /// Not known.
            case notAvailable = 15
            /// Not known.
            public init() { self = .notAvailable }
        }

        /// The health. BluezKit addition.
        public enum Health: UInt8, EnumeratedValue {
            /// What can influence the measurement.
            case minorIssues = 1, majorIssues, duringMenses, underStress, noIssues
            /// Not known.
            case notAvailable = 15
            /// Not known.
            public init() { self = .notAvailable }
        }
    }

    /// The exercise before. BluezKit addition.
    public struct Exercise: FieldValue, Hashable {
        /// In seconds; 65535: at least that much.
        public var duration: UInt16 = 0
        /// The intensity as transmitted: in %, 0 to 100; other numbers are reserved.
        public var intensityNumber: UInt8 = 0
        /// In %, 0 to 100; nil: reserved. More than 100 becomes 100, nil becomes 0.
        public var intensity: UInt8? {
            get { intensityNumber <= 100 ? intensityNumber : nil }
            set { intensityNumber = min(newValue ?? 0, 100) }
        }
        /// None.
        public init() {}
        /// Reads or writes the fields, in the order in which they are transmitted.
        public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
            try fields.field("exercise duration", &duration)
            try fields.field("exercise intensity", &intensityNumber)
        }
    }

    /// The insulin. BluezKit addition.
    public struct Medication: FieldValue, Hashable {
        /// How it acts; nil: a number that is not assigned.
        @Assigned public var kind: Kind? = .rapidActing
        /// In kg, or in l if ``GlucoseMeasurementContext/isMedicationInLiters``.
        public var amount = MedFloat16()
        /// 0 kg.
        public init() {}
        /// Reads or writes the fields, in the order in which they are transmitted.
        public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
            try fields.field("medication ID", &_kind)
            try fields.field(name, &amount)
        }

        /// How insulin acts. BluezKit addition.
        public enum Kind: UInt8, EnumeratedValue {
            /// A kind of insulin.
            case rapidActing = 1, shortActing, intermediateActing, longActing, premixed
            /// Rapid acting.
            public init() { self = .rapidActing }
        }
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 1)
        fields.flag(5, &isMedicationInLiters)
        try fields.field("sequence number", &sequenceNumber)
        try fields.field("extended flags", &extendedFlags, ifBit: 7)
        try fields.field("carbohydrate", &carbohydrate, ifBit: 0)
        try fields.field("meal", &_meal, ifBit: 1)
        try fields.field("tester and health", &tester, ifBit: 2)
        try fields.field("exercise", &exercise, ifBit: 3)
        try fields.field("medication", &medication, ifBit: 4)
        try fields.field("HbA1c", &hbA1c, ifBit: 6)
    }
}
