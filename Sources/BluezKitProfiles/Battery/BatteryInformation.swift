public import BluezKit
import Foundation

/// A day, as a number of days since 1970-01-01. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, "Date UTC".
public struct DateUTC: FieldValue, Hashable {
    /// Since 1970-01-01, 24 bits.
    public var days: UInt32 = 0
    /// 1970-01-01.
    public init() {}
    /// The day, in UTC, of a point in time. Days before 1970, or after the year 47904, become the nearest one.
    public init(_ date: Date) {
        let days = date.timeIntervalSince1970 / 86_400
        self.days = days > 0 ? UInt32(min(days, 0xFF_FFFF)) : 0
    }
    /// When it begins, in UTC.
    public var date: Date { Date(timeIntervalSince1970: Double(days) * 86_400) }
    /// Reads or writes the number.
    public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
        try fields.field(name, &days, bytes: 3)
    }
}

/// When a battery should be replaced or serviced, characteristic 2BEF. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Battery Service 1.1, 3.3; GATT Specification Supplement, "Estimated Service Date".
public struct EstimatedServiceDate: StructuredValue, Hashable {
    /// 2BEF.
    public static let uuid = CBUUID(string: "2BEF")
    /// The day.
    public var day = DateUTC()
    /// 1970-01-01.
    public init() {}
    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.field("estimated service date", &day)
    }
}

/// How worn a battery is, characteristic 2BEA. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Battery Service 1.1, 3.7; GATT Specification Supplement, "Battery Health Status".
public struct BatteryHealthStatus: StructuredValue, Hashable {
    /// 2BEA.
    public static let uuid = CBUUID(string: "2BEA")

    /// In %, 0 to 100; nil: not included.
    public var summary: UInt8?
    /// How often it was charged; nil: not included.
    public var cycleCount: UInt16?
    /// In °C; 127: more than 126; -128: less than -127. Nil: not included.
    public var temperature: Int8?
    /// How often it was discharged completely; nil: not included.
    public var deepDischargeCount: UInt16?

    /// Nothing.
    public init() {}

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 1)
        try fields.field("battery health summary", &summary, ifBit: 0)
        try fields.field("cycle count", &cycleCount, ifBit: 1)
        try fields.field("current temperature", &temperature, ifBit: 2)
        try fields.field("deep discharge count", &deepDischargeCount, ifBit: 3)
    }
}

/// What a battery was designed for, characteristic 2BEB. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Battery Service 1.1, 3.8; GATT Specification Supplement, "Battery Health Information".
public struct BatteryHealthInformation: StructuredValue, Hashable {
    /// 2BEB.
    public static let uuid = CBUUID(string: "2BEB")

    /// How often it can be charged; nil: not included.
    public var designedCycleCount: UInt16?
    /// The temperatures at which it can be used; nil: not included.
    public var temperatures: Temperatures?

    /// Nothing.
    public init() {}

    /// The temperatures at which a battery can be used, in °C; 127: more than 126; -128: less than -127. BluezKit
    /// addition.
    public struct Temperatures: FieldValue, Hashable {
        /// The lowest.
        public var lowest: Int8 = 0
        /// The highest.
        public var highest: Int8 = 0
        /// 0 °C.
        public init() {}
        /// Reads or writes the fields, in the order in which they are transmitted.
        public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
            try fields.field("minimum \(name)", &lowest)
            try fields.field("maximum \(name)", &highest)
        }
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 1)
        try fields.field("cycle count designed lifetime", &designedCycleCount, ifBit: 0)
        try fields.field("designed operating temperature", &temperatures, ifBit: 1)
    }
}

/// What a battery is, characteristic 2BEC. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Battery Service 1.1, 3.9; GATT Specification Supplement, "Battery Information".
public struct BatteryInformation: StructuredValue, Hashable {
    /// 2BEC.
    public static let uuid = CBUUID(string: "2BEC")

    /// What can be done with it.
    public var features: Features = []
    /// When it was made; nil: not included.
    public var manufactureDate: DateUTC?
    /// Until when it can be used; nil: not included.
    public var expirationDate: DateUTC?
    /// In kWh; nil: not included.
    public var designedCapacity: MedFloat16?
    /// In kWh, below which its level is low; nil: not included.
    public var lowEnergy: MedFloat16?
    /// In kWh, below which its level is critical; nil: not included.
    public var criticalEnergy: MedFloat16?
    /// What it contains; nil: not included, or a number that is not assigned.
    @Assigned public var chemistry: Chemistry?
    /// In V; nil: not included.
    public var nominalVoltage: MedFloat16?
    /// The batteries that are used together with it, 1 to 254; 0: none. Nil: not included.
    public var aggregationGroup: UInt8?

    /// No feature.
    public init() {}

    /// What can be done with a battery. BluezKit addition.
    public struct Features: FlagSet, Hashable {
        /// The flags as bits.
        public let rawValue: UInt8
        /// Features from their bits.
        public init(rawValue: UInt8) { self.rawValue = rawValue }
        /// It can be replaced.
        public static let replaceable = Self(rawValue: 1 << 0)
        /// It can be charged.
        public static let rechargeable = Self(rawValue: 1 << 1)
        /// All of these.
        public static let assigned = Self(rawValue: 0x03)
    }

    /// What a battery contains. BluezKit addition.
    public enum Chemistry: UInt8, EnumeratedValue {
        /// The chemistry.
        case unknown, alkaline, leadAcid, lithiumIronDisulfide, lithiumManganeseDioxide, lithiumIon, lithiumPolymer,
            nickelOxyhydroxide, nickelCadmium, nickelMetalHydride, silverOxide, zincChloride, zincAir, zincCarbon
        /// Something else.
        case other = 255
        /// Unknown.
        public init() { self = .unknown }
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 2)
        try fields.field("battery features", &features)
        try fields.field("battery manufacture date", &manufactureDate, ifBit: 0)
        try fields.field("battery expiration date", &expirationDate, ifBit: 1)
        try fields.field("battery designed capacity", &designedCapacity, ifBit: 2)
        try fields.field("battery low energy", &lowEnergy, ifBit: 3)
        try fields.field("battery critical energy", &criticalEnergy, ifBit: 4)
        try fields.field("battery chemistry", &_chemistry, ifBit: 5)
        try fields.field("nominal voltage", &nominalVoltage, ifBit: 6)
        try fields.field("battery aggregation group", &aggregationGroup, ifBit: 7)
    }
}
