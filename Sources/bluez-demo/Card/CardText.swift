import Foundation

/// A card as shown to people. It may come from another device, so control characters are neutralized.
enum CardText {
    /// The name on the card; nil: there is none, or it is not a vCard.
    static func name(_ card: Data) -> String? {
        String(validating: card, as: UTF8.self).flatMap { VCard($0).name }.map { $0.harmless.clipped(to: 60) }
    }

    /// The lines of a text; nil: it is not a text.
    static func lines(_ card: Data) -> [String]? {
        guard let text = String(validating: card, as: UTF8.self) else { return nil }
        return text.split(omittingEmptySubsequences: false) { $0.isNewline }.map { String($0).harmless }
    }

    /// `312 bytes`.
    static func size(_ bytes: Int) -> String { bytes == 1 ? "1 byte" : "\(grouped(bytes)) bytes" }

    /// `[#####.....]  50 %  50,000 of 100,000 bytes`, using the available width.
    static func progress(_ done: Int, of size: Int, width: Int) -> Line {
        let share = size == 0 ? 1 : Double(done) / Double(size)
        let numbers = "  \(Int(share * 100)) %  \(grouped(done)) of \(Self.size(size))"
        let room = max(0, min(40, width - numbers.count - 4))
        let filled = Int(share * Double(room))
        return Line("  ") + Line(String(repeating: "\u{2588}", count: filled), .cyan)
            + Line(String(repeating: "\u{2591}", count: room - filled), .dim) + Line(numbers)
    }

    /// `1,234,567`.
    static func grouped(_ number: Int) -> String {
        var text = ""
        for (index, digit) in String(number).reversed().enumerated() {
            if index > 0, index.isMultiple(of: 3) { text.append(",") }
            text.append(digit)
        }
        return String(text.reversed())
    }
}
