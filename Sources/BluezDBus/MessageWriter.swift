import CBluezDBus
import Glibc

/// Writes the arguments of a message. Everything on which libdbus would abort is checked first and thrown.
///
/// After an error the message is incomplete and must be discarded, as ``Connection`` does.
public struct MessageWriter {
    private var iterator = DBusMessageIter()
    /// The approximate number of bytes written, without padding, and the nesting depth.
    private var size = 0
    private var depth = 0

    // A bus closes connections that exceed these. D-Bus allows four times as much, but a system bus accepts at most 32
    // MiB, including the header and the padding.
    private static let largestMessage = 31 << 20
    private static let deepest = 64

    init(_ message: OpaquePointer) { dbus_message_iter_init_append(message, &iterator) }
    private init(inside outer: MessageWriter) { depth = outer.depth + 1 }

    private mutating func add(_ bytes: Int) throws(BusError) {
        size += bytes
        guard size <= Self.largestMessage else { throw Self.tooLarge }
    }

    private func check(_ result: Int32, _ what: @autoclosure () -> String) throws(BusError) {
        switch result {
        case 0: return
        case -EINVAL: throw .invalid(what())
        case -E2BIG: throw Self.tooLarge
        default: throw .limit("out of memory")
        }
    }

    private static let tooLarge = BusError.limit("a message exceeds the 32 MiB that a system bus accepts")

    // MARK: Basic types

    private mutating func write<T>(_ type: Int32, basic value: T) throws(BusError) {
        try add(MemoryLayout<T>.size)
        try check(withUnsafePointer(to: value) { cdbus_iter_append_basic(&iterator, type, $0) }, "type \(type)")
    }

    private mutating func write(_ type: Int32, text: String, _ kind: StaticString) throws(BusError) {
        guard !text.utf8.contains(0) else { throw .invalid("\(kind) with a NUL character") }
        try add(text.utf8.count + 2)  // its length and a zero
        try check(cdbus_iter_append_string(&iterator, type, text), "\"\(text)\" is not a valid \(kind)")
    }

    /// A `y`.
    public mutating func write(_ value: UInt8) throws(BusError) { try write(CDBUS_TYPE_BYTE, basic: value) }
    /// A `b`.
    public mutating func write(_ value: Bool) throws(BusError) {
        try write(CDBUS_TYPE_BOOLEAN, basic: dbus_bool_t(value ? 1 : 0))
    }
    /// An `n`.
    public mutating func write(_ value: Int16) throws(BusError) { try write(CDBUS_TYPE_INT16, basic: value) }
    /// A `q`.
    public mutating func write(_ value: UInt16) throws(BusError) { try write(CDBUS_TYPE_UINT16, basic: value) }
    /// An `i`.
    public mutating func write(_ value: Int32) throws(BusError) { try write(CDBUS_TYPE_INT32, basic: value) }
    /// A `u`.
    public mutating func write(_ value: UInt32) throws(BusError) { try write(CDBUS_TYPE_UINT32, basic: value) }
    /// An `s`.
    public mutating func write(_ value: String) throws(BusError) { try write(CDBUS_TYPE_STRING, text: value, "string") }
    /// An `o`.
    public mutating func write(_ path: ObjectPath) throws(BusError) {
        try write(CDBUS_TYPE_OBJECT_PATH, text: path.rawValue, "object path")
    }

    /// Appends a duplicate of the descriptor; the caller keeps its own.
    public mutating func write(fileDescriptor: Int32) throws(BusError) {
        try write(CDBUS_TYPE_UNIX_FD, basic: fileDescriptor)
    }

    // MARK: Containers

