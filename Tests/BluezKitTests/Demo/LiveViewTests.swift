import Testing

@testable import bluez_demo

@Suite struct LiveViewTests {
    private let size = Terminal.Size(columns: 20, rows: 5)

    @Test("a live view is drawn in one piece over the previous one")
    func drawsInPlace() {
        var view = LiveView(colour: false)
        let first = view.draw(["a", "b"], size: size)
        #expect(first == "\u{1B}[?2026h\u{1B}[?25l\ra\u{1B}[K\nb\u{1B}[K\n\u{1B}[J\u{1B}[?2026l")
        let second = view.draw(["c"], size: size)
        #expect(second == "\u{1B}[?2026h\r\u{1B}[2Ac\u{1B}[K\n\u{1B}[J\u{1B}[?2026l")
    }

    @Test("permanent lines are inserted above a live view")
    func insertsAbove() {
        var view = LiveView(colour: false)
        _ = view.draw(["a"], size: size)
        let text = view.insert(["news"], size: size)
        #expect(text == "\u{1B}[?2026h\r\u{1B}[1Anews\u{1B}[K\na\u{1B}[K\n\u{1B}[J\u{1B}[?2026l")
    }

    @Test("a live view never fills the whole terminal, and a line never exceeds a row")
    func staysWithinTheTerminal() {
        var view = LiveView(colour: false)
        let text = view.draw(Array(repeating: Line(String(repeating: "x", count: 50)), count: 50), size: size)
        #expect(text.filter { $0 == "\n" }.count == size.rows - 1)
        #expect(text.filter { $0 == "x" }.count == (size.rows - 1) * (size.columns - 2))
    }

    @Test("a terminal that became narrower has wrapped the lines")
    func countsWrappedRows() {
        var view = LiveView(colour: false)
        _ = view.draw([Line(String(repeating: "x", count: 19))], size: size)
        let text = view.draw(["y"], size: Terminal.Size(columns: 10, rows: 5))
        // Erased first: what is written over wrapped rows would be joined with their rests when the terminal is wide
        // again.
        #expect(text == "\u{1B}[?2026h\r\u{1B}[2A\u{1B}[Jy\u{1B}[K\n\u{1B}[J\u{1B}[?2026l")
        let same = view.draw(["z"], size: Terminal.Size(columns: 10, rows: 5))
        #expect(same == "\u{1B}[?2026h\r\u{1B}[1Az\u{1B}[K\n\u{1B}[J\u{1B}[?2026l")
    }

    @Test("a live view restores the cursor once")
    func restoresTheCursor() {
        var view = LiveView(colour: false)
        let before = view.end()
        _ = view.draw(["a"], size: size)
        let after = [view.end(), view.end()]
        #expect(before.isEmpty && after == ["\u{1B}[?25h", ""])
    }
}
