public import BluezKit

/// The Running Speed and Cadence service, 1814. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Running Speed and Cadence Service 1.0.
public enum RunningSpeedAndCadence: ServiceProfile {
    /// 1814.
    public static let uuid = CBUUID(string: "1814")
    /// Location and control point are optional.
    public static let characteristics = [
        ProfileCharacteristic(RSCMeasurement.self, .notify),
        ProfileCharacteristic(RSCFeature.self, .read),
        ProfileCharacteristic(SensorLocation.self, .read, isOptional: true),
        ProfileCharacteristic(SCControlPoint.self, [.write, .indicate], isOptional: true),
    ]
}

/// The server side of ``RunningSpeedAndCadence``. BluezKit addition.
public typealias RunningSpeedAndCadenceService = ProfileService<RunningSpeedAndCadence>

/// Speed and cadence of a runner, characteristic 2A53. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Running Speed and Cadence Service 1.0, 3.1; GATT Specification Supplement, "RSC
///   Measurement".
public struct RSCMeasurement: StructuredValue, Hashable {
    /// 2A53.
    public static let uuid = CBUUID(string: "2A53")

    /// In 1/256 m/s.
    public var speed: UInt16 = 0
    /// Steps of one foot or of both, as the sensor counts, per minute.
    public var cadence: UInt8 = 0
    /// In cm; nil: not included.
    public var strideLength: UInt16?
    /// In 0.1 m; nil: not included.
    public var totalDistance: UInt32?
    /// Running, not walking.
    public var isRunning = false

    /// Standing still.
    public init() {}

    /// ``speed`` in m/s.
    public var metersPerSecond: Double { Double(speed) / 256 }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 1)
        fields.flag(2, &isRunning)
        try fields.field("speed", &speed)
        try fields.field("cadence", &cadence)
        try fields.field("stride length", &strideLength, ifBit: 0)
        try fields.field("total distance", &totalDistance, ifBit: 1)
    }
}

/// What a runner's sensor can do, characteristic 2A54. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, "RSC Feature".
public struct RSCFeature: FlagSet, StructuredValue, Hashable {
    /// 2A54.
    public static let uuid = CBUUID(string: "2A54")
    /// The flags as bits.
    public let rawValue: UInt16
    /// Features from their bits.
    public init(rawValue: UInt16) { self.rawValue = rawValue }

    /// It measures the stride length.
    public static let strideLength = Self(rawValue: 1 << 0)
    /// It measures the total distance.
    public static let totalDistance = Self(rawValue: 1 << 1)
    /// It tells running from walking.
    public static let walkingOrRunning = Self(rawValue: 1 << 2)
    /// It can be calibrated.
    public static let calibration = Self(rawValue: 1 << 3)
    /// It can be worn at several locations.
    public static let multipleSensorLocations = Self(rawValue: 1 << 4)
    /// All of these.
    public static let assigned = Self(rawValue: 0x001F)
}
