import BluezKitSimulator
import Foundation
import Testing

@testable import bluez_demo

@Suite struct LadderRowTests {
    @Test(
        "the ladder fits any terminal: names and numbers first, bars where there is room", arguments: [40, 59, 79, 120])
    func fits(width: Int) {
        let measured = ["notifications", "write without response, 244 bytes"].map {
            LadderRow($0, bytes: 100_000, seconds: 1, limit: "the controllers: packets in an event, their length, PHY")
        }
        for rows in [measured, ThroughputRung.talk2017.map { LadderRow($0) }] {
            let lines = LadderRow.table(rows, width: width).map(\.text)
            for line in lines { #expect(line.displayWidth <= width, "\(line)") }
            for row in rows where width >= 59 { #expect(lines.contains { $0.hasPrefix("  " + row.name + " ") }) }
            #expect(lines.contains { $0.contains("\u{2588}") } == (width >= 79))
        }
    }

    @Test("the numbers of the ladder stand below their headings")
    func columns() {
        let lines = LadderRow.table(ThroughputRung.talk2017.map { LadderRow($0) }, width: 59).map(\.text)
        #expect(lines[0] == "  kbit/s                                   Apple calculated")
        #expect(lines[1] == "  write with response                        2.5        2.7")
    }

    // It counted the end of the last packet as the end of the last interval, and had 136.6, 197.2 and 394.3.
    @Test("Docs/THROUGHPUT.md has the figures that the ladder shows")
    func documented() throws {
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
        let document = try String(contentsOf: root.appendingPathComponent("Docs/THROUGHPUT.md"), encoding: .utf8)
        let rows = document.split(separator: "\n").map {
            $0.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
        }
        .filter { $0.count == 5 && Int($0[0]) != nil }
        #expect(rows.count == ThroughputRung.talk2017.count)
        for (rung, row) in zip(ThroughputRung.talk2017, rows) {
            let shown = LadderRow(rung).rateText.trimmingCharacters(in: .whitespaces)
            // With a further digit where there are few.
            let documented = try #require(Double(row[3]))
            #expect((documented * 10).rounded() / 10 == Double(shown), "\(row)")
        }
    }
}

@Suite struct LadderCountTests {
    // Each answer counted as an event, so that the limit of 30 s never ended it.
    @Test("a count that stays the same is no progress, and one that grows is")
    func constant() {
        var count = LadderCount()
        #expect(count.take(500, moved: 0) == .begin)
        #expect(count.take(500, moved: 100) == .ask(isProgress: false))
        #expect(count.take(560, moved: 100) == .ask(isProgress: true))
        #expect(count.take(560, moved: 100) == .ask(isProgress: false))
        #expect(count.take(600, moved: 100) == .complete)
    }

    @Test("a peer that has begun to count again from 0, or says any number, is asked again")
    func invented() {
        var count = LadderCount()
        #expect(count.take(.max, moved: 0) == .begin)
        #expect(count.take(0, moved: 100) == .ask(isProgress: true))
        #expect(count.take(0, moved: 100) == .ask(isProgress: false))
    }

    // It began again and again, as nothing was sent in any of them.
    @Test("a rung in which nothing can be sent is begun three times")
    func stuck() {
        var count = LadderCount()
        for _ in 1...3 { #expect(count.take(0, moved: 0) == .begin) }
        #expect(count.take(0, moved: 0) == .stuck)
    }
}
