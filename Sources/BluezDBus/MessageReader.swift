import CBluezDBus

/// Reads the arguments of a message in order and in place: strings and byte arrays are returned as pointers into the
/// message, valid as long as it exists. A wrong type is a thrown error, never a trap.
///
/// A value type: a copy continues reading from the same position.
public struct MessageReader {
    private var cursor: cdbus_reader_t
    /// The message that owns the memory, also for sub-readers.
    private let message: Message
    /// Whether ``readValue()`` returns file descriptors, which the caller must then close. False: they are a wrong
    /// type, so that callers who do not expect them do not keep any.
    public var takesFileDescriptors = false

    init(_ message: Message) {
        self.message = message
        cursor = withUnsafePointer(to: message.header) { cdbus_reader_make($0) }
    }

    private init(entering parent: MessageReader) {
        (message, takesFileDescriptors) = (parent.message, parent.takesFileDescriptors)
        cursor = withUnsafePointer(to: parent.cursor) { cdbus_reader_enter($0) }
    }

    private var type: Int32 {
        mutating get { cdbus_reader_type(&cursor) }
    }

    /// Whether there is nothing more to read at this level.
    public var atEnd: Bool {
        mutating get { type == CDBUS_TYPE_INVALID }
    }

    /// Skips one argument.
    public mutating func skip() { cdbus_reader_next(&cursor) }

    private mutating func expect(_ expected: Int32) throws(BusError) {
        let found = type
        guard found == expected else { throw wrongType(found, expected) }
    }

    private func wrongType(_ found: Int32, _ expected: Int32) -> BusError {
        func name(_ type: Int32) -> String {
            type == CDBUS_TYPE_INVALID
                ? "nothing" : "type '\(Character(Unicode.Scalar(UInt8(truncatingIfNeeded: type))))'"
        }
        return .malformed("expected \(name(expected)), found \(name(found))")
    }

    // MARK: Basic types

    /// The bytes of a value that is no container, or `ay`.
    private mutating func readInPlace() -> UnsafeRawBufferPointer {
        var length: UInt32 = 0
        let start = cdbus_reader_value(&cursor, &length)
        return UnsafeRawBufferPointer(start: start, count: Int(clamping: length))
    }

    private mutating func readNumber<T: FixedWidthInteger & BitwiseCopyable>(_ type: Int32) throws(BusError) -> T {
        try expect(type)
        let value = readInPlace().loadUnaligned(as: T.self)
        return cursor.is_swapped ? value.byteSwapped : value
    }

    /// A `y`.
    public mutating func readByte() throws(BusError) -> UInt8 { try readNumber(CDBUS_TYPE_BYTE) }
    /// A `b`.
    public mutating func readBool() throws(BusError) -> Bool { try readNumber(CDBUS_TYPE_BOOLEAN) as UInt32 != 0 }
    /// An `n`.
    public mutating func readInt16() throws(BusError) -> Int16 { try readNumber(CDBUS_TYPE_INT16) }
    /// A `q`.
    public mutating func readUInt16() throws(BusError) -> UInt16 { try readNumber(CDBUS_TYPE_UINT16) }
    /// An `i`.
    public mutating func readInt32() throws(BusError) -> Int32 { try readNumber(CDBUS_TYPE_INT32) }
    /// A `u`.
    public mutating func readUInt32() throws(BusError) -> UInt32 { try readNumber(CDBUS_TYPE_UINT32) }
    /// An `x`.
    public mutating func readInt64() throws(BusError) -> Int64 { try readNumber(CDBUS_TYPE_INT64) }
    /// A `t`.
    public mutating func readUInt64() throws(BusError) -> UInt64 { try readNumber(CDBUS_TYPE_UINT64) }
    /// A `d`.
    public mutating func readDouble() throws(BusError) -> Double {
        Double(bitPattern: try readNumber(CDBUS_TYPE_DOUBLE))
    }

    /// The descriptor, close-on-exec, which the caller must close. It can be read once.
    public mutating func readFileDescriptor() throws(BusError) -> Int32 {
        guard let descriptor = message.takeDescriptor(try readNumber(CDBUS_TYPE_UNIX_FD)) else {
            throw .limit("no file descriptor available")
        }
        return descriptor
    }

    /// A string, in place.
    public mutating func readCString() throws(BusError) -> UnsafePointer<CChar> {
        try readText(CDBUS_TYPE_STRING)
    }

    /// An object path, in place.
    public mutating func readPathC() throws(BusError) -> UnsafePointer<CChar> {
        try readText(CDBUS_TYPE_OBJECT_PATH)
    }

    private mutating func readText(_ type: Int32) throws(BusError) -> UnsafePointer<CChar> {
        try expect(type)
        guard let start = readInPlace().baseAddress else { throw .malformed("text without an address") }
        return start.assumingMemoryBound(to: CChar.self)
    }

    /// An `s`, copied.
    public mutating func readString() throws(BusError) -> String { String(cString: try readCString()) }

    /// The path was checked when the message arrived.
    public mutating func readPath() throws(BusError) -> ObjectPath {
        ObjectPath(trusted: String(cString: try readPathC()))
    }

    // MARK: Containers

