import Foundation

/// The properties of a vCard: unfolded, and decoded when they are asked for.
///
/// - SeeAlso: RFC 6350, 3.2 to 3.4 (version 4.0; 3.0 is alike); vCard 2.1, 2.1.3 and 2.1.4, which phones still export.
struct VCard {
    private struct Property {
        /// Upper case, without its group: `item1.fn` is `FN`.
        let name: String
        /// Upper case, without quotes.
        let parameters: [String]
        /// As it is written.
        let value: String

        /// Nil: it is not a property.
        init?(_ line: String) {
            var isQuoted = false  // a quoted parameter may contain the separators
            var parts = [""]
            for (index, character) in zip(line.indices, line) {
                switch character {
                case "\"": isQuoted.toggle()
                case ";" where !isQuoted: parts.append("")
                case ":" where !isQuoted:
                    guard let name = parts[0].split(separator: ".").last else { return nil }
                    self.name = name.uppercased()
                    parameters = parts.dropFirst().map { $0.uppercased() }
                    value = String(line[line.index(after: index)...])
                    return
                default: parts[parts.count - 1].append(character)
                }
            }
            return nil
        }

        var isQuotedPrintable: Bool { parameters.contains { $0.hasSuffix("QUOTED-PRINTABLE") } }

        /// Its components, between semicolons, without escapes.
        var components: [String] {
            var components = [""]
            var isEscaped = false
            for character in isQuotedPrintable ? decoded : value {
                switch character {
                case "\\" where !isEscaped:
                    isEscaped = true
                    continue
                case "n" where isEscaped, "N" where isEscaped: components[components.count - 1].append(" ")
                case ";" where !isEscaped: components.append("")
                default: components[components.count - 1].append(character)
                }
                isEscaped = false
            }
            return components.map { $0.trimmingCharacters(in: .whitespaces) }
        }

        /// - SeeAlso: RFC 2045, 6.7.
        private var decoded: String {
            var bytes: [UInt8] = []
            var rest = Array(value.utf8)[...]
            while let byte = rest.popFirst() {
                if byte == UInt8(ascii: "="),
                    let code = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16)
                {
                    rest = rest.dropFirst(2)
                    bytes.append(code)
                } else {
                    bytes.append(byte)
                }
            }
            let isLatin = parameters.contains { $0.hasPrefix("CHARSET=ISO-8859-1") }
            return isLatin
                ? String(String.UnicodeScalarView(bytes.map { Unicode.Scalar($0) }))
                : String(decoding: bytes, as: UTF8.self)
        }
    }

    private let properties: [Property]

    init(_ text: String) {
        let lines = text.split(omittingEmptySubsequences: false) { $0.isNewline }.map(String.init)
        // RFC 6350 folds anywhere, and the blank is not part of the value; 2.1 folds at a blank, which is.
        let keepsBlank = lines.contains { $0.uppercased().hasPrefix("VERSION:2.1") }
        var logical: [LogicalLine] = []
        for line in lines {
            let last = logical.count - 1
            if last >= 0, logical[last].hasSoftBreak {
                logical[last].removeBreak()
                logical[last].append(line)
            } else if last >= 0, let first = line.first, first == " " || first == "\t" {
                logical[last].append(keepsBlank ? line : String(line.dropFirst()))
            } else {
                logical.append(LogicalLine(line))
            }
        }
        properties = logical.compactMap { Property($0.text) }
    }

    /// A property, from as many lines as it takes. Looks at each character once, however many lines a stranger's card
    /// is folded into.
    private struct LogicalLine {
        private(set) var text = ""
        private var isQuoted = false
        /// Whether its value is quoted-printable; nil: the value has not begun.
        private var isQuotedPrintable: Bool?

        init(_ line: String) { append(line) }

        var hasSoftBreak: Bool { isQuotedPrintable == true && text.utf8.last == UInt8(ascii: "=") }

        mutating func removeBreak() { text.unicodeScalars.removeLast() }

        mutating func append(_ piece: String) {
            text += piece
            guard isQuotedPrintable == nil else { return }
            for byte in piece.utf8 {
                if byte == UInt8(ascii: "\"") { isQuoted.toggle() }
                guard byte == UInt8(ascii: ":"), !isQuoted else { continue }
                isQuotedPrintable = Property(text)?.isQuotedPrintable ?? false
                return
            }
        }
    }

    /// The first formatted name that is not empty; otherwise the given name and the family name, as 2.1 requires only
    /// those.
    var name: String? {
        for property in properties where property.name == "FN" {
            let name = property.components.joined(separator: ";")
            if !name.isEmpty { return name }
        }
        for property in properties where property.name == "N" {
            let name = property.components.prefix(2).reversed().filter { !$0.isEmpty }.joined(separator: " ")
            if !name.isEmpty { return name }
        }
        return nil
    }
}
