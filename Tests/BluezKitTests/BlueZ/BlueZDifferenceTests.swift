import Foundation
import Testing

@testable import BluezKit

@Suite struct BlueZDifferenceTests {
    @Test(
        "what a version has, and what is wrong with it",
        arguments: [
            (BlueZVersion(5, 66), [.bondedProperty], [.confirmations, .filterCrash, .cleanAcquireNotify], 11),
            (
                BlueZVersion(5, 82), [.confirmations, .lateBonds, .undoneRemoval],
                [.disconnectReasons, .filterCrash, .lostBondCrash],
                11
            ),
            (BlueZVersion(5, 86), [.disconnectReasons, .bearerLE], [.filterCrash, .cleanAcquireNotify], 9),
            (BlueZVersion(5, 87), [.filterCrash, .cleanAcquireNotify], [], 11),
            (BlueZVersion(5, 88), [.cleanAcquireNotify], [.filterCrash], 9),
        ] as [(BlueZVersion, [BlueZDifference], [BlueZDifference], Int)])
    func versions(
        _ version: BlueZVersion, _ present: [BlueZDifference], _ absent: [BlueZDifference], _ faults: Int
    ) {
        let daemon = BlueZDaemon(version: version)
        for difference in present { #expect(daemon.has(difference), "\(difference)") }
        for difference in absent { #expect(!daemon.has(difference), "\(difference)") }
        #expect(BlueZDifference.faults(of: version).count == faults)
    }

    @Test("every row says since when, how it is known, and what BluezKit does", arguments: BlueZDifference.allCases)
    func rows(_ difference: BlueZDifference) {
        let row = difference.row
        #expect(!row.what.isEmpty && !row.evidence.isEmpty && !row.handling.isEmpty && !row.versions.isEmpty)
        #expect(row.kind == .fault || row.since != nil)
    }

    private static let path = URL(fileURLWithPath: #filePath)
        .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().appendingPathComponent("Docs/COMPATIBILITY.md")

    @Test("Docs/COMPATIBILITY.md shows the table")
    func document() throws {
        var text = try String(contentsOf: Self.path, encoding: .utf8)
        let (start, end) = ("<!-- versions: generated -->\n", "<!-- versions: end -->")
        let first = try #require(text.range(of: start)), last = try #require(text.range(of: end))
        let table = Self.tables()
        if ProcessInfo.processInfo.environment["BLUEZKIT_WRITE_DOCS"] != nil {
            text.replaceSubrange(first.upperBound..<last.lowerBound, with: table)
            return try text.write(to: Self.path, atomically: true, encoding: .utf8)
        }
        #expect(
            text[first.upperBound..<last.lowerBound] == table,
            "stale: run `BLUEZKIT_WRITE_DOCS=1 swift test --filter BlueZDifferenceTests` and commit the file")
    }

    private static func tables() -> String {
        func isFault(_ row: BlueZDifference.Row) -> Bool { row.kind == .fault }
        let rows = BlueZDifference.allCases.map(\.row)
        var lines = [
            "", "What came with which version of BlueZ (the rows are those of",
            "`Sources/BluezKit/BlueZ/BlueZDifference.swift`; `rig`: seen with a real bluetoothd; `source`: read in its",
            "source code):", "", "| BlueZ | What | BluezKit | Known from |", "|---|---|---|---|",
        ]
        for row in rows where !isFault(row) {
            lines.append("| \(row.versions) | \(row.what) | \(row.handling) | \(row.evidence) |")
        }
        lines += [
            "", "Faults of BlueZ:", "", "| BlueZ | What | BluezKit | You | Known from |", "|---|---|---|---|---|",
        ]
        for row in rows where isFault(row) {
            lines.append("| \(row.versions) | \(row.what) | \(row.handling) | \(row.cure) | \(row.evidence) |")
        }
        lines += ["", "Faults of Linux:", "", "| Linux | What | BluezKit | You |", "|---|---|---|---|"]
        for fault in LinuxFault.all {
            lines.append("| \(fault.versions) | \(fault.what) | \(fault.handling) | \(fault.cure) |")
        }
        return (lines + ["", ""]).joined(separator: "\n")
    }
}
