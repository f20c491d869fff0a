import Foundation

/// Reads the fields of a value one after the other. Any bytes are allowed.
struct FieldReader {
    private let whole: Data
    private var rest: Data

    init(_ value: Data?) throws(CharacteristicValueError) {
        guard let value else { throw .missing }
        self.init(bytes: value)
    }

    init(bytes: Data) { (whole, rest) = (bytes, bytes) }

    var isAtEnd: Bool { rest.isEmpty }

    var bytesLeft: Int { rest.count }

    /// What has been read.
    var consumed: Data { whole.dropLast(rest.count) }

    /// Of a request, whose meaning later versions do not extend.
    func end() throws(CharacteristicValueError) {
        guard rest.isEmpty else { throw .trailing(bytes: rest.count) }
    }

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

extension String {
    /// A text that may have been cut to a length. A character of which the end is missing is left out; other invalid
    /// UTF-8 becomes U+FFFD.
    init(cut bytes: Data) {
        let continuing = bytes.reversed().prefix(3).prefix { $0 & 0xC0 == 0x80 }.count
        let length =
            switch bytes.dropLast(continuing).last {
            case .some(0xC2...0xDF): 2
            case .some(0xE0...0xEF): 3
            case .some(0xF0...0xF4): 4
            default: 1
            }
        self.init(decoding: continuing + 1 < length ? bytes.dropLast(continuing + 1) : bytes, as: UTF8.self)
    }
}
