import BluezKitSimulator
import Foundation
import Testing

@Suite struct RecordingImportTests {
    private static let heartRate = "0000180d-0000-1000-8000-00805f9b34fb"

    private func devices(_ files: (String, [UInt8])...) throws -> [RecordingImport.Device] {
        try RecordingImport(files.map { .init(path: $0.0, content: Data($0.1)) }).devices
    }

    @Test(
        "a capture gives table, values, errors, writes and notifications with their times",
        arguments: [CaptureBuilder.Link.bare, .uart, .monitor])
    func session(_ link: CaptureBuilder.Link) throws {
        let device = try #require(try devices(("a", CaptureBuilder.session(link))).first)
        let recording = device.recording
        #expect(device.isConnected && device.unexplained == 0)
        #expect(recording.address == CaptureBuilder.peerAddress && recording.addressType == "random")
        #expect(recording.name == "Pulse" && recording.mtu == 247)
        #expect(recording.advertisements.map(\.rssi) == [-60, -55])
        #expect(recording.advertisements.allSatisfy { $0.content.localName == "Pulse" && $0.content.flags == 6 })
        #expect(recording.advertisements.allSatisfy { $0.content.serviceUUIDs == [Self.heartRate] })
        let sensor = try #require(recording.services.first { $0.uuid == Self.heartRate })
        #expect(sensor.characteristics.map(\.flags) == [.notify, .read, .read, .write])
        #expect(sensor.characteristics.map(\.value) == [nil, [1], nil, nil])
        #expect(sensor.characteristics.map(\.error) == [nil, nil, 5, nil])
        #expect(sensor.characteristics[0].descriptors.map(\.uuid) == ["00002902-0000-1000-8000-00805f9b34fb"])
        #expect(recording.notifications.map(\.characteristic) == ["180D/2A37", "180D/2A37"])
        #expect(recording.notifications.map(\.value) == [[0, 0x48], [0, 0x49]])
        #expect(recording.notifications.map(\.time) == [1.0, 2.0])
        #expect(recording.writes == [.init(time: 2, characteristic: "180D/2A39", value: [1])], "no subscription")
        #expect(try Recording(fileContent: recording.fileContent()) == recording)
    }

    @Test("a long value that is read in parts is whole, and so is a write in parts")
    func parts() throws {
        var capture = CaptureBuilder(.uart)
        capture.connects()
        capture.sends([0x10, 0x01, 0x00, 0xFF, 0xFF, 0x00, 0x28])
        capture.receives([0x11, 6, 0x01, 0x00, 0x09, 0x00, 0x0A, 0x18])
        capture.sends([0x08, 0x01, 0x00, 0x09, 0x00, 0x03, 0x28])
        capture.receives([0x09, 7, 0x02, 0x00, 0x0A, 0x03, 0x00, 0x24, 0x2A])
        capture.sends([0x0A, 0x03, 0x00])
        capture.receives([0x0B] + Array(repeating: 7, count: 22))
        capture.sends([0x0C, 0x03, 0x00, 22, 0])
        capture.receives([0x0D, 8, 9])
        for (offset, part) in [(UInt8(0), [UInt8](repeating: 1, count: 18)), (18, [2, 3])] {
            capture.sends([0x16, 0x03, 0x00, offset, 0] + part)
            capture.receives([0x17, 0x03, 0x00, offset, 0] + part)
        }
        capture.sends([0x18, 1])
        capture.receives([0x19])
        let recording = try #require(try devices(("a", capture.bytes)).first).recording
        #expect(recording.services[0].characteristics[0].value == Array(repeating: 7, count: 22) + [8, 9])
        #expect(recording.writes.map(\.value) == [Array(repeating: 1, count: 18) + [2, 3]])
    }

    @Test("extended advertisements are joined, and several values in one notification are taken apart")
    func extended() throws {
        var capture = CaptureBuilder(.monitor)
        func report(_ type: UInt16, _ data: [UInt8]) -> [UInt8] {
            // Parts, as Swift 6.0 gives up on a sum of that many literals.
            let parts: [[UInt8]] = [
                [0x0D, 1], CaptureBuilder.little(type), [1], CaptureBuilder.peer, [1, 0, 0, 0x7F, 0xC4, 0, 0, 0],
                [0, 0, 0, 0, 0, 0, UInt8(data.count)], data,
            ]
            return Array(parts.joined())
        }
        capture.event(0x3E, report(0x21, [5, 0xFF, 0x4C, 0x00]))
        capture.event(0x3E, report(0x01, [2, 3]))
        let heard = try #require(try devices(("a", capture.bytes)).first).recording.advertisements
        #expect(heard.map(\.rssi) == [-60] && heard[0].content.isConnectable)
        #expect(heard[0].content.manufacturerData[0x4C] == [2, 3])

        capture.connects()
        capture.sends([0x10, 0x01, 0x00, 0xFF, 0xFF, 0x00, 0x28])
        capture.receives([0x11, 6, 0x01, 0x00, 0x09, 0x00, 0x0D, 0x18])
        capture.sends([0x08, 0x01, 0x00, 0x09, 0x00, 0x03, 0x28])
        capture.receives([0x09, 7, 0x02, 0x00, 0x10, 0x03, 0x00, 0x37, 0x2A])
        capture.receives([0x23, 3, 0, 2, 0, 0, 60, 3, 0, 1, 0, 9])
        let notified = try #require(try devices(("a", capture.bytes)).first).recording.notifications
        #expect(notified.map(\.value) == [[0, 60], [9]])
    }

