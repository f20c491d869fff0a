import Foundation
import Testing

@testable import bluez_demo

@Suite struct ScanTableTests {
    private func device(_ number: Int, _ name: String?, _ rssi: Int?, services: [String] = []) -> Advertisement {
        var advertisement = Advertisement(
            identifier: UUID(uuid: (0x42, 0, 0, 0, 0, 0, 0x80, 0, 0x80, 0, 0, 0, 0, 0, 0, UInt8(number))))
        (advertisement.name, advertisement.rssiDBm) = (name, rssi)
        advertisement.services = services.map { .init(uuid: $0, name: nil) }
        return advertisement
    }

    private func table(_ devices: [Advertisement]) -> ScanTable {
        var table = ScanTable()
        for device in devices { _ = table.update(device, at: 0) }
        return table
    }

    @Test("the scan table has the strongest signal on top, and devices without one at the end")
    func sortsByStrength() {
        let table = table([device(1, "far", -90), device(2, "near", -40), device(3, "none", nil)])
        let lines = table.lines(width: 100, height: 24, at: 1).map(\.text)
        #expect(lines.map { $0.split(separator: " ")[1] } == ["NAME", "near", "far", "none", "devices,"])
    }

    @Test("no line is wider than the terminal, nor are there more than fit", arguments: [(20, 3), (40, 5), (80, 24)])
    func fitsTheTerminal(_ width: Int, _ height: Int) {
        let many = (1...60).map { device($0, "心拍 sensor number \($0)", -40 - $0, services: ["180D", "180F", "1816"]) }
        let lines = table(many).lines(width: width, height: height, at: 1)
        #expect(lines.count == height - 1)
        for line in lines { #expect(line.width < width) }
        #expect(width < 40 || lines.last?.text == "60 devices, \(60 - (height - 3)) of them not shown, 1 s")
    }

    @Test("a narrow terminal has the address instead of the identifier, and room for names and services")
    func narrow() throws {
        var lamp = Advertisement(identifier: try #require(UUID(uuidString: "426C7A4B-0100-8000-8000-F0F1F2000001")))
        (lamp.name, lamp.rssiDBm, lamp.services) = ("A lamp in the hall", -50, [.init(uuid: "180D", name: nil)])
        #expect(table([lamp]).lines(width: 80, height: 24, at: 1)[1].text.contains(lamp.identifier.uuidString))
        #expect(
            table([lamp]).lines(width: 60, height: 24, at: 1).map(\.text)[...1] == [
                "RSSI  NAME             ADDRESS            SERVICES",
                " -50  A lamp in the …  F0:F1:F2:00:00:01  180D",
            ])
    }

    @Test("a device is new once, and keeps its last known name")
    func remembersDevices() {
        var table = ScanTable()
        let isNew = [table.update(device(1, "Lamp", -50), at: 0), table.update(device(1, nil, -50), at: 1)]
        #expect(isNew == [true, false] && table.count == 1)
        #expect(table.lines(width: 100, height: 24, at: 1)[1].text.contains("Lamp"))
    }

    @Test("one packet does not move a device far in the scan table")
    func smoothsStrength() {
        var table = table([device(1, "a", -50)])
        _ = table.update(device(1, "a", -90), at: 1)
        #expect(table.lines(width: 100, height: 24, at: 1)[1].text.hasPrefix(" -62"))
    }

    @Test("silent devices move down in the scan table")
    func sinksSilentDevices() {
        var table = table([device(1, "silent", -40), device(2, "alive", -80)])
        _ = table.update(device(2, "alive", -80), at: 11)
        #expect(table.lines(width: 100, height: 24, at: 12)[1].text.contains("alive"))
    }

    @Test("the piped scan table has four fields, and no control characters from other devices")
    func writesPlainLines() {
        let line = ScanTable.plainLine(device(1, "a\tb\nc", -50, services: ["180D", "180F"])).text
        let fields = line.split(separator: "\t", omittingEmptySubsequences: false)
        #expect(fields == ["42000000-0000-8000-8000-000000000001", "-50", "a\u{FFFD}b\u{FFFD}c", "180D, 180F"])
        let bare = ScanTable.plainLine(device(1, nil, nil)).text
        #expect(bare == "42000000-0000-8000-8000-000000000001\t\t\t")
    }
}
