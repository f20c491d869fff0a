import Foundation

/// Reads the fields of a value one after the other. Any bytes are allowed.
struct FieldReader {
    private var rest: Data

    init(_ value: Data?) throws(CharacteristicValueError) {
        guard let value else { throw .missing }
        rest = value
    }

    init(bytes: Data) { rest = bytes }

    var isAtEnd: Bool { rest.isEmpty }

    mutating func takeRest() -> Data {
        defer { rest = Data() }
        return Data(rest)
    }

    mutating func uint8(_ field: String) throws(CharacteristicValueError) -> UInt8 {
        guard let byte = rest.popFirst() else { throw .truncated(field: field) }
        return byte
    }

    mutating func uint16(_ field: String) throws(CharacteristicValueError) -> UInt16 {
        UInt16(truncatingIfNeeded: try number(field, bytes: 2))
    }

    /// A number of up to eight bytes.
    mutating func number(_ field: String, bytes: Int) throws(CharacteristicValueError) -> UInt64 {
        var number: UInt64 = 0
        for index in 0..<bytes { number |= UInt64(try uint8(field)) << (8 * index) }
        return number
    }

    /// A number within a range.
    mutating func uint8(_ field: String, in range: ClosedRange<Int>) throws(CharacteristicValueError) -> Int {
        let number = Int(try uint8(field))
        guard range.contains(number) else { throw .reserved(field: field, value: number) }
        return number
    }

    /// One of the values of an enumeration.
    mutating func one<Value: RawRepresentable<UInt8>>(
        _ field: String, of type: Value.Type
    ) throws(CharacteristicValueError) -> Value {
        let number = try uint8(field)
        guard let value = Value(rawValue: number) else { throw .reserved(field: field, value: Int(number)) }
        return value
    }
}

extension Data {
    mutating func append(number: some FixedWidthInteger & UnsignedInteger, bytes: Int) {
        for index in 0..<bytes { append(UInt8(truncatingIfNeeded: number >> (8 * index))) }
    }

    mutating func append(_ number: UInt16) { append(number: number, bytes: 2) }
}
