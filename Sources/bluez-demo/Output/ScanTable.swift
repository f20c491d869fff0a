import Foundation

/// The devices found by a scan, as a table that fits a terminal. Pure.
struct ScanTable {
    private struct Row {
        var advertisement: Advertisement
        /// Smoothed, so that rows do not jump with every packet.
        var strength: Double?
        var seen: Double
    }

    private var rows: [UUID: Row] = [:]
    /// After this many seconds of silence a row is dimmed.
    private static let silence = 10.0

    var count: Int { rows.count }

    /// Adds a received advertisement, with its time in seconds.
    /// - Returns: Whether the device is new.
    mutating func update(_ advertisement: Advertisement, at time: Double) -> Bool {
        let rssi = advertisement.rssiDBm.map(Double.init)
        guard var row = rows[advertisement.identifier] else {
            rows[advertisement.identifier] = Row(advertisement: advertisement, strength: rssi, seen: time)
            return true
        }
        let name = advertisement.name ?? row.advertisement.name
        row.advertisement = advertisement
        row.advertisement.name = name
        if let rssi { row.strength = row.strength.map { $0 + (rssi - $0) * 0.3 } ?? rssi }
        row.seen = time
        rows[advertisement.identifier] = row
        return false
    }

    /// A heading, the strongest devices, and the number of others: at most `height` - 1 lines.
    func lines(width: Int, height: Int, at time: Double) -> [Line] {
        let available = max(0, height - 3)  // heading, last line, cursor
        let sorted = rows.values.sorted { left, right in
            let (a, b) = (Self.rank(left, at: time), Self.rank(right, at: time))
            return a != b ? a > b : left.advertisement.identifier.uuidString < right.advertisement.identifier.uuidString
        }
        // The address is most of an identifier, and the rest of the command line takes it as well.
        let isNarrow = width < 80
        let identifierWidth = isNarrow ? 17 : 36
        let nameWidth = min(
            max(sorted.map { Self.name($0).displayWidth }.max() ?? 0, 12), max(12, width - identifierWidth - 28))
        func line(_ rssi: Line, _ name: Line, _ identifier: Line, _ services: Line) -> Line {
            Self.column(rssi, 4) + Self.column(name, nameWidth) + Self.column(identifier, identifierWidth) + services
        }
        let headings = ["RSSI", "NAME", isNarrow ? "ADDRESS" : "IDENTIFIER", "SERVICES"].map { Line($0, .bold) }
        var lines = [line(headings[0], headings[1], headings[2], headings[3])]
        for row in sorted.prefix(available) {
            let isSilent = time - row.seen >= Self.silence
            let identifier = row.advertisement.identifier
            lines.append(
                line(
                    Self.strength(row, isSilent), Line(Self.name(row), isSilent ? .dim : .bold),
                    Line(isNarrow ? identifier.bluetoothAddress ?? identifier.uuidString : identifier.uuidString, .dim),
                    Line(row.advertisement.services.map(\.label).joined(separator: ", "), isSilent ? .dim : .plain)))
        }
        let hidden = sorted.count - available
        let devices = sorted.count == 1 ? "1 device" : "\(sorted.count) devices"
        lines.append(Line(devices + (hidden > 0 ? ", \(hidden) of them not shown" : "") + ", \(Int(time)) s", .dim))
        return lines.map { $0.clipped(to: width - 1) }
    }

    /// One device as text for other programs.
    static func plainLine(_ advertisement: Advertisement) -> Line {
        Line(
            [
                advertisement.identifier.uuidString, advertisement.rssiDBm.map { String($0) } ?? "",
                advertisement.name?.harmless ?? "", advertisement.services.map(\.label).joined(separator: ", "),
            ].joined(separator: "\t"))
    }

    /// In steps of 3 dBm; silent devices last.
    private static func rank(_ row: Row, at time: Double) -> Int {
        guard let strength = row.strength, time - row.seen < silence else { return Int.min }
        return Int((strength / 3).rounded())
    }

    private static func name(_ row: Row) -> String { row.advertisement.name?.harmless ?? "-" }

    private static func strength(_ row: Row, _ isSilent: Bool) -> Line {
        let style: Line.Style =
            switch row.strength ?? -100 {
            case _ where isSilent: .dim
            case (-65.0)...: .green
            case (-80.0)...: .plain
            default: .yellow
            }
        return Line(padLeft(row.strength.map { String(Int($0.rounded())) } ?? "-", 4), style)
    }

    private static func column(_ line: Line, _ width: Int) -> Line { line.clipped(to: width).padded(to: width) + "  " }

    private static func padLeft(_ text: String, _ width: Int) -> String {
        String(repeating: " ", count: max(0, width - text.count)) + text
    }
}
