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
    mutating func note(_ advertisement: Advertisement, at time: Double) -> Bool {
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
        let nameWidth = min(max(sorted.map { Self.name($0).displayWidth }.max() ?? 0, 12), max(12, width - 64))
        var lines = [Self.line("RSSI", "NAME", "IDENTIFIER", "SERVICES", nameWidth, .bold)]
        for row in sorted.prefix(available) { lines.append(Self.line(row, nameWidth, at: time)) }
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

    private static func line(_ row: Row, _ nameWidth: Int, at time: Double) -> Line {
        let isSilent = time - row.seen >= silence
        let rssi = row.strength.map { String(Int($0.rounded())) } ?? "-"
        let services = row.advertisement.services.map(\.label).joined(separator: ", ")
        let style: Line.Style =
            switch row.strength ?? -100 {
            case _ where isSilent: .dim
            case (-65.0)...: .green
            case (-80.0)...: .plain
            default: .yellow
            }
        let text: Line.Style = isSilent ? .dim : .plain
        return column(Line(padLeft(rssi, 4), style), 4) + column(Line(name(row), isSilent ? .dim : .bold), nameWidth)
            + column(Line(row.advertisement.identifier.uuidString, .dim), 36) + Line(services, text)
    }

    private static func line(
        _ rssi: String, _ name: String, _ identifier: String, _ services: String, _ nameWidth: Int, _ style: Line.Style
    ) -> Line {
        column(Line(rssi, style), 4) + column(Line(name, style), nameWidth) + column(Line(identifier, style), 36)
            + Line(services, style)
    }

    private static func column(_ line: Line, _ width: Int) -> Line { line.clipped(to: width).padded(to: width) + "  " }

    private static func padLeft(_ text: String, _ width: Int) -> String {
        String(repeating: " ", count: max(0, width - text.count)) + text
    }
}
