/// Any D-Bus value. For code that is independent of types, such as a property table; frequently executed code reads
/// with ``MessageReader`` and creates no values.
public indirect enum Value: Hashable, Sendable {
    case byte(UInt8), bool(Bool), int16(Int16), uint16(UInt16), int32(Int32), uint32(UInt32)
    case int64(Int64), uint64(UInt64), double(Double)
    case string(String), path(ObjectPath), signature(String)
    /// A file descriptor. The reader of a message must close it.
    case fileDescriptor(Int32)
    /// `ay`, by far the most common array.
    case bytes([UInt8])
    /// An array of other elements than bytes. `element` is the signature of one element.
    case array(element: String, [Value])
    /// A dictionary `a{key value}`, in the order in which it is or was sent.
    case dictionary(key: String, value: String, [Entry])
    case structure([Value])
    case variant(Value)

    /// One entry of a dictionary.
    public struct Entry: Hashable, Sendable {
        /// The key, of a basic type.
        public var key: Value
        /// The value.
        public var value: Value
        /// An entry. The types are checked when it is written.
        public init(_ key: Value, _ value: Value) {
            self.key = key
            self.value = value
        }
    }

    /// The D-Bus signature of this value.
    public var signature: String {
        switch self {
        case .byte: "y"
        case .bool: "b"
        case .int16: "n"
        case .uint16: "q"
        case .int32: "i"
        case .uint32: "u"
        case .int64: "x"
        case .uint64: "t"
        case .double: "d"
        case .string: "s"
        case .path: "o"
        case .signature: "g"
        case .fileDescriptor: "h"
        case .bytes: "ay"
        case .array(let element, _): "a" + element
        case .dictionary(let key, let value, _): "a{\(key)\(value)}"
        case .structure(let members): "(" + members.map(\.signature).joined() + ")"
        case .variant: "v"
        }
    }
}

extension Value {
    /// `as`.
    public static func strings(_ strings: [String]) -> Value { .array(element: "s", strings.map { .string($0) }) }

    /// `a{sv}` in the given order.
    public static func properties(_ properties: [(String, Value)]) -> Value {
        .dictionary(key: "s", value: "v", properties.map { Entry(.string($0), .variant($1)) })
    }

    /// `a{sv}` sorted by key.
    public static func properties(_ properties: [String: Value]) -> Value {
        .properties(properties.sorted { $0.key < $1.key }.map { ($0.key, $0.value) })
    }

    /// The value inside a variant, or the value itself.
    public var unwrapped: Value { if case .variant(let inner) = self { inner.unwrapped } else { self } }

    /// The text of a string, path or signature, also inside variants.
    public var stringValue: String? {
        switch unwrapped {
        case .string(let s), .signature(let s): s
        case .path(let p): p.rawValue
        default: nil
        }
    }

    /// The value of a `b`, also inside variants.
    public var boolValue: Bool? { if case .bool(let value) = unwrapped { value } else { nil } }
    /// The bytes of an `ay`, also inside variants.
    public var bytesValue: [UInt8]? { if case .bytes(let value) = unwrapped { value } else { nil } }

    /// Any integer type as `Int`; nil if it is not an integer or does not fit.
    public var intValue: Int? {
        switch unwrapped {
        case .byte(let v): Int(v)
        case .int16(let v): Int(v)
        case .uint16(let v): Int(v)
        case .int32(let v): Int(v)
        case .uint32(let v): Int(exactly: v)
        case .int64(let v): Int(exactly: v)
        case .uint64(let v): Int(exactly: v)
        default: nil
        }
    }

    /// The elements of an array of strings or paths.
    public var stringsValue: [String]? {
        guard case .array(_, let elements) = unwrapped else { return nil }
        return elements.compactMap(\.stringValue)
    }

    /// A dictionary with text keys, also inside variants.
    public var dictionaryValue: [String: Value]? {
        guard case .dictionary(_, _, let entries) = unwrapped else { return nil }
        var result: [String: Value] = [:]
        for entry in entries {
            guard let key = entry.key.stringValue else { return nil }
            result[key] = entry.value.unwrapped
        }
        return result
    }
}