    /// An `ay`.
    public mutating func write(bytes: UnsafeRawBufferPointer) throws(BusError) {
        let pointer = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self)
        try add(bytes.count)
        try check(cdbus_iter_append_bytes(&iterator, pointer, bytes.count), "bytes")
    }

    private mutating func container(
        _ type: Int32, _ contained: String?, _ body: (inout MessageWriter) throws(BusError) -> Void
    ) throws(BusError) {
        guard contained?.utf8.contains(0) != true else { throw .invalid("signature with a NUL character") }
        var inner = MessageWriter(inside: self)
        guard inner.depth <= Self.deepest else { throw .limit("values are nested deeper than D-Bus allows") }
        try check(cdbus_iter_open(&iterator, type, contained, &inner.iterator), "bad signature \(contained ?? "")")
        do throws(BusError) {
            try body(&inner)
            if type == CDBUS_TYPE_STRUCT, inner.size == 0 { throw .invalid("an empty structure") }
            try add(inner.size + (type == CDBUS_TYPE_ARRAY ? 4 : 0))
        } catch {
            dbus_message_iter_abandon_container(&iterator, &inner.iterator)
            throw error
        }
        try check(cdbus_iter_close(&iterator, &inner.iterator), "")
    }

    /// A variant: `body` writes the one value in it, of type `signature`.
    public mutating func variant(
        _ signature: String, _ body: (inout MessageWriter) throws(BusError) -> Void
    ) throws(BusError) {
        try container(CDBUS_TYPE_VARIANT, signature, body)
    }

    /// An array: `body` writes its elements, each of type `signature`; it may be empty.
    public mutating func array(
        of signature: String, _ body: (inout MessageWriter) throws(BusError) -> Void
    ) throws(BusError) {
        try container(CDBUS_TYPE_ARRAY, signature, body)
    }

    /// A structure: `body` writes its members, at least one.
    public mutating func structure(_ body: (inout MessageWriter) throws(BusError) -> Void) throws(BusError) {
        try container(CDBUS_TYPE_STRUCT, nil, body)
    }

    /// An entry of a dictionary, which is an array of `{key value}`: `body` writes key and value.
    public mutating func dictEntry(_ body: (inout MessageWriter) throws(BusError) -> Void) throws(BusError) {
        try container(CDBUS_TYPE_DICT_ENTRY, nil, body)
    }

    // MARK: Anything

    /// Any value. It is refused if an element does not have the type that its container names.
    public mutating func write(_ value: Value) throws(BusError) {
        switch value {
        case .byte(let v): try write(v)
        case .bool(let v): try write(v)
        case .int16(let v): try write(v)
        case .uint16(let v): try write(v)
        case .int32(let v): try write(v)
        case .uint32(let v): try write(v)
        case .int64(let v): try write(CDBUS_TYPE_INT64, basic: v)
        case .uint64(let v): try write(CDBUS_TYPE_UINT64, basic: v)
        case .double(let v): try write(CDBUS_TYPE_DOUBLE, basic: v)
        case .string(let v): try write(v)
        case .path(let v): try write(v)
        case .signature(let v): try write(CDBUS_TYPE_SIGNATURE, text: v, "signature")
        case .fileDescriptor(let v): try write(fileDescriptor: v)
        case .bytes(let v): try writeBytes(v)
        case .array(let element, let elements):
            try array(of: element) { (inner) throws(BusError) in
                for value in elements { try inner.write(value, mustBe: element) }
            }
        case .dictionary(let key, let valueSignature, let entries):
            try array(of: "{\(key)\(valueSignature)}") { (inner) throws(BusError) in
                for entry in entries {
                    try inner.dictEntry { (inside) throws(BusError) in
                        try inside.write(entry.key, mustBe: key)
                        try inside.write(entry.value, mustBe: valueSignature)
                    }
                }
            }
        case .structure(let members):
            try structure { (inner) throws(BusError) in for member in members { try inner.write(member) } }
        case .variant(let inside):
            try variant(inside.signature) { (inner) throws(BusError) in try inner.write(inside) }
        }
    }

    private mutating func writeBytes(_ bytes: [UInt8]) throws(BusError) {
        try add(bytes.count)
        let result = bytes.withUnsafeBufferPointer { cdbus_iter_append_bytes(&iterator, $0.baseAddress, $0.count) }
        try check(result, "bytes")
    }

    /// libdbus aborts when an element does not have the type that the container announced.
    private mutating func write(_ value: Value, mustBe signature: String) throws(BusError) {
        guard value.signature == signature else {
            throw .invalid("a value of type \(value.signature) in a container of \(signature)")
        }
        try write(value)
    }
}
