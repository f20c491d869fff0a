public import BluezKit
import Foundation

/// How a characteristic of the Environmental Sensing service is measured: its descriptor ES Measurement, 290C. BluezKit
/// addition.
/// - SeeAlso: Bluetooth SIG, Environmental Sensing Service 1.0, 3.1.2.1 (ES Measurement descriptor).
public struct EnvironmentalMeasurement: StructuredValue, Hashable {
    /// 290C.
    public static let uuid = CBUUID(string: "290C")

    /// What a reading is of the samples in the measurement period; nil: a number that is not assigned.
    @Assigned public var function: Function? = .unspecified
    /// The measurement period in seconds, 1 to 16,777,215; 0: not in use.
    public var period: UInt32 = 0
    /// The time between two updates inside the sensor, in seconds, 1 to 16,777,215; 0: not in use.
    public var updateInterval: UInt32 = 0
    /// What is measured, or where; nil: a number that is not assigned.
    @Assigned public var application: Application? = .unspecified
    /// In steps of 0.5 %, 0 to 254; nil: not known.
    public var uncertainty: UInt8?

    /// Nothing is known.
    public init() {}

    /// What a reading is of the samples in the measurement period. BluezKit addition.
    public enum Function: UInt8, EnumeratedValue {
        /// A function.
        case unspecified, instantaneous, arithmeticMean, rootMeanSquare, maximum, minimum, accumulated, count
        /// Unspecified.
        public init() { self = .unspecified }
    }

    /// What is measured, or where. BluezKit addition.
    public enum Application: UInt8, EnumeratedValue {
        /// An application.
        case unspecified, air, water, barometric, soil, infrared, mapDatabase, barometricElevation, gpsElevation,
            gpsAndMapElevation, verticalDatumElevation, onshore, onboard, front, back, upper, lower, primary, secondary,
            outdoor, indoor, top, bottom, main, backup, auxiliary, supplementary, inside, outside, left, right,
            `internal`,
            external, solar
        /// Unspecified.
        public init() { self = .unspecified }
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 2)  // none is assigned
        try fields.field("sampling function", &_function)
        try fields.seconds("measurement period", &period)
        try fields.seconds("update interval", &updateInterval)
        try fields.field("application", &_application)
        try fields.field("uncertainty", &uncertainty, unknown: 0xFF)
    }
}

/// When a characteristic of the Environmental Sensing service is notified: its descriptor ES Trigger Setting, 290D, of
/// which it can have up to three. BluezKit addition.
///
/// ```swift
/// let warm = EnvironmentalTrigger {
///     ($0.condition, $0.reference) = (.greater, EnvironmentalReading(.temperature, 25)?.data ?? Data())
/// }
/// peripheral.writeValue(warm.data, for: descriptor)
/// ```
/// - SeeAlso: Bluetooth SIG, Environmental Sensing Service 1.0, 3.1.2.2 (ES Trigger Setting descriptor).
public struct EnvironmentalTrigger: StructuredValue, Hashable {
    /// 290D.
    public static let uuid = CBUUID(string: "290D")

    /// When.
    public var condition = Condition.inactive
    /// Of the two conditions of time: in seconds, 0 to 16,777,215.
    public var seconds: UInt32 = 0
    /// Of the conditions that compare: a value of the characteristic, as ``EnvironmentalReading/data`` has it.
    public var reference = Data()

    /// Inactive.
    public init() {}

    /// When a characteristic is notified. BluezKit addition.
    public enum Condition: UInt8, EnumeratedValue {
        /// A condition: `interval` after each ``EnvironmentalTrigger/seconds``, `minimumInterval` at most so often;
        /// `less` and those that follow: while the value is so, compared with ``EnvironmentalTrigger/reference``.
        case inactive, interval, minimumInterval, changed, less, lessOrEqual, greater, greaterOrEqual, equal, notEqual
        /// Inactive.
        public init() { self = .inactive }
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.field("condition", &condition)
        switch condition {
        case .inactive, .changed: break
        case .interval, .minimumInterval: try fields.seconds("interval", &seconds)
        case .less, .lessOrEqual, .greater, .greaterOrEqual, .equal, .notEqual:
            fields.rest(&reference)
            if reference.isEmpty { throw .truncated(field: "reference value") }
        }
    }
}

extension FieldCoder {
    /// A time in three bytes.
    fileprivate mutating func seconds(_ name: String, _ seconds: inout UInt32) throws(CharacteristicValueError) {
        var bits = UInt64(min(seconds, 0xFF_FFFF))
        try self.bits(name, &bits, bytes: 3)
        seconds = UInt32(truncatingIfNeeded: bits)
    }
}
