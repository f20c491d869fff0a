public import Foundation

/// Reads or writes the fields of a ``StructuredValue``, in the order of transmission, little-endian. BluezKit addition.
public struct FieldCoder {
    /// Nil: it writes.
    private var reader: FieldReader?
    private var data = Data()
    private var flags: UInt64 = 0
    private var flagBytes = 0
    /// Reading: what is not included keeps the value that it has.
    private var isAdding = false
    /// Reading: a field that is included had a value already.
    private(set) var hasRepeated = false
    /// Writing: the bytes of the fields that a flag includes.
    private var parts: [Part] = []

    private struct Part {
        let bit: Int
        let bytes: Range<Int>
    }

    init() {}

    init(reading reader: FieldReader, adding isAdding: Bool = false) {
        (self.reader, self.isAdding) = (reader, isAdding)
    }

    /// What was written, with the flags that the fields have set.
    var written: Data {
        var flagged = Data()
        flagged.append(number: flags, bytes: flagBytes)
        return flagged + data.dropFirst(flagBytes)
    }

    var isReading: Bool { reader != nil }

    /// What was written as several values with the same flags, which have a part of the fields each. All but the last
    /// one have the flag `bit`, which says that others follow, and that the field that it stands for is missing.
    /// - Parameter length: At most that many bytes each, unless a single field has more.
    func written(inPartsOf length: Int, flag bit: Int) -> [Data] {
        var rest = parts.filter { $0.bit != bit }
        let last = parts.filter { $0.bit == bit }
        func bytes(_ parts: [Part]) -> Int { parts.reduce(flagBytes) { $0 + $1.bytes.count } }
        var groups: [[Part]] = []
        while !rest.isEmpty, bytes(last + rest) > length {
            var group = [rest.removeFirst()]
            while let next = rest.first, bytes(group + [next]) <= length { group.append(rest.removeFirst()) }
            groups.append(group)
        }
        groups.append(last + rest)
        let others = parts.reduce(flags | 1 << bit) { $0 & ~(1 << $1.bit) }
        return groups.map { group in
            var flagged = Data()
            let own = group.reduce(others | 1 << bit) { $1.bit == bit ? $0 & ~(1 << bit) : $0 | 1 << $1.bit }
            flagged.append(number: own, bytes: flagBytes)
            return group.reduce(flagged) { $0 + data[$1.bytes] }
        }
    }

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
        try optional(&value, V(), bit) { (coder, field) throws(CharacteristicValueError) in
            try field.code(&coder, as: name)
        }
    }

    /// A number in fewer bytes than its type has, which is included if a flag is set.
    public mutating func field<V: FieldValue & FixedWidthInteger & UnsignedInteger>(
        _ name: String, _ value: inout V?, bytes: Int, ifBit bit: Int
    ) throws(CharacteristicValueError) {
        try optional(&value, V(), bit) { (coder, field) throws(CharacteristicValueError) in
            try coder.field(name, &field, bytes: bytes)
        }
    }

    private mutating func optional<V>(
        _ value: inout V?, _ initial: V, _ bit: Int,
        _ code: (inout Self, inout V) throws(CharacteristicValueError) -> Void
    ) throws(CharacteristicValueError) {
        var isIncluded = value != nil
        flag(bit, &isIncluded)
        var field = value ?? initial
        let (hadValue, start) = (value != nil, data.count)
        if !isAdding { value = nil }
        guard isIncluded, try isWhole({ (coder) throws(CharacteristicValueError) in try code(&coder, &field) })
        else { return }
        if isAdding, hadValue { hasRepeated = true }
        value = field
        if reader == nil { parts.append(Part(bit: bit, bytes: start..<data.count)) }
    }

    /// A field that is included unless a flag is set, and without which the value cannot be read then.
    mutating func field<V: FieldValue>(
        _ name: String, _ value: inout V?, unlessBit bit: Int
    ) throws(CharacteristicValueError) {
        var isMissing = value == nil
        flag(bit, &isMissing)
        guard !isMissing else {
            if !isAdding { value = nil }
            return
        }
        var field = value ?? V()
        let start = data.count
        try field.code(&self, as: name)
        value = field
        if reader == nil { parts.append(Part(bit: bit, bytes: start..<data.count)) }
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
        if isAdding, number == unknown { return }
        value = number == unknown ? nil : number
    }

    /// A number in fewer bytes than its type has.
    public mutating func field<V: FieldValue & FixedWidthInteger & UnsignedInteger>(
        _ name: String, _ value: inout V, bytes: Int
    ) throws(CharacteristicValueError) {
        var bits = min(UInt64(value), UInt64.max >> (64 - 8 * UInt64(bytes)))
        try self.bits(name, &bits, bytes: bytes)
        value = V(truncatingIfNeeded: bits)
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

    var bytesLeft: Int { reader?.bytesLeft ?? 0 }

    /// Reading: that many bytes.
    mutating func bytes(_ name: String, count: Int) throws(CharacteristicValueError) -> Data {
        var bytes = Data()
        for _ in 0..<count {
            var byte: UInt8 = 0
            try field(name, &byte)
            bytes.append(byte)
        }
        return bytes
    }

    /// Whether the value ends where it does with these fields next: the bytes of each that its flag includes.
    func endsAfter(_ fields: [(bit: Int, bytes: Int)]) -> Bool {
        reader?.bytesLeft == fields.reduce(0) { $0 + (hasFlag($1.bit) ? $1.bytes : 0) }
    }

    /// Reading: whether a flag is set.
    func hasFlag(_ bit: Int) -> Bool { flags >> bit & 1 == 1 }

    /// The checksum of everything before it, with which the value ends if it is secured.
    mutating func e2eCRC(_ isSecured: inout Bool) throws(CharacteristicValueError) {
        guard var reader else {
            if isSecured { data.append(written.e2eCRC) }
            return
        }
        let (checksum, count) = (reader.consumed.e2eCRC, reader.bytesLeft)
        isSecured = (try? reader.uint16("E2E-CRC")) == checksum
        self.reader = reader
        // What is longer may have fields of a later version here.
        guard isSecured || count != 2 else { throw .checksum }
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
