public import BluezKit

/// The Health Thermometer service, 1809. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Health Thermometer Service 1.0.
public enum HealthThermometer: ServiceProfile {
    /// 1809.
    public static let uuid = CBUUID(string: "1809")
    /// The characteristic of measurements that are not final, 2A1E, in the layout of ``TemperatureMeasurement``.
    public static let intermediateTemperature = CBUUID(string: "2A1E")
    /// The measurement is indicated; type, intermediate temperature and interval are optional.
    public static let characteristics = [
        ProfileCharacteristic(TemperatureMeasurement.self, .indicate),
        ProfileCharacteristic(TemperatureType.self, .read, isOptional: true),
        ProfileCharacteristic(intermediateTemperature, .notify, isOptional: true),
        ProfileCharacteristic(MeasurementInterval.self, .read, isOptional: true),
    ]
}

/// The server side of ``HealthThermometer``. BluezKit addition.
public typealias HealthThermometerService = ProfileService<HealthThermometer>

/// The temperature of a body, characteristic 2A1C; also the layout of 2A1E. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Health Thermometer Service 1.0, 3.1; GATT Specification Supplement,
///   "Temperature Measurement".
public struct TemperatureMeasurement: StructuredValue, Hashable {
    /// 2A1C.
    public static let uuid = CBUUID(string: "2A1C")

    /// In °C, or in °F if ``isFahrenheit``.
    public var temperature = MedFloat32()
    /// The unit is °F.
    public var isFahrenheit = false
    /// When it was measured; nil: not included.
    public var time: DateTime?
    /// Where it was measured; nil: not included, or a number that is not assigned.
    @Assigned public var type: TemperatureType?

    /// 0 °C.
    public init() {}

    /// In °C, converted if ``isFahrenheit``; nil: not a number.
    public var celsius: Double? { temperature.value.map { isFahrenheit ? ($0 - 32) / 1.8 : $0 } }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 1)
        fields.flag(0, &isFahrenheit)
        try fields.field("temperature", &temperature)
        try fields.field("time stamp", &time, ifBit: 1)
        try fields.field("temperature type", &_type, ifBit: 2)
    }
}

/// Where a temperature is measured, characteristic 2A1D. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, "Temperature Type".
public enum TemperatureType: UInt8, EnumeratedValue, StructuredValue {
    /// A place on or in the body; `body` is the body in general.
    case armpit = 1, body, ear, finger, gastrointestinalTract, mouth, rectum, toe, tympanum

    /// 2A1D.
    public static let uuid = CBUUID(string: "2A1D")

    /// The body in general.
    public init() { self = .body }
}

/// The time between two measurements, characteristic 2A21. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, "Measurement Interval".
public struct MeasurementInterval: StructuredValue, Hashable {
    /// 2A21.
    public static let uuid = CBUUID(string: "2A21")

    /// In seconds; 0: no periodic measurements.
    public var seconds: UInt16 = 0

    /// No periodic measurements.
    public init() {}

    /// The field.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.field("measurement interval", &seconds)
    }
}
