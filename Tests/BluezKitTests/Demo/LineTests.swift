import Testing

@testable import bluez_demo

@Suite struct LineTests {
    @Test("columns are counted as in a terminal")
    func measuresText() {
        #expect("abc".displayWidth == 3)
        #expect("ä\u{0301}é".displayWidth == 2)
        #expect("心拍".displayWidth == 4)
        #expect("👨‍👩‍👧".displayWidth == 2)
        #expect("\u{2665}".displayWidth == 1)
        #expect("\u{2665}\u{FE0F}".displayWidth == 2)
        #expect("▁▂█…".displayWidth == 4)
    }

    @Test("clipping never exceeds the width, and says that it clipped")
    func clips() {
        let line = Line("heart", .red) + Line(" 心拍 ") + Line("rate", .bold)
        for width in 0...20 { #expect(line.clipped(to: width).width <= width) }
        #expect(line.clipped(to: 20) == line)
        #expect(line.clipped(to: 6).text == "heart…")
        #expect(line.clipped(to: 8).text == "heart …")
        #expect(line.clipped(to: 9).text == "heart 心…")
        #expect("abc".clipped(to: 3) == "abc")
        #expect("abcd".clipped(to: 3) == "ab…")
    }

    @Test("long lines are broken between words, never in one, and keep their styles")
    func wraps() {
        let line = Line("ok  ") + Line("red words", .red) + Line(", and more") + Line(" of them", .dim)
        #expect(line.wrapped(to: 80, indent: 4) == [line])
        #expect(line.wrapped(to: 14, indent: 4).map(\.text) == ["ok  red words,", "    and more", "    of them"])
        #expect(line.wrapped(to: 14, indent: 4)[0] == Line("ok  ") + Line("red words", .red) + ",")
        #expect(line.wrapped(to: 14, indent: 4)[2] == Line("    ") + Line("of them", .dim))
        #expect(
            Line("a bus at unix:path=/tmp/x/bus").wrapped(to: 10, indent: 0).map(\.text) == [
                "a bus at", "unix:path=/tmp/x/bus",
            ])
        #expect(Line("  心拍 心拍").wrapped(to: 9, indent: 2).map(\.text) == ["  心拍", "  心拍"])
        for width in 0...30 {
            let parts = line.wrapped(to: width, indent: 2)
            #expect(parts.map(\.text).joined().filter { $0 != " " } == line.text.filter { $0 != " " })
            #expect(parts.allSatisfy { $0.width <= max(width, "  words,".count) })
        }
    }

    // A table in 20 columns had a name that was cut, and the line cut again behind it: "……".
    @Test("text that is cut in a column and again at the end of its line has one ellipsis", arguments: 5...9)
    func oneEllipsis(width: Int) {
        let row = Line("long name".clipped(to: 5)) + Line("  ") + Line("more")
        #expect(
            row.clipped(to: width).text.filter { $0 == "…" }.count == (width < 9 ? 1 : 2), "\(row.clipped(to: width))")
        #expect(row.clipped(to: width).width <= width)
    }

    @Test("colours are written only if requested")
    func rendersColours() {
        let line = Line("a", .red) + Line("b")
        #expect(line.rendered(colour: false) == "ab")
        #expect(line.rendered(colour: true) == "\u{1B}[31ma\u{1B}[0mb")
    }

    @Test("names from other devices cannot control the terminal")
    func disarmsText() {
        #expect("\u{1B}[2Jgone\r\n\u{7}".harmless == "\u{FFFD}[2Jgone\u{FFFD}\u{FFFD}\u{FFFD}")
        #expect("\u{9B}31m".harmless == "\u{FFFD}31m")
        #expect("abc\u{202E}fed".harmless == "abc\u{FFFD}fed")
        #expect("Zoë's 👨‍👩‍👧 心拍".harmless == "Zoë's 👨‍👩‍👧 心拍")
    }
}
