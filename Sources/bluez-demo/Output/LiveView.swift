/// Lines at the end of the terminal's text that are redrawn in place, below permanent lines. Produces the text to
/// write; writes nothing.
struct LiveView {
    private var block: [Line] = []
    private var hasHiddenCursor = false
    /// The size for which the block was drawn.
    private var drawnFor = Terminal.Size()

    let colour: Bool

    init(colour: Bool) { self.colour = colour }

    /// Redraws the block, with `lines` above it that are permanent.
    mutating func draw(_ block: [Line], above lines: [Line] = [], size: Terminal.Size) -> String {
        // In one piece between these two: terminals that support them show no partial frame.
        var text = "\u{1B}[?2026h"
        if !block.isEmpty, !hasHiddenCursor {
            text += "\u{1B}[?25l"
            hasHiddenCursor = true
        }
        text += toTop(size)
        // What has wrapped is erased before something is written over it: terminals that wrap join these rows again
        // later.
        if !self.block.isEmpty, size != drawnFor { text += "\u{1B}[J" }
        for line in lines { text += line.rendered(colour: colour) + "\u{1B}[K\n" }
        // One row is reserved for the cursor, because a line that fills the last column may wrap.
        self.block = block.prefix(size.rows - 1).map { $0.clipped(to: size.columns - 1) }
        for line in self.block { text += line.rendered(colour: colour) + "\u{1B}[K\n" }
        drawnFor = size
        return text + "\u{1B}[J\u{1B}[?2026l"
    }

    /// Inserts lines above the block.
    mutating func insert(_ lines: [Line], size: Terminal.Size) -> String { draw(block, above: lines, size: size) }

    /// Leaves the block in place and restores the cursor.
    mutating func end() -> String {
        defer { (block, hasHiddenCursor) = ([], false) }
        return hasHiddenCursor ? "\u{1B}[?25h" : ""
    }

    /// Moves to the first line of the block.
    private func toTop(_ size: Terminal.Size) -> String {
        // A terminal that became narrower has wrapped the lines.
        let rows =
            size.columns >= drawnFor.columns
            ? block.count : block.reduce(0) { $0 + max(1, ($1.width + size.columns - 1) / size.columns) }
        return rows > 0 ? "\r\u{1B}[\(rows)A" : "\r"
    }
}
