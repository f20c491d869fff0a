/// A number of which the Bluetooth SIG has assigned some to the values of an enumeration. It is nil for the others,
/// which devices send nevertheless; the property with a `$` before its name is the number. BluezKit addition.
///
/// ```swift
/// measurement.type   // nil: not included, or a number that is not assigned
/// measurement.$type  // nil: not included
/// ```
@propertyWrapper
public struct Assigned<Value: RawRepresentable<UInt8> & Sendable>: Hashable, Sendable {
    /// The number as transmitted; nil: not included.
    public var projectedValue: UInt8?

    /// Its value; nil: not included, or not assigned.
    public var wrappedValue: Value? {
        get { projectedValue.flatMap(Value.init) }
        set { projectedValue = newValue?.rawValue }
    }

    /// The number of a value.
    public init(wrappedValue: Value?) { projectedValue = wrappedValue?.rawValue }

    /// A number as transmitted.
    init(number: UInt8) { projectedValue = number }
}

extension FieldCoder {
    /// An enumeration in one byte, of which numbers that are not assigned are kept.
    public mutating func field<V: EnumeratedValue>(
        _ name: String, _ value: inout Assigned<V>
    ) throws(CharacteristicValueError) {
        var number = value.projectedValue ?? V().rawValue
        try field(name, &number)
        value.projectedValue = number
    }

    /// An enumeration in one byte that is included if a flag is set; nil: not included.
    public mutating func field<V: EnumeratedValue>(
        _ name: String, _ value: inout Assigned<V>, ifBit bit: Int
    ) throws(CharacteristicValueError) { try field(name, &value.projectedValue, ifBit: bit) }

    /// Two enumerations in one byte, the first in its low half.
    public mutating func halves<Low: EnumeratedValue, High: EnumeratedValue>(
        _ name: String, _ low: inout Assigned<Low>, _ high: inout Assigned<High>
    ) throws(CharacteristicValueError) {
        var byte = (low.projectedValue ?? Low().rawValue) & 0xF | (high.projectedValue ?? High().rawValue) << 4
        try field(name, &byte)
        (low.projectedValue, high.projectedValue) = (byte & 0xF, byte >> 4)
    }
}
