import BluezKitSimulator
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

    @Test("the numbers stand below their headings")
    func columns() {
        let lines = LadderRow.table(ThroughputRung.talk2017.map { LadderRow($0) }, width: 59).map(\.text)
        #expect(lines[0] == "  kbit/s                                   Apple calculated")
        #expect(lines[1] == "  write with response                        2.5        2.7")
    }
}
