public import BluezKit

/// The Environmental Sensing service, 181A. BluezKit addition.
///
/// A server includes the characteristics of what it measures, and sends readings:
/// ```swift
/// let sensor = EnvironmentalSensingService(including: [EnvironmentalQuantity.temperature.uuid])
/// if let reading = EnvironmentalReading(.temperature, 21.5) {
///     sensor.send(reading.data, of: reading.quantity.uuid, by: manager)
/// }
/// ```
/// The descriptors for triggers and measurement conditions are not published, because apps cannot publish descriptors
/// with these UUIDs in Apple's API.
/// - SeeAlso: Bluetooth SIG, Environmental Sensing Service 1.0.
public enum EnvironmentalSensing: ServiceProfile {
    /// 181A.
    public static let uuid = CBUUID(string: "181A")
    /// Each ``EnvironmentalQuantity``, and the two of magnetic flux density; all are optional, read, and notified.
    public static let characteristics =
        EnvironmentalQuantity.allCases.map {
            ProfileCharacteristic(
                $0.uuid, [.read, .notify], isOptional: true, initialValue: EnvironmentalReading(initial: $0).data)
        } + [
            ProfileCharacteristic(MagneticFluxDensity2D.self, [.read, .notify], isOptional: true),
            ProfileCharacteristic(MagneticFluxDensity3D.self, [.read, .notify], isOptional: true),
        ]
}

/// The server side of ``EnvironmentalSensing``. BluezKit addition.
public typealias EnvironmentalSensingService = ProfileService<EnvironmentalSensing>

/// A magnetic field in two directions, characteristic 2AA0. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, "Magnetic Flux Density - 2D".
public struct MagneticFluxDensity2D: StructuredValue, Hashable {
    /// 2AA0.
    public static let uuid = CBUUID(string: "2AA0")

    /// Along the X axis, in 0.1 µT.
    public var x: Int16 = 0
    /// Along the Y axis, in 0.1 µT.
    public var y: Int16 = 0

    /// No field.
    public init() {}

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.field("X axis", &x)
        try fields.field("Y axis", &y)
    }
}

/// A magnetic field in three directions, characteristic 2AA1. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, "Magnetic Flux Density - 3D".
public struct MagneticFluxDensity3D: StructuredValue, Hashable {
    /// 2AA1.
    public static let uuid = CBUUID(string: "2AA1")

    /// Along the X axis, in 0.1 µT.
    public var x: Int16 = 0
    /// Along the Y axis, in 0.1 µT.
    public var y: Int16 = 0
    /// Along the Z axis, in 0.1 µT.
    public var z: Int16 = 0

    /// No field.
    public init() {}

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.field("X axis", &x)
        try fields.field("Y axis", &y)
        try fields.field("Z axis", &z)
    }
}
