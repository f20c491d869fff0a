import Foundation
import Testing

@testable import BluezKit
@testable import bluez_demo

/// What `bluez-demo trace` makes of the entries of a trace.
@Suite struct TraceReportTests {
    private static let peripheral = UUID(uuid: (0x42, 0, 0, 0, 0, 0, 0x80, 0, 0x80, 0, 0, 0, 0, 0, 0, 1))

    private func entry(
        _ name: String, at seconds: Double = 1, manager: Int? = 1, _ direction: TraceEntry.Direction? = .toApp,
        _ change: (inout TraceEntry) -> Void = { _ in }
    ) -> TraceEntry {
        var entry = TraceEntry(
            at: .init(seconds: seconds, wall: 1_800_000_000 + seconds, process: 7, manager: manager, role: .central))
        (entry.name, entry.direction) = (name, direction)
        change(&entry)
        return entry
    }

    private func value(_ bytes: [UInt8], count: Int? = nil, isHidden: Bool = false) -> TraceEntry.Value {
        TraceEntry.Value(bytes: Data(bytes), count: count ?? bytes.count, isHidden: isHidden)
    }

    @Test("a line has time, manager, direction, the method, and what it is about")
    func lines() {
        func text(_ entry: TraceEntry) -> String { TraceReport(entry).line().text }
        #expect(text(entry("stopScan", .toCore)) == "     1.000  1 -> stopScan")
        #expect(text(entry("app begins", at: 0, manager: nil, nil)) == "     0.000       app begins")
        #expect(text(entry("a", at: 123_456.7894, manager: 12)) == "123456.789 12 <- a")
        #expect(text(entry("a", at: -0.5)) == "    -0.500  1 <- a")
        let notified = entry("didUpdateValueFor") { entry in
            (entry.device, entry.attribute, entry.value) = ("Kit", "2A37", value([0, 0x3C]))
        }
        #expect(text(notified) == "     1.000  1 <- didUpdateValueFor Kit 2A37 [00 3C]")
        #expect(text(notified).count <= 80)
        let lost = entry("didDisconnectPeripheral") { entry in
            (entry.device, entry.facts, entry.error) = ("K\u{1B}[31m", ["reconnects", "x"], "gone (CBError 6)")
        }
        #expect(
            text(lost) == "     1.000  1 <- didDisconnectPeripheral K\u{FFFD}[31m: reconnects, x: gone (CBError 6)")
        #expect(TraceReport.gap(2.0021).text == "                 ... 2.002 s")
    }

    @Test("of a long value as much is shown as has room, of a hidden one the length")
    func values() {
        func text(_ value: TraceEntry.Value, width: Int = 80) -> String {
            String(TraceReport(entry("v") { $0.value = value }).line(width: width).text.dropFirst(19))
        }
        #expect(text(value([])) == "[]")
        let twenty = value([UInt8](0..<20))
        #expect(text(twenty) == "[00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F 10 11 12 13]")
        #expect(text(twenty, width: 79) == "[00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F … 20 bytes]")
        #expect(text(twenty, width: 0) == "[00 01 02 03 … 20 bytes]" && text(value([1, 2]), width: 0) == "[01 02]")
        #expect(text(value([1], count: 900)) == "[01 … 900 bytes]")
        #expect(text(value([0, 0], isHidden: true)) == "[2 bytes]")
    }

    @Test("for programs, an entry is an object with all of its value")
    func json() {
        let notified = entry("didUpdateValueFor") { entry in
            (entry.peripheral, entry.device, entry.attribute) = (Self.peripheral, "Kit", "2A37")
            (entry.value, entry.facts, entry.error) = (value([0, 0x3C]), ["x"], "no")
        }
        #expect(
            DemoEvent.traced(TraceReport(notified)).json.description
                == #"{"event":"trace","seconds":1,"date":"2027-01-15T08:00:01.000Z","process":7,"manager":1,"#
                + #""role":"central","direction":"toApp","name":"didUpdateValueFor","#
                + #""identifier":"42000000-0000-8000-8000-000000000001","device":"Kit","attribute":"2A37","bytes":2,"#
                + #""value":"003c","facts":["x"],"error":"no"}"#)
        let hidden = TraceReport(entry("v") { $0.value = value([0, 0], isHidden: true) }).json.description
        #expect(hidden.hasSuffix(#""name":"v","bytes":2}"#))
    }

    private func question(_ text: String, _ manager: Int = 1) -> TraceEntry.Question {
        TraceEntry.Question(manager: manager, peripheral: Self.peripheral, text: text)
    }

    @Test("the summary counts, and says why links ended, what took long and what was not answered")
    func summary() {
        var summary = TraceSummary()
        let entries = [
            entry("connect", at: 0, .toCore) { $0.asks = question("connect") },
            entry("didConnect", at: 2) { ($0.answers, $0.link) = (question("connect"), .up) },
            entry("readValue", at: 3, .toCore) { $0.asks = question("read") },
            entry("readValue", at: 3, .toCore) { $0.asks = question("read") },
            entry("didUpdateValueFor", at: 3.5) { $0.answers = question("read") },
            entry("didUpdateValueFor", at: 4),
            entry("writeValue", at: 4, .toCore) { $0.asks = question("write") },
            entry("didWriteValueFor", at: 4.25) { ($0.answers, $0.error) = (question("write"), "no") },
            entry("other", at: 5, manager: 2, .toCore) { $0.asks = question("other", 2) },
        ]
        for entry in entries { summary.add(entry) }
        #expect(
            summary.lines.map(\.text) == [
                "Summary: 9 lines, 5.000 s, 1 process, 2 managers",
                "  5 calls, 4 callbacks, 1 notified value, 1 error, 1 connect", "  slowest answers:",
                "     2.000 s  connect", "     0.500 s  readValue", "     0.250 s  writeValue",
                "  without an answer, asked at:", "     3.000 s  readValue", "     5.000 s  other",
            ])
        // The end of a link is the answer to what was asked on it, and to nothing else.
        summary.add(
            entry("didDisconnectPeripheral", at: 6) {
                ($0.peripheral, $0.link) = (Self.peripheral, .down(reason: "gone"))
            })
        #expect(
            summary.lines.map(\.text).suffix(4) == [
                "  ended with their link, asked at:", "     3.000 s  readValue", "  without an answer, asked at:",
                "     5.000 s  other",
            ])
        #expect(summary.lines.map(\.text).contains("  1 disconnect: gone"))
        #expect(
            summary.json.description
                == #"{"event":"traceSummary","lines":10,"seconds":6,"processes":1,"managers":2,"calls":5,"#
                + #""callbacks":5,"values":1,"errors":1,"connects":1,"disconnects":[{"reason":"gone","count":1}],"#
                + #""slowest":[{"name":"connect","seconds":2},{"name":"readValue","seconds":0.5},"#
                + #"{"name":"writeValue","seconds":0.25}],"lost":[{"name":"readValue","seconds":3}],"unanswered":[{"name":"other","seconds":5}]}"#
        )
    }
}
