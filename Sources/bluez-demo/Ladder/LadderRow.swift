import BluezKitSimulator
import Foundation

/// One way to move data, and how fast it was.
struct LadderRow: Equatable {
    var name: String
    var bytes: Int
    var seconds: Double
    /// What Apple published, in kbit/s.
    var published: Double?
    /// What keeps it from being faster.
    var limit: String

    /// In kbit/s.
    var rate: Double { seconds > 0 ? Double(bytes) * 8 / seconds / 1000 : 0 }

    /// One of the seven rungs of 2017, calculated.
    init(_ rung: ThroughputRung) {
        let usage = rung.send(1_000_000)
        // The rest of its last interval belongs to the time, as in the arithmetic of Docs/THROUGHPUT.md: nothing
        // follows in it.
        let time = Double(usage.events) * (rung.parameters.interval / .seconds(1))
        self.init(
            rung.name, bytes: usage.bytesToPeripheral, seconds: time, published: rung.published, limit: rung.limit)
    }

    init(_ name: String, bytes: Int, seconds: Double, published: Double? = nil, limit: String) {
        (self.name, self.bytes, self.seconds, self.published, self.limit) = (name, bytes, seconds, published, limit)
    }

    var json: JSONValue {
        [
            "event": "rung", "name": .string(name), "kilobitsPerSecond": .double((rate * 10).rounded() / 10),
            "published": published.map { .double($0) } ?? .null, "bytes": .int(bytes),
            "seconds": .double((seconds * 1000).rounded() / 1000), "limit": .string(limit),
        ]
    }

    /// `394.1`, `37.3`, `1,314`.
    private static func text(_ rate: Double) -> String {
        guard rate < 1000 else { return CardText.grouped(Int(min(rate, 1e9).rounded())) }
        let tenths = Int((rate * 10).rounded())
        return tenths % 10 == 0 ? String(tenths / 10) : "\(tenths / 10).\(tenths % 10)"
    }

    static let nameWidth = 40

    /// For a column of 8.
    var rateText: String { Self.right(Self.text(rate), 8) }

    private static func right(_ text: String, _ width: Int) -> String {
        String(repeating: " ", count: max(0, width - text.count)) + text
    }

    /// All rows, in the width of the terminal; nothing, if there are none.
    static func table(_ rows: [LadderRow], width: Int = Terminal.size.columns - 1) -> [Line] {
        guard let first = rows.first else { return [] }
        let numbers = first.published == nil ? "measured" : " Apple calculated"
        let heading = Line("  ") + Line("kbit/s").padded(to: Self.nameWidth(first, width)) + Line(numbers, .dim)
        let fastest = rows.map(\.rate).max() ?? 0
        return [heading] + rows.flatMap { $0.lines(fastest: fastest, width: width) }
    }

    /// The names get what the numbers leave of a narrow terminal.
    private static func nameWidth(_ row: LadderRow, _ width: Int) -> Int {
        min(nameWidth, max(8, width - 2 - (row.published == nil ? 8 : 17)))
    }

    /// Two lines: the rate with a bar, which fills the width for the fastest, if there is room for one; and the limit.
    private func lines(fastest: Double, width: Int) -> [Line] {
        let nameWidth = Self.nameWidth(self, width)
        var line = Line("  ") + Line(name).clipped(to: nameWidth).padded(to: nameWidth)
        if let published {
            line += Line(Self.right(Self.text(published), 6)) + Line(Self.right(Self.text(rate), 11), .bold)
        } else {
            line += Line(rateText, .bold)
        }
        let room = min(40, width - line.width - 2)
        if room >= 8 {
            let filled = fastest > 0 ? Int((rate / fastest * Double(room)).rounded()) : 0
            line += "  " + Line(String(repeating: "\u{2588}", count: max(rate > 0 ? 1 : 0, filled)), .cyan)
        }
        return [line] + Line("    " + limit, .dim).wrapped(to: width, indent: 4)
    }
}
