public import Foundation

/// A value whose layout is described once, and read and written by that description. BluezKit addition.
///
/// ```swift
/// struct TankLevel: StructuredValue {
///     static let uuid = CBUUID(string: "5B5A0001-7B45-4F61-8A2E-1F3D5C7E9B11")
///     var liters: UInt16 = 0
///     var celsius: Int8?
///
///     mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
///         try fields.flags(bytes: 1)
///         try fields.field("level", &liters)
///         try fields.field("temperature", &celsius, ifBit: 0)
///     }
/// }
///
/// let level = TankLevel { $0.liters = 40 }
/// ```
public protocol StructuredValue: CharacteristicValue {
    /// A value without any field set.
    init()

    /// Reads or writes the fields, in the order of transmission. Only reading throws.
    mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError)
}

extension StructuredValue {
    /// A value with some fields set; the others have 0, or are not included.
    public init(_ set: (inout Self) -> Void) {
        self.init()
        set(&self)
    }

    /// Reads a value.
    public init(_ value: Data?) throws(CharacteristicValueError) {
        var fields = FieldCoder(reading: try FieldReader(value))
        self.init()
        try code(&fields)
    }

    /// Reads more of the value: fields that are not included keep the value that they have.
    /// - Returns: Whether one that is included had a value already.
    mutating func add(_ value: Data?) throws(CharacteristicValueError) -> Bool {
        var fields = FieldCoder(reading: try FieldReader(value), adding: true)
        try code(&fields)
        return fields.hasRepeated
    }

    /// The value as transmitted. A number outside the range of its field is transmitted as the nearest one within.
    public var data: Data {
        var (copy, fields) = (self, FieldCoder())
        try? copy.code(&fields)  // only reading throws
        return fields.written
    }
}

/// What can be a field of a ``StructuredValue``: integers, enumerations, sets of flags, ``MedFloat``, ``DateTime``.
/// BluezKit addition.
public protocol FieldValue: Equatable, Sendable {
    /// The value of a field that has not been set.
    init()

    /// Reads or writes the field. Only reading throws.
    mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError)
}

extension FieldValue {
    /// The field on its own, as transmitted.
    var encoded: Data {
        var (copy, fields) = (self, FieldCoder())
        try? copy.code(&fields, as: "field")  // only reading throws
        return fields.written
    }

    /// Reads the field on its own; nil if the bytes end within it.
    init?(decoding bytes: Data) {
        self.init()
        var fields = FieldCoder(reading: FieldReader(bytes: bytes))
        guard (try? code(&fields, as: "field")) != nil else { return nil }
    }
}

extension FieldValue where Self: FixedWidthInteger {
    /// The number, in as many bytes as it has.
    public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
        var bits = UInt64(truncatingIfNeeded: self)
        try fields.bits(name, &bits, bytes: Self.bitWidth / 8)
        self = Self(truncatingIfNeeded: bits)
    }
}

extension UInt8: FieldValue {}
extension UInt16: FieldValue {}
extension UInt32: FieldValue {}
extension Int8: FieldValue {}
extension Int16: FieldValue {}

/// An enumeration in one byte. Numbers that the Bluetooth SIG has not assigned are errors, but in fields that are
/// ``Assigned``, which keep them. BluezKit addition.
public protocol EnumeratedValue: FieldValue, RawRepresentable<UInt8>, CaseIterable {}

extension EnumeratedValue {
    /// The value as a characteristic of its own.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try code(&fields, as: "value")
    }

    /// The value of a number.
    public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
        var number = rawValue
        try number.code(&fields, as: name)
        guard let value = Self(rawValue: number) else { throw .reserved(field: name, value: Int(number)) }
        self = value
    }
}

/// A set of flags. Bits that the Bluetooth SIG has not assigned are ignored. BluezKit addition.
public protocol FlagSet: OptionSet, FieldValue where RawValue: FixedWidthInteger & UnsignedInteger & Sendable {
    /// All flags that are assigned.
    static var assigned: Self { get }
    /// The bytes that it takes; by default those of its raw value.
    static var bytes: Int { get }
}

extension FlagSet {
    /// The bytes of the raw value.
    public static var bytes: Int { RawValue.bitWidth / 8 }

    /// The assigned flags.
    public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
        var bits = UInt64(intersection(.assigned).rawValue)
        try fields.bits(name, &bits, bytes: Self.bytes)
        self = Self(rawValue: RawValue(truncatingIfNeeded: bits)).intersection(.assigned)
    }

    /// The set as a characteristic of its own.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try code(&fields, as: "features")
    }
}
