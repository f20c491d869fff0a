import BluezKitSimulator
import Foundation
import Testing

@testable import BluezKitRestore

@Suite struct SnapshotTests {
    /// One with everything in it, equal each time.
    static func full() throws -> Snapshot {
        let identifiers = (1...3).map { UUID(uuid: (UInt8($0), 0, 0, 0, 0, 0, 0x80, 0, 0x80, 0, 0, 0, 0, 0, 0, 0)) }
        func uuid(_ text: String) throws -> AttributeUUID { try #require(AttributeUUID(text)) }
        func element(_ text: String) throws -> PathElement { try #require(PathElement(text)) }
        var snapshot = Snapshot(
            role: .central, identifier: "heart/rate ❤", app: "/usr/bin/app", boot: "b007",
            saved: Date(timeIntervalSince1970: 1_700_000_000))
        snapshot.bluetooth = "guid :1.7 hci0 42"
        snapshot.scan = ScanRequest(
            services: [try uuid("180D")], allowsDuplicates: true, solicitedServices: [try uuid("180F")])
        let characteristic = Snapshot.Characteristic(
            element: try element("char000b"), uuid: try uuid("2A37"), properties: 0x10, isNotifying: true,
            descriptors: [Snapshot.Descriptor(element: try element("desc000d"), uuid: try uuid("2902"))])
        let service = Snapshot.Service(
            element: try element("service000a"), uuid: try uuid("BB1E0001-5D3B-4C6F-9A5E-000000000000"),
            isPrimary: true, isOnlyIncluded: false, layout: "1a2b", includedServices: [try element("service0020")],
            characteristics: [characteristic])
        snapshot.peripherals = [
            Snapshot.Peripheral(
                identifier: identifiers[0], name: "Heart \"A\"\n\u{0}", adapter: "hci0", state: .connected,
                isBonded: true,
                options: ConnectRequest(options: ["kCBConnectOptionEnableAutoReconnect": 1]), services: [service]),
            Snapshot.Peripheral(
                identifier: identifiers[1], name: nil, adapter: nil, state: .connecting, isBonded: false,
                options: ConnectRequest(options: [:]),
                services: nil),
        ]
        let local = Snapshot.LocalCharacteristic(
            uuid: try uuid("2A38"), properties: 0x1A, permissions: 3, value: Data([0, 255]),
            descriptors: [
                Snapshot.LocalDescriptor(uuid: try uuid("2901"), text: "Ä\n", data: nil),
                Snapshot.LocalDescriptor(uuid: try uuid("2904"), text: nil, data: Data(count: 7)),
            ], subscribers: [identifiers[2]])
        snapshot.services = [
            Snapshot.LocalService(uuid: try uuid("180A"), isPrimary: false, includedServices: [], characteristics: []),
            Snapshot.LocalService(
                uuid: try uuid("180D"), isPrimary: true, includedServices: [0], characteristics: [local]),
        ]
        var advertisement = AdvertisementRequest()
        (advertisement.localName, advertisement.services) = ("Kit", [try uuid("180D")])
        advertisement.serviceData = [.init(uuid: try uuid("180F"), data: Data([1]))]
        advertisement.txPowerDBm = -7
        snapshot.advertisement = advertisement
        return snapshot
    }

    @Test("RS-3 RS-4 the file is read back unchanged, and is human-readable")
    func roundTrip() throws {
        let snapshot = try Self.full()
        let content = try snapshot.fileContent()
        #expect(try Snapshot(fileContent: content) == snapshot)
        let text = String(decoding: content, as: UTF8.self)
        #expect(text.contains("\"version\" : 1") && text.contains("\"uuid\" : \"2A37\""))
        #expect(text.split(separator: "\n").count > 20)
    }

    @Test("R-26 an unknown version, invalid JSON, other JSON: an error that says what is wrong, and where")
    func wrongContent() throws {
        func problem(_ text: String) -> Snapshot.FileError? {
            do throws(Snapshot.FileError) { _ = try Snapshot(fileContent: Data(text.utf8)) } catch { return error }
            return nil
        }
        #expect(problem("") == .empty)
        #expect(problem("{\"version\": 2}") == .unknownVersion(2))
        #expect(problem("{\"version\": 0}") == .unknownVersion(0))
        #expect(problem("{\"version\": -9223372036854775808}") == .unknownVersion(.min))
        #expect(problem("{\"version\": 1}")?.description == "\"role\" is missing")
        #expect(
            problem("[]") != nil && problem("\u{0}") != nil && problem(String(repeating: "[", count: 100_000)) != nil)
        let content = String(decoding: try Self.full().fileContent(), as: UTF8.self)
        let wrong = content.replacingOccurrences(of: "\"2A37\"", with: "\"2A3\"")
        let text = try #require(problem(wrong)).description
        #expect(text.contains("peripherals") && text.contains("\"2A3\" is not an attribute UUID"))
        #expect(problem(content.replacingOccurrences(of: "service000a", with: "../etc")) != nil)
        for bytes in [[0xC3, 0x28], [0x1D], Array("\\x".utf8)] as [[UInt8]] {
            let content = Data("{\"version\": 1, \"".utf8) + Data(bytes) + Data("\": 1}".utf8)
            #expect(throws: Snapshot.FileError.self, "no string") { try Snapshot(fileContent: content) }
        }
    }

    @Test("R-26 a UUID with trailing characters is invalid: CBUUID would trap")
    func longUUID() {
        let uuid = "0000180D-0000-1000-8000-00805F9B34FB"
        #expect(AttributeUUID(uuid) != nil)
        for more in ["\u{0}", "\u{0}junk", "0", " ", "é"] { #expect(AttributeUUID(uuid + more) == nil) }
    }

    @Test("a file of an older version goes through each migration from there on")
    func migration() throws {
        let snapshot = try Self.full()
        let content = String(decoding: try snapshot.fileContent(), as: UTF8.self)
        let old = Data(content.replacingOccurrences(of: "\"identifier\" : \"heart", with: "\"name\" : \"heart").utf8)
        let migrations: [Snapshot.Migration] = [
            { $0["identifier"] = $0.removeValue(forKey: "name") },
            { $0["boot"] = "third" },
        ]
        var expected = snapshot
        expected.boot = "third"
        #expect(try Snapshot(fileContent: old, migrations: migrations) == expected)
        // One that was of the second version is spared the first.
        let second = Data(content.replacingOccurrences(of: "\"version\" : 1", with: "\"version\" : 2").utf8)
        #expect(try Snapshot(fileContent: second, migrations: migrations) == expected)
        #expect(throws: Snapshot.FileError.unknownVersion(4)) {
            try Snapshot(
                fileContent: Data(content.replacingOccurrences(of: "\"version\" : 1", with: "\"version\" : 4").utf8),
                migrations: migrations)
        }
    }

    // Slow: 100,000 files are made and read, a tenth of them in a debug build.
    @Test("R-26 mutated files: each is read or refused, and what is read can be written and read again")
    func mutated() throws {
        var generator = SeededGenerator(seed: 20_261_121)
        let original = [UInt8](try Self.full().fileContent())
        let pieces: [[UInt8]] = [
            "null", "{", "}", "[", "]", "\"", ",", "-1", "1e999", "9223372036854775808", "\\u0000", "\\ud800", "true",
            "\"version\" : 2", "\"\"",
        ].map { Array($0.utf8) }
        var accepted = 0
        let count = thorough(100_000)
        for _ in 0..<count {
            var bytes = original
            for _ in 0...Int.random(in: 0..<3, using: &generator) {
                let place = Int.random(in: 0..<max(1, bytes.count), using: &generator)
                guard place < bytes.count else { break }
                switch Int.random(in: 0..<7, using: &generator) {
                case 0: bytes[place] = UInt8.random(in: 0...255, using: &generator)
                case 1: bytes[place] ^= 1 << UInt8.random(in: 0..<8, using: &generator)
                case 2: bytes.removeSubrange(place...)
                case 3:
                    bytes.removeSubrange(place..<min(bytes.count, place + Int.random(in: 1..<40, using: &generator)))
                case 4: bytes.insert(contentsOf: pieces.randomElement(using: &generator) ?? [], at: place)
                case 5: bytes.insert(contentsOf: bytes[..<min(bytes.count, 200)], at: place)
                default:
                    let end = min(bytes.count, place + 4)
                    bytes.replaceSubrange(place..<end, with: pieces.randomElement(using: &generator) ?? [])
                }
            }
            guard let snapshot = try? Snapshot(fileContent: Data(bytes)) else { continue }
            accepted += 1
            guard accepted % 50 == 0 else { continue }
            #expect(try Snapshot(fileContent: snapshot.fileContent()) == snapshot)
        }
        // Not all mutations hurt: names and numbers may be anything.
        #expect(accepted > count / 100 && accepted < count / 2)
    }
}
