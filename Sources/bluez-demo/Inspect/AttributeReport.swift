import BluezKit
import Foundation

/// One service, characteristic or descriptor, as plain values.
struct AttributeReport: Equatable {
    enum Kind: String { case service, includedService, characteristic, descriptor }

    enum Value: Equatable {
        case bytes([UInt8])
        case text(String)
        case number(Int)
        /// It could not be read; the reason.
        case failed(String)
    }

    let kind: Kind
    let uuid: String
    let name: String?
    /// The depth below the device: 0 for a service.
    let depth: Int
    var isPrimary: Bool?
    var properties: [String]?
    var value: Value?

    var json: JSONValue {
        var members: [(String, JSONValue)] = [
            ("event", .string(kind.rawValue)), ("uuid", .string(uuid)), ("name", .optional(name)),
            ("depth", .int(depth)),
        ]
        if let isPrimary { members.append(("primary", .bool(isPrimary))) }
        if let properties { members.append(("properties", .strings(properties))) }
        switch value {
        case .bytes(let bytes)?: members.append(("value", .string(bytes.hex)))
        case .text(let text)?: members.append(("value", .string(text)))
        case .number(let number)?: members.append(("value", .int(number)))
        case .failed(let reason)?: members.append(("error", .string(reason)))
        case nil: break
        }
        return .object(members.map { .init(key: $0.0, value: $0.1) })
    }

    var line: Line {
        var line = Line(String(repeating: "  ", count: depth))
        switch kind {
        case .service: line += Line(isPrimary == false ? "secondary service " : "service ", .cyan)
        case .includedService: line += Line("includes ", .cyan)
        case .characteristic, .descriptor: break
        }
        line += Line(name ?? uuid, kind == .descriptor ? .plain : .bold)
        if name != nil { line += Line(" " + uuid, .dim) }
        if let properties { line += Line(" [" + properties.joined(separator: ", ") + "]", .dim) }
        switch value {
        case .bytes(let bytes)?: line += Line(" = ") + Self.line(bytes)
        case .text(let text)?: line += Line(" = \"\(text.harmless)\"", .green)
        case .number(let number)?: line += Line(" = \(number)", .green)
        case .failed(let reason)?: line += Line(" ! " + reason, .yellow)
        case nil: break
        }
        return line
    }

    /// Bytes in hexadecimal, and a possible interpretation: a text, or a number.
    private static func line(_ bytes: [UInt8]) -> Line {
        guard !bytes.isEmpty else { return Line("empty", .dim) }
        let shown = bytes.prefix(20).map { [$0].hex }.joined(separator: " ")
        let more = bytes.count > 20 ? " ... (\(bytes.count) bytes)" : ""
        if bytes.count > 1, let text = printable(bytes) {
            return Line("\"\(text)\" ", .green) + Line(shown + more, .dim)
        }
        if bytes.count == 1 { return Line("\(bytes[0]) ", .green) + Line("0x" + shown, .dim) }
        return Line(shown + more, .green)
    }

    /// The text, if the value consists only of text; trailing zeros are ignored.
    static func printable(_ bytes: [UInt8]) -> String? {
        let trimmed = bytes.reversed().drop { $0 == 0 }.reversed()
        guard !trimmed.isEmpty, let text = String(validating: trimmed, as: UTF8.self), text.harmless == text else {
            return nil
        }
        return text
    }
}

extension CBCharacteristicProperties {
    /// The names of the set properties.
    var names: [String] {
        let all: [(CBCharacteristicProperties, String)] = [
            (.broadcast, "broadcast"), (.read, "read"), (.writeWithoutResponse, "writeWithoutResponse"),
            (.write, "write"), (.notify, "notify"), (.indicate, "indicate"),
            (.authenticatedSignedWrites, "authenticatedSignedWrites"), (.extendedProperties, "extendedProperties"),
        ]
        return all.filter { contains($0.0) }.map(\.1)
    }
}
