import BluezKit
import Foundation

/// An entry of a trace, for people and for programs.
struct TraceReport: Equatable {
    let entry: TraceEntry

    init(_ entry: TraceEntry) { self.entry = entry }

    // MARK: For people

    /// What a line begins with: the time, the manager and the direction.
    static let indent = 17
    /// Of a value, however long the names before it are.
    private static let fewestBytes = 4

    /// - Parameter width: In columns: of a value as many bytes are shown as have room.
    func line(width: Int = 80) -> Line {
        let place = entry.place
        let arrow: Line =
            switch entry.direction {
            case .toCore: Line("-> ", .cyan)
            case .toApp: Line("<- ", .green)
            case nil: Line("   ")
            }
        let manager = (place.manager.map(String.init) ?? "").leftPadded(to: 2)
        var line = Line(Self.time(place.seconds), .dim) + Line(" \(manager) ") + arrow
        line += Line(entry.name.harmless, entry.direction == nil ? .yellow : .plain)
        if let device = entry.device { line += " " + Line(device.harmless, .bold) }
        if let attribute = entry.attribute { line += Line(" " + attribute) }
        if let value = entry.value { line += Line(" " + Self.text(value, width: width - line.width - 1), .cyan) }
        if !entry.facts.isEmpty { line += Line(": " + entry.facts.map(\.harmless).joined(separator: ", ")) }
        if let error = entry.error { line += ": " + Line(error.harmless, .red) }
        return line
    }

    /// `12.345`, in ten columns.
    static func time(_ seconds: Double) -> String {
        // A damaged file may have any time within the limits of the reader.
        let milliseconds = Int64((seconds * 1000).rounded())
        let (whole, rest) = milliseconds.magnitude.quotientAndRemainder(dividingBy: 1000)
        let text = "\(milliseconds < 0 ? "-" : "")\(whole)." + String(1000 + rest).dropFirst()
        return text.leftPadded(to: 10)
    }

    /// Nothing happened for this long.
    static func gap(_ seconds: Double) -> Line {
        Line(
            String(repeating: " ", count: indent) + "... \(time(seconds).trimmingCharacters(in: .whitespaces)) s", .dim)
    }

    /// `[00 3C]`, or as much of it as has room: `[00 3C 01 02 … 20 bytes]`.
    private static func text(_ value: TraceEntry.Value, width: Int) -> String {
        if value.isHidden { return "[\(value.count) bytes]" }
        func list(_ count: Int) -> String {
            value.bytes.prefix(count).map { ($0 < 16 ? "0" : "") + String($0, radix: 16, uppercase: true) }
                .joined(separator: " ")
        }
        if value.bytes.count == value.count, 3 * value.count + 1 <= width { return "[\(list(value.count))]" }
        let rest = " … \(value.count) bytes]"
        let count = max(fewestBytes, (width - rest.count) / 3)
        return "[\(list(count))" + (count < value.count ? rest : "]")
    }

    // MARK: For programs

    var json: JSONValue {
        let place = entry.place
        var members: [JSONValue.Member] = [
            .init(key: "event", value: "trace"), .init(key: "seconds", value: .double(Self.rounded(place.seconds))),
            .init(key: "date", value: .string(Self.date(place.wall))),
            .init(key: "process", value: .int(Int(place.process))),
        ]
        func add(_ key: String, _ value: JSONValue?) {
            if let value { members.append(.init(key: key, value: value)) }
        }
        add("manager", place.manager.map { .int($0) })
        add("role", place.role.map { .string($0.rawValue) })
        add("direction", entry.direction.map { .string($0.rawValue) })
        add("name", .string(entry.name))
        add("identifier", entry.peripheral.map { .string($0.uuidString) })
        add("device", entry.device.map { .string($0) })
        add("attribute", entry.attribute.map { .string($0) })
        if let value = entry.value {
            add("bytes", .int(value.count))
            if !value.isHidden { add("value", .string(value.bytes.hex)) }
        }
        if !entry.facts.isEmpty { add("facts", .strings(entry.facts)) }
        add("error", entry.error.map { .string($0) })
        return .object(members)
    }

    /// To a microsecond.
    static func rounded(_ seconds: Double) -> Double { (seconds * 1_000_000).rounded() / 1_000_000 }

    /// ISO 8601, with milliseconds.
    static func date(_ wall: Double) -> String {
        let formatter = ISO8601DateFormatter()
        formatter.formatOptions = [.withInternetDateTime, .withFractionalSeconds]
        return formatter.string(from: Date(timeIntervalSince1970: wall))
    }
}

extension String {
    fileprivate func leftPadded(to width: Int) -> String {
        String(repeating: " ", count: max(0, width - count)) + self
    }
}
