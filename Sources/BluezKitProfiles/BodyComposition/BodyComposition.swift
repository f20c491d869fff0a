public import BluezKit
import Foundation

/// The Body Composition service, 181B. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Body Composition Service 1.0.
public enum BodyComposition: ServiceProfile {
    /// 181B.
    public static let uuid = CBUUID(string: "181B")
    /// Both characteristics are mandatory.
    public static let characteristics = [
        ProfileCharacteristic(BodyCompositionFeature.self, .read),
        ProfileCharacteristic(BodyCompositionMeasurement.self, .indicate),
    ]
}

/// The server side of ``BodyComposition``. BluezKit addition.
public typealias BodyCompositionService = ProfileService<BodyComposition>

/// What a body consists of, characteristic 2A9C. BluezKit addition.
///
/// Masses are in 5 g, or in 0.01 lb if ``isImperial``.
/// - SeeAlso: Bluetooth SIG, Body Composition Service 1.0, 3.2; GATT Specification Supplement, "Body Composition
///   Measurement".
public struct BodyCompositionMeasurement: StructuredValue, Hashable {
    /// 2A9C.
    public static let uuid = CBUUID(string: "2A9C")

    /// In 0.1 %; nil: the measurement was not successful.
    public var fatPercentage: UInt16?
    /// The units are pounds and inches.
    public var isImperial = false
    /// When it was measured; nil: not included.
    public var time: DateTime?
    /// The user; 255: unknown. Nil: not included.
    public var user: UInt8?
    /// In kJ; nil: not included.
    public var basalMetabolism: UInt16?
    /// In 0.1 %; nil: not included.
    public var musclePercentage: UInt16?
    /// The mass of the muscles; nil: not included.
    public var muscleMass: UInt16?
    /// The mass without fat; nil: not included.
    public var fatFreeMass: UInt16?
    /// The mass without fat and bones; nil: not included.
    public var softLeanMass: UInt16?
    /// The mass of the water; nil: not included.
    public var waterMass: UInt16?
    /// In 0.1 Ω; nil: not included.
    public var impedance: UInt16?
    /// The whole mass; nil: not included.
    public var weight: UInt16?
    /// In mm, or in 0.1 in if ``isImperial``; nil: not included.
    public var height: UInt16?
    /// This is one of several packets of the same measurement: see ``add(packet:)``.
    public var hasSeveralPackets = false

    /// Not successful.
    public init() {}

    /// A mass in kg, converted if ``isImperial``.
    public func kilograms(_ mass: UInt16) -> Double {
        isImperial ? Double(mass) * 0.0045359237 : Double(mass) / 200
    }

    /// Adds the fields of another packet of the same measurement, if both say that there are several.
    public mutating func add(packet value: Data?) throws(CharacteristicValueError) {
        var sum = self
        _ = try sum.add(value)
        self = sum
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 2)
        fields.flag(0, &isImperial)
        fields.flag(12, &hasSeveralPackets)
        try fields.field("body fat percentage", &fatPercentage, unknown: 0xFFFF)
        try fields.field("time stamp", &time, ifBit: 1)
        try fields.field("user ID", &user, ifBit: 2)
        try fields.field("basal metabolism", &basalMetabolism, ifBit: 3)
        try fields.field("muscle percentage", &musclePercentage, ifBit: 4)
        try fields.field("muscle mass", &muscleMass, ifBit: 5)
        try fields.field("fat free mass", &fatFreeMass, ifBit: 6)
        try fields.field("soft lean mass", &softLeanMass, ifBit: 7)
        try fields.field("body water mass", &waterMass, ifBit: 8)
        try fields.field("impedance", &impedance, ifBit: 9)
        try fields.field("weight", &weight, ifBit: 10)
        try fields.field("height", &height, ifBit: 11)
    }
}

/// What a body composition analyzer can do, characteristic 2A9B. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, "Body Composition Feature".
public struct BodyCompositionFeature: FlagSet, StructuredValue, Hashable {
    /// 2A9B.
    public static let uuid = CBUUID(string: "2A9B")
    /// The flags as bits. Bits 11 to 14 are the resolution of masses, bits 15 to 17 that of the height: 0 is not
    /// specified, larger numbers are finer.
    public let rawValue: UInt32
    /// Features from their bits.
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// It has a clock.
    public static let timeStamp = Self(rawValue: 1 << 0)
    /// It knows several users.
    public static let multipleUsers = Self(rawValue: 1 << 1)
    /// It calculates the basal metabolism.
    public static let basalMetabolism = Self(rawValue: 1 << 2)
    /// It measures the percentage of the muscles.
    public static let musclePercentage = Self(rawValue: 1 << 3)
    /// It measures the mass of the muscles.
    public static let muscleMass = Self(rawValue: 1 << 4)
    /// It measures the mass without fat.
    public static let fatFreeMass = Self(rawValue: 1 << 5)
    /// It measures the mass without fat and bones.
    public static let softLeanMass = Self(rawValue: 1 << 6)
    /// It measures the mass of the water.
    public static let waterMass = Self(rawValue: 1 << 7)
    /// It measures the impedance.
    public static let impedance = Self(rawValue: 1 << 8)
    /// It measures the weight.
    public static let weight = Self(rawValue: 1 << 9)
    /// It measures the height.
    public static let height = Self(rawValue: 1 << 10)
    /// All of these, and the resolutions.
    public static let assigned = Self(rawValue: 0x0003_FFFF)
}
