public import BluezKit

/// The Weight Scale service, 181D. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Weight Scale Service 1.0.
public enum WeightScale: ServiceProfile {
    /// 181D.
    public static let uuid = CBUUID(string: "181D")
    /// Both characteristics are mandatory.
    public static let characteristics = [
        ProfileCharacteristic(WeightScaleFeature.self, .read),
        ProfileCharacteristic(WeightMeasurement.self, .indicate),
    ]
}

/// The server side of ``WeightScale``. BluezKit addition.
public typealias WeightScaleService = ProfileService<WeightScale>

/// A weight, characteristic 2A9D. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Weight Scale Service 1.0, 3.2; GATT Specification Supplement, "Weight Measurement".
public struct WeightMeasurement: StructuredValue, Hashable {
    /// 2A9D.
    public static let uuid = CBUUID(string: "2A9D")

    /// In 5 g, or in 0.01 lb if ``isImperial``; nil: the measurement was not successful.
    public var weight: UInt16?
    /// The units are pounds and inches.
    public var isImperial = false
    /// When it was measured; nil: not included.
    public var time: DateTime?
    /// The user; 255: unknown. Nil: not included.
    public var user: UInt8?
    /// Body mass index and height; nil: not included.
    public var body: Body?

    /// Not successful.
    public init() {}

    /// In kg, converted if ``isImperial``; nil: the measurement was not successful.
    public var kilograms: Double? { weight.map { isImperial ? Double($0) * 0.0045359237 : Double($0) / 200 } }

    /// Body mass index and height. BluezKit addition.
    public struct Body: FieldValue, Hashable {
        /// In 0.1 kg/m².
        public var bodyMassIndex: UInt16 = 0
        /// In mm, or in 0.1 in if ``WeightMeasurement/isImperial``.
        public var height: UInt16 = 0
        /// 0 and 0.
        public init() {}
        /// Reads or writes the fields, in the order in which they are transmitted.
        public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
            try fields.field("body mass index", &bodyMassIndex)
            try fields.field("height", &height)
        }
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 1)
        fields.flag(0, &isImperial)
        try fields.field("weight", &weight, unknown: 0xFFFF)
        try fields.field("time stamp", &time, ifBit: 1)
        try fields.field("user ID", &user, ifBit: 2)
        try fields.field("body mass index and height", &body, ifBit: 3)
    }
}

/// What a scale can do, characteristic 2A9E. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, "Weight Scale Feature".
public struct WeightScaleFeature: FlagSet, StructuredValue, Hashable {
    /// 2A9E.
    public static let uuid = CBUUID(string: "2A9E")
    /// The flags as bits. Bits 3 to 6 are the resolution of the weight, bits 7 to 9 that of the height: 0 is not
    /// specified, larger numbers are finer.
    public let rawValue: UInt32
    /// Features from their bits.
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// It has a clock.
    public static let timeStamp = Self(rawValue: 1 << 0)
    /// It knows several users.
    public static let multipleUsers = Self(rawValue: 1 << 1)
    /// It calculates the body mass index.
    public static let bodyMassIndex = Self(rawValue: 1 << 2)
    /// All of these, and the resolutions.
    public static let assigned = Self(rawValue: 0x0000_03FF)
}