    private static let cache = """
        [General]
        Name=Pulse

        [Attributes]
        0004=2800:0010:0000180d-0000-1000-8000-00805f9b34fb
        0005=2803:0006:10:00002a37-0000-1000-8000-00805f9b34fb
        0007=00002902-0000-1000-8000-00805f9b34fb
        0008=2803:0009:82:00002a38-0000-1000-8000-00805f9b34fb
        000a=0001:00002900-0000-1000-8000-00805f9b34fb
        000c=2803:000d:08:00002a39-0000-1000-8000-00805f9b34fb
        000e=2803:000f:02:00112233445566778899aabbccddeeff:00002b2a-0000-1000-8000-00805f9b34fb
        0020=2801:0021:bb1e0002-5d3b-4c6f-9a5e-000000000000
        0022=2800:0030:bb1e0001-5d3b-4c6f-9a5e-000000000000
        0023=2802:0020:0021:bb1e0002-5d3b-4c6f-9a5e-000000000000
        """

    private var cachePath: String { "/var/lib/bluetooth/00:1A:7D:DA:71:13/cache/\(CaptureBuilder.peerAddress)" }

    @Test("BlueZ's cache gives the table, and its info file the type of the address")
    func cache() throws {
        let info = "[General]\nName=Pulse 2\nAddressType=public\nServices=0000180d-0000-1000-8000-00805f9b34fb;\n"
        let recording = try #require(
            try devices(
                (cachePath, Array(Self.cache.utf8)),
                ("/var/lib/bluetooth/00:1A:7D:DA:71:13/\(CaptureBuilder.peerAddress)/info", Array(info.utf8))
            ).first
        ).recording
        #expect(recording.address == CaptureBuilder.peerAddress)
        #expect(recording.name == "Pulse 2" && recording.addressType == "public")
        #expect(recording.services.map(\.isPrimary) == [true, false, true])
        #expect(recording.services[2].includes == ["bb1e0002-5d3b-4c6f-9a5e-000000000000"])
        let own = recording.services[0].characteristics
        #expect(own.map(\.flags.rawValue) == [0x10, 0x82, 0x08, 0x02])
        #expect(own[1].descriptors == [.init("2900", value: [1, 0])])
        #expect(own[3].value?.prefix(2) == [0x00, 0x11])
    }

    @Test("what a capture does not discover is explained by the cache; without it, it is counted")
    func together() throws {
        let capture = CaptureBuilder.session(.monitor, discovers: false)
        let alone = try #require(try devices(("a", capture)).first)
        #expect(alone.recording.notifications.isEmpty && alone.unexplained == 4)
        let joined = try devices(("a", capture), (cachePath, Array(Self.cache.utf8)))
        #expect(joined.count == 1 && joined[0].unexplained == 0)
        #expect(joined[0].recording.notifications.count == 2 && joined[0].recording.writes.count == 1)
        #expect(joined[0].recording.services[0].characteristics[1].value == [1])
    }

    @Test("devices with attributes come before those that only advertise")
    func several() throws {
        var capture = CaptureBuilder(.uart)
        for _ in 0..<3 { capture.advertises([2, 0x0A, 4], from: [9, 0, 0, 0, 0, 0xC0]) }
        capture.advertises([2, 0x0A, 4])
        capture.connects()
        capture.sends([0x0A, 0x03, 0x00])
        let found = try devices(("a", capture.bytes))
        #expect(found.map(\.recording.address) == [CaptureBuilder.peerAddress, "C0:00:00:00:00:09"])
        #expect(found.map(\.isConnected) == [true, false])
        #expect(found[1].recording.advertisements.map(\.content.txPower) == [4, 4, 4])
    }

    @Test("what is no capture is refused in words")
    func refusals() throws {
        func reason(_ path: String, _ bytes: [UInt8]) -> String {
            do throws(RecordingError) {
                _ = try RecordingImport([.init(path: path, content: Data(bytes))])
                return ""
            } catch { return error.description }
        }
        let head = Array(CaptureBuilder(.uart).bytes.prefix(12))
        #expect(reason("a", [0xFF]) == "'a' cannot be used: it is neither a capture nor a file of BlueZ")
        #expect(reason("a", Array("x=1".utf8)).contains("line 1 is neither"))
        #expect(reason("a", head + [0, 0, 3, 0xEA, 0]) == "")
        #expect(reason("a", head + [0, 0, 0, 1]).contains("the datalink type 1, and not of 1001, 1002 or 2001"))
        #expect(reason("a", head).contains("it is not a btsnoop capture"))
        #expect(reason("cache", Array(Self.cache.utf8)).contains("address of the device must be the name of the file"))
        #expect(reason(cachePath, Array((Self.cache + "\n0040=28:zz").utf8)).contains("line 15 is not an attribute"))
    }

    @Test("mutated captures and caches are refused or read, and what is read can be written and replayed")
    func mutated() throws {
        var random = SystemRandomNumberGenerator()
        var readable = 0
        for round in 0..<Mutation.count {
            let good =
                round % 2 == 0 ? CaptureBuilder.session(round % 4 == 0 ? .uart : .monitor) : Array(Self.cache.utf8)
            let bytes = Mutation.mutated(good, using: &random)
            guard let found = try? RecordingImport([.init(path: cachePath, content: bytes)]).devices else { continue }
            for device in found {
                let content = try device.recording.fileContent()
                let recording = try Recording(fileContent: content)
                _ = VirtualPeripheral(recording: recording.anonymized())
                readable += 1
            }
        }
        #expect(readable > 0)
    }
}