    /// An `ay`, in place.
    public mutating func readBytes() throws(BusError) -> UnsafeRawBufferPointer {
        guard type == CDBUS_TYPE_ARRAY, cursor.type[1] == CChar(CDBUS_TYPE_BYTE) else {
            throw .malformed("expected 'ay'")
        }
        return readInPlace()
    }

    /// Opens a variant: `body` may read its one value.
    public mutating func readVariant<R>(
        _ body: (inout MessageReader) throws(BusError) -> R
    ) throws(BusError) -> R {
        try enter(CDBUS_TYPE_VARIANT, body)
    }

    /// Opens a structure: `body` may read its members, beginning with the first.
    public mutating func readStruct<R>(_ body: (inout MessageReader) throws(BusError) -> R) throws(BusError) -> R {
        try enter(CDBUS_TYPE_STRUCT, body)
    }

    private mutating func enter<R>(
        _ type: Int32, _ body: (inout MessageReader) throws(BusError) -> R
    ) throws(BusError) -> R {
        try expect(type)
        var inner = MessageReader(entering: self)
        let result = try body(&inner)
        cdbus_reader_leave(&cursor, &inner.cursor)
        return result
    }

    /// Calls `body` before each element of an array; what it does not read of an element is skipped.
    public mutating func readArray(_ body: (inout MessageReader) throws(BusError) -> Void) throws(BusError) {
        try expect(CDBUS_TYPE_ARRAY)
        var inner = MessageReader(entering: self)
        while !inner.atEnd {
            let position = inner.cursor.position
            try body(&inner)
            if inner.cursor.position == position { inner.skip() }
        }
        cdbus_reader_leave(&cursor, &inner.cursor)
    }

    /// Calls `body` with a reader inside each entry of a dictionary (key first, then value).
    public mutating func readDictionary(_ body: (inout MessageReader) throws(BusError) -> Void) throws(BusError) {
        try readArray { (element) throws(BusError) in try element.enter(CDBUS_TYPE_DICT_ENTRY, body) }
    }

    /// An `a{sv}`: `body` gets each key, in place, and a reader inside the value's variant. What `body` does not
    /// read costs nothing.
    public mutating func readProperties(
        _ body: (UnsafePointer<CChar>, inout MessageReader) throws(BusError) -> Void
    ) throws(BusError) {
        try readDictionary { (entry) throws(BusError) in
            let key = try entry.readCString()
            try entry.readVariant { (value) throws(BusError) in try body(key, &value) }
        }
    }

    /// An `as`, copied.
    public mutating func readStrings() throws(BusError) -> [String] {
        var result: [String] = []
        try readArray { (element) throws(BusError) in result.append(try element.readString()) }
        return result
    }

    // MARK: Anything

    /// Any value.
    public mutating func readValue() throws(BusError) -> Value {
        switch type {
        case CDBUS_TYPE_BYTE: return .byte(try readByte())
        case CDBUS_TYPE_BOOLEAN: return .bool(try readBool())
        case CDBUS_TYPE_INT16: return .int16(try readInt16())
        case CDBUS_TYPE_UINT16: return .uint16(try readUInt16())
        case CDBUS_TYPE_INT32: return .int32(try readInt32())
        case CDBUS_TYPE_UINT32: return .uint32(try readUInt32())
        case CDBUS_TYPE_INT64: return .int64(try readInt64())
        case CDBUS_TYPE_UINT64: return .uint64(try readUInt64())
        case CDBUS_TYPE_DOUBLE: return .double(try readDouble())
        case CDBUS_TYPE_STRING: return .string(try readString())
        case CDBUS_TYPE_OBJECT_PATH: return .path(try readPath())
        case CDBUS_TYPE_SIGNATURE: return .signature(String(cString: try readText(CDBUS_TYPE_SIGNATURE)))
        case CDBUS_TYPE_UNIX_FD where takesFileDescriptors: return .fileDescriptor(try readFileDescriptor())
        case CDBUS_TYPE_VARIANT:
            return .variant(try readVariant { (inner) throws(BusError) in try inner.readValue() })
        case CDBUS_TYPE_STRUCT:
            return try readStruct { (inner) throws(BusError) in
                var members: [Value] = []
                while !inner.atEnd { members.append(try inner.readValue()) }
                return .structure(members)
            }
        case CDBUS_TYPE_ARRAY: return try readAnyArray()
        case let other: throw wrongType(other, CDBUS_TYPE_VARIANT)
        }
    }

    private mutating func readAnyArray() throws(BusError) -> Value {
        let element = cursor.type + 1
        if element[0] == CChar(CDBUS_TYPE_BYTE) { return .bytes(Array(try readBytes())) }
        let length = cdbus_type_end(element) - element
        let signature = String(decoding: UnsafeRawBufferPointer(start: element, count: length), as: UTF8.self)
        if element[0] == CChar(UInt8(ascii: "{")) {
            var entries: [Value.Entry] = []
            try readDictionary { (entry) throws(BusError) in
                let key = try entry.readValue()
                entries.append(Value.Entry(key, try entry.readValue()))
            }
            // {KV}: the key is a basic type, one character.
            let inside = signature.dropFirst().dropLast()
            return .dictionary(key: String(inside.prefix(1)), value: String(inside.dropFirst()), entries)
        }
        var elements: [Value] = []
        try readArray { (element) throws(BusError) in elements.append(try element.readValue()) }
        return .array(element: signature, elements)
    }
}
