/// A line for people: pieces of text, each with a style. Measured in columns, and coloured only when shown.
struct Line: Equatable, ExpressibleByStringLiteral {
    /// SGR parameters of ECMA-48.
    enum Style: String { case plain = "", bold = "1", dim = "2", red = "31", green = "32", yellow = "33", cyan = "36" }

    struct Piece: Equatable {
        var text: String
        var style: Style
    }

    private(set) var pieces: [Piece] = []

    init(_ text: String = "", _ style: Style = .plain) {
        // Not `text.isEmpty ? [] : [...]`: Swift 6.0 may free an array that one branch makes before it is used.
        if !text.isEmpty { pieces.append(Piece(text: text, style: style)) }
    }
    init(stringLiteral text: String) { self.init(text) }

    static func + (left: Line, right: Line) -> Line {
        var sum = left
        sum.pieces += right.pieces
        return sum
    }

    static func += (left: inout Line, right: Line) { left.pieces += right.pieces }

    /// The text alone.
    var text: String { pieces.map(\.text).joined() }
    /// The number of spaces at its beginning.
    var indent: Int { text.prefix { $0 == " " }.count }
    var width: Int { pieces.reduce(0) { $0 + $1.text.displayWidth } }

    /// At most this wide; what is cut off is replaced by "…".
    func clipped(to width: Int) -> Line {
        guard self.width > width else { return self }
        var result = Line()
        var left = width
        for piece in pieces {
            let text = piece.text.displayWidth < left ? piece.text : piece.text.clipped(to: left, always: true)
            // What was cut before says so already.
            if text != piece.text, text.allSatisfy({ $0 == " " || $0 == "…" }),
                result.text.last(where: { $0 != " " }) == "…"
            {
                break
            }
            result += Line(text, piece.style)
            left -= text.displayWidth
            if left <= 0 || text != piece.text { break }
        }
        return result
    }

    /// Padded with spaces to this width.
    func padded(to width: Int) -> Line {
        self.width < width ? self + Line(String(repeating: " ", count: width - self.width)) : self
    }

    /// Lines of at most this width, broken between words; all but the first begin with `indent` spaces. A longer word
    /// stays whole, so that it can be copied.
    func wrapped(to width: Int, indent: Int) -> [Line] {
        guard self.width > width else { return [self] }
        var lines: [Line] = []
        var line = Line(), space = Line(), word = Line()
        func endWord() {
            guard !word.pieces.isEmpty else { return }
            if line.width + space.width + word.width > width, line.width > indent {
                lines.append(line)
                (line, space) = (Line(String(repeating: " ", count: indent)), Line())
            }
            line += space + word
            (space, word) = (Line(), Line())
        }
        for piece in pieces {
            for character in piece.text {
                if character == " " {
                    endWord()
                    space += Line(" ", piece.style)
                } else {
                    word += Line(String(character), piece.style)
                }
            }
        }
        endWord()
        return (lines + [line]).map(\.joined)
    }

    /// With as few pieces as possible.
    private var joined: Line {
        var result = Line()
        for piece in pieces {
            if result.pieces.last?.style == piece.style {
                result.pieces[result.pieces.count - 1].text += piece.text
            } else {
                result.pieces.append(piece)
            }
        }
        return result
    }

    func rendered(colour: Bool) -> String {
        guard colour else { return text }
        return pieces.map { $0.style == .plain ? $0.text : "\u{1B}[\($0.style.rawValue)m\($0.text)\u{1B}[0m" }.joined()
    }
}
