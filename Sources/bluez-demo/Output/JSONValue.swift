import Foundation

/// A JSON value whose objects keep the order of their keys, on one line.
enum JSONValue: Equatable, CustomStringConvertible {
    case null
    case bool(Bool)
    case int(Int)
    case double(Double)
    case string(String)
    case array([JSONValue])
    case object([Member])

    struct Member: Equatable {
        let key: String
        let value: JSONValue
    }

    /// Exact, also where an `Int` has 32 bits.
    static func number(_ number: UInt32) -> JSONValue { .double(Double(number)) }
    static func strings(_ strings: [String]) -> JSONValue { .array(strings.map { .string($0) }) }
    static func optional(_ string: String?) -> JSONValue { string.map { .string($0) } ?? .null }
    static func optional(_ int: Int?) -> JSONValue { int.map { .int($0) } ?? .null }
    static func optional(_ bool: Bool?) -> JSONValue { bool.map { .bool($0) } ?? .null }

    /// The value as JSON text.
    var description: String {
        switch self {
        case .null: "null"
        case .bool(let value): value ? "true" : "false"
        case .int(let value): String(value)
        case .double(let value): Self.text(value)
        case .string(let value): Self.quoted(value)
        case .array(let values): "[" + values.map(\.description).joined(separator: ",") + "]"
        case .object(let members):
            "{" + members.map { Self.quoted($0.key) + ":" + $0.value.description }.joined(separator: ",") + "}"
        }
    }

    private static func text(_ value: Double) -> String {
        guard value.isFinite else { return "null" }  // JSON has no other numbers
        return Int64(exactly: value).map { String($0) } ?? String(value)
    }

    private static func quoted(_ string: String) -> String {
        var result = "\""
        for scalar in string.unicodeScalars {
            switch scalar {
            case "\"": result += "\\\""
            case "\\": result += "\\\\"
            case "\n": result += "\\n"
            case "\r": result += "\\r"
            case "\t": result += "\\t"
            // Invisible characters, and those that terminals and JavaScript interpret as commands or line ends.
            case _ where scalar.isUnseen || scalar.properties.isDefaultIgnorableCodePoint:
                for unit in UTF16.encode(scalar) ?? .init() {
                    let hex = String(unit, radix: 16)
                    result += "\\u" + String(repeating: "0", count: 4 - hex.count) + hex
                }
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result + "\""
    }
}

extension JSONValue: ExpressibleByDictionaryLiteral {
    /// An object with the keys in this order.
    init(dictionaryLiteral members: (String, JSONValue)...) {
        self = .object(members.map { Member(key: $0.0, value: $0.1) })
    }
}

extension JSONValue: ExpressibleByStringLiteral {
    init(stringLiteral text: String) { self = .string(text) }
}
