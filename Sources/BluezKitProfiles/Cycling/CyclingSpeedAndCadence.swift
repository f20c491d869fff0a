public import BluezKit

/// The Cycling Speed and Cadence service, 1816. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Cycling Speed and Cadence Service 1.0.
public enum CyclingSpeedAndCadence: ServiceProfile {
    /// 1816.
    public static let uuid = CBUUID(string: "1816")
    /// Location and control point are optional.
    public static let characteristics = [
        ProfileCharacteristic(CSCMeasurement.self, .notify),
        ProfileCharacteristic(CSCFeature.self, .read),
        ProfileCharacteristic(SensorLocation.self, .read, isOptional: true),
        ProfileCharacteristic(SCControlPoint.self, [.write, .indicate], isOptional: true),
    ]
}

/// The server side of ``CyclingSpeedAndCadence``. BluezKit addition.
public typealias CyclingSpeedAndCadenceService = ProfileService<CyclingSpeedAndCadence>

/// Revolutions of wheel and crank, characteristic 2A5B. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Cycling Speed and Cadence Service 1.0, 3.1; GATT Specification Supplement, "CSC
///   Measurement".
public struct CSCMeasurement: StructuredValue, Hashable {
    /// 2A5B.
    public static let uuid = CBUUID(string: "2A5B")

    /// Of the wheel, with times in 1/1024 s; nil: not included.
    public var wheel: WheelRevolutions?
    /// Of the crank; nil: not included.
    public var crank: CrankRevolutions?

    /// Without wheel and crank.
    public init() {}

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 1)
        try fields.field("wheel revolutions", &wheel, ifBit: 0)
        try fields.field("crank revolutions", &crank, ifBit: 1)
    }
}

/// The count of wheel revolutions. BluezKit addition.
public struct WheelRevolutions: FieldValue, Hashable {
    /// Since any moment; it can go back if the wheel turns backwards, and wraps.
    public var count: UInt32
    /// When the last revolution ended, in 1/1024 s (Cycling Speed and Cadence) or 1/2048 s (Cycling Power); it wraps.
    public var lastEventTime: UInt16

    /// A count.
    public init(count: UInt32, lastEventTime: UInt16) { (self.count, self.lastEventTime) = (count, lastEventTime) }

    /// 0.
    public init() { self.init(count: 0, lastEventTime: 0) }

    /// Revolutions per second since an earlier measurement; nil if there was no revolution, or if the wheel turned
    /// backwards.
    /// - Parameters:
    ///   - earlier: Measured less than 64 s (32 s for Cycling Power) before.
    ///   - ticks: In a second: 1024 for ``CSCMeasurement``, 2048 for ``CyclingPowerMeasurement``.
    public func rate(since earlier: Self, ticks: Double) -> Double? {
        let turns = Int32(truncatingIfNeeded: count &- earlier.count)
        let time = lastEventTime &- earlier.lastEventTime
        return turns > 0 && time > 0 ? Double(turns) * ticks / Double(time) : nil
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
        try fields.field(name, &count)
        try fields.field("last wheel event time", &lastEventTime)
    }
}

/// The count of crank revolutions. BluezKit addition.
public struct CrankRevolutions: FieldValue, Hashable {
    /// Since any moment; it wraps.
    public var count: UInt16
    /// When the last revolution ended, in 1/1024 s; it wraps.
    public var lastEventTime: UInt16

    /// A count.
    public init(count: UInt16, lastEventTime: UInt16) { (self.count, self.lastEventTime) = (count, lastEventTime) }

    /// 0.
    public init() { self.init(count: 0, lastEventTime: 0) }

    /// Revolutions per minute since an earlier measurement, less than 64 s before; nil if there was no revolution.
    public func cadence(since earlier: Self) -> Double? {
        let (turns, time) = (count &- earlier.count, lastEventTime &- earlier.lastEventTime)
        return turns > 0 && time > 0 ? Double(turns) * 60 * 1024 / Double(time) : nil
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
        try fields.field(name, &count)
        try fields.field("last crank event time", &lastEventTime)
    }
}

/// What a speed and cadence sensor can do, characteristic 2A5C. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, "CSC Feature".
public struct CSCFeature: FlagSet, StructuredValue, Hashable {
    /// 2A5C.
    public static let uuid = CBUUID(string: "2A5C")
    /// The flags as bits.
    public let rawValue: UInt16
    /// Features from their bits.
    public init(rawValue: UInt16) { self.rawValue = rawValue }

    /// It counts the revolutions of the wheel.
    public static let wheelRevolutions = Self(rawValue: 1 << 0)
    /// It counts the revolutions of the crank.
    public static let crankRevolutions = Self(rawValue: 1 << 1)
    /// It can be mounted at several locations.
    public static let multipleSensorLocations = Self(rawValue: 1 << 2)
    /// All of these.
    public static let assigned = Self(rawValue: 0x0007)
}

/// Where a sensor is mounted, characteristic 2A5D. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, "Sensor Location".
public enum SensorLocation: UInt8, EnumeratedValue, StructuredValue {
    /// A place on the shoe, the body, or the bicycle.
    case other, topOfShoe, inShoe, hip, frontWheel, leftCrank, rightCrank, leftPedal, rightPedal, frontHub, rearDropout,
        chainstay, rearWheel, rearHub, chest, spider, chainRing

    /// 2A5D.
    public static let uuid = CBUUID(string: "2A5D")

    /// Another place.
    public init() { self = .other }
}
