import CBluezDBus

/// The path of an object on the bus. It is always valid, because libdbus aborts the process on an invalid one.
public struct ObjectPath: Hashable, Sendable, CustomStringConvertible {
    /// The path as text, `/org/bluez/hci0`.
    public let rawValue: String

    /// Nil if `rawValue` is not a valid path according to the D-Bus specification ("Valid Object Paths").
    public init?(_ rawValue: String) {
        guard !rawValue.utf8.contains(0), cdbus_is_path(rawValue) != 0 else { return nil }
        self.rawValue = rawValue
    }

    /// A path that is known to be valid: a literal in the source, or received in a message.
    init(trusted rawValue: String) { self.rawValue = rawValue }

    /// The parent object; nil for the root.
    public var parent: ObjectPath? {
        guard rawValue != "/", let slash = rawValue.lastIndex(of: "/") else { return nil }
        return slash == rawValue.startIndex ? ObjectPath(trusted: "/") : ObjectPath(trusted: String(rawValue[..<slash]))
    }

    /// The last element, `hci0`; empty for the root.
    public var lastElement: Substring {
        rawValue.lastIndex(of: "/").map { rawValue[rawValue.index(after: $0)...] } ?? ""
    }

    /// Whether this object is `other` or below it.
    public func isWithin(_ other: ObjectPath) -> Bool {
        guard rawValue.utf8.starts(with: other.rawValue.utf8), other.rawValue != "/" else {
            return other.rawValue == "/"
        }
        let rest = rawValue.utf8.dropFirst(other.rawValue.utf8.count)
        return rest.isEmpty || rest.first == UInt8(ascii: "/")
    }

    /// The object `name` below this one. Nil if that is not a valid path element.
    public func appending(_ name: String) -> ObjectPath? {
        ObjectPath(rawValue == "/" ? "/" + name : rawValue + "/" + name)
    }

    /// The path itself.
    public var description: String { rawValue }
}

extension ObjectPath: ExpressibleByStringLiteral {
    /// A path in the source. An invalid one is a programming error.
    public init(stringLiteral value: StaticString) {
        guard let path = ObjectPath(String(describing: value)) else {
            preconditionFailure("\"\(value)\" is not a D-Bus object path")
        }
        self = path
    }
}
