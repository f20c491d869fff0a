import Foundation

/// A card as shown to people. It may come from another device, so control characters are neutralized.
enum CardText {
    /// The name on the card (vCard, `FN`); nil: there is none, or it is not a vCard.
    /// - SeeAlso: RFC 6350, 6.2.1.
    static func name(_ card: Data) -> String? {
        for line in lines(card) ?? [] {
            let parts = line.split(separator: ":", maxSplits: 1)
            // A group and parameters may precede the value: `item1.FN;LANGUAGE=en:Ada`.
            guard parts.count == 2, let property = parts[0].split(separator: ";").first?.split(separator: ".").last,
                property.uppercased() == "FN"
            else { continue }
            let name = parts[1].trimmingCharacters(in: .whitespaces).clipped(to: 60)
            if !name.isEmpty { return name }
        }
        return nil
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
