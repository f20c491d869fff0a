public import Foundation

/// Reads or writes the fields of a ``StructuredValue``, in the order of transmission, little-endian. BluezKit addition.
public struct FieldCoder {
    /// Nil: it writes.
    private var reader: FieldReader?
    private var data = Data()
    private var flags: UInt64 = 0
    private var flagBytes = 0

    init() {}

    init(reading reader: FieldReader) { self.reader = reader }

    /// What was written, with the flags that the fields have set.
    var written: Data {
        var flagged = Data()
        flagged.append(number: flags, bytes: flagBytes)
        return flagged + data.dropFirst(flagBytes)
    }

    var isReading: Bool { reader != nil }

    // MARK: Flags

    /// The flags, which come first. They say which of the fields that follow are included.
    public mutating func flags(bytes: Int) throws(CharacteristicValueError) {
        flagBytes = bytes
        var flags: UInt64 = 0
        try bits("flags", &flags, bytes: bytes)
        self.flags = flags
    }

    /// A flag.
    public mutating func flag(_ bit: Int, _ isSet: inout Bool) {
        if reader != nil {
            isSet = flags >> bit & 1 == 1
        } else if isSet {
            flags |= 1 << bit
        }
    }

    // MARK: Fields

    /// A field.
    public mutating func field<V: FieldValue>(
        _ name: String, _ value: inout V
    ) throws(CharacteristicValueError) {
        try value.code(&self, as: name)
    }

    /// A field that is included if a flag is set; nil: not included, or the value ends before it or within it. Then the
    /// fields that follow are not there either.
    public mutating func field<V: FieldValue>(
        _ name: String, _ value: inout V?, ifBit bit: Int
    ) throws(CharacteristicValueError) {
        var isIncluded = value != nil
        flag(bit, &isIncluded)
        var field = value ?? V()
        value = nil
        guard isIncluded, try isWhole({ (coder) throws(CharacteristicValueError) in try field.code(&coder, as: name) })
        else { return }
        value = field
    }

    /// Whether the value has not ended before `code` has read all.
    private mutating func isWhole(
        _ code: (inout Self) throws(CharacteristicValueError) -> Void
    ) throws(CharacteristicValueError) -> Bool {
        do throws(CharacteristicValueError) {
            try code(&self)
            return true
        } catch {
            guard case .truncated = error else { throw error }
            return false
        }
    }

    /// A number within a range.
    public mutating func field<V: FieldValue & FixedWidthInteger>(
        _ name: String, _ value: inout V, in range: ClosedRange<V>
    ) throws(CharacteristicValueError) {
        value = min(max(value, range.lowerBound), range.upperBound)
        try value.code(&self, as: name)
        guard range.contains(value) else { throw .reserved(field: name, value: Int(truncatingIfNeeded: value)) }
    }

    /// A number, one of whose values means that it is unknown: nil.
    public mutating func field<V: FieldValue & FixedWidthInteger>(
        _ name: String, _ value: inout V?, unknown: V
    ) throws(CharacteristicValueError) {
        var number = value ?? unknown
        try number.code(&self, as: name)
        value = number == unknown ? nil : number
    }

    /// Fields of the same kind up to the end of the value, if a flag is set, else none. The last one is left out if it
    /// is cut off.
    public mutating func list<V: FieldValue>(
        _ name: String, _ values: inout [V], ifBit bit: Int
    ) throws(CharacteristicValueError) {
        var isIncluded = !values.isEmpty
        flag(bit, &isIncluded)
        guard isIncluded else {
            values = []
            return
        }
        guard reader != nil else {
            for var value in values { try value.code(&self, as: name) }
            return
        }
        values = []
        while reader?.isAtEnd == false {
            var value = V()
            guard try isWhole({ (coder) throws(CharacteristicValueError) in try value.code(&coder, as: name) }) else {
                return
            }
            values.append(value)
        }
    }

    /// All bytes up to the end of the value.
    public mutating func rest(_ bytes: inout Data) {
        if reader == nil { data += bytes } else { bytes = reader?.takeRest() ?? Data() }
    }

    /// A number of up to eight bytes.
    public mutating func bits(_ name: String, _ bits: inout UInt64, bytes: Int) throws(CharacteristicValueError) {
        if reader == nil {
            data.append(number: bits, bytes: bytes)
        } else {
            // `!`: it was not nil a line above.
            bits = try reader!.number(name, bytes: bytes)
        }
    }
}
