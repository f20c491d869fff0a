import BluezKitSimulator
import Foundation
import Testing

@Suite struct RecordingTests {
    /// One of everything.
    static var whole: Recording {
        var content = VirtualAdvertisement(
            localName: "Polar H10 A1B2C3D4", serviceUUIDs: ["180D", "bb1e0001-5d3b-4c6f-9a5e-000000000000"],
            serviceData: ["FEAA": [0x10, 0xEE]], manufacturerData: [0x006B: [1, 2], 0x004C: [0x02, 0x15]],
            txPower: -4, appearance: 0x0341, solicitedServiceUUIDs: ["1805"], flags: 4)
        content.isConnectable = false
        return Recording(
            address: "F0:11:22:00:00:01", addressType: "public", name: "Polar", mtu: 247,
            advertisements: [.init(time: 0.25, rssi: -61, content: content)],
            services: [
                .init("1812", [.init("2A4D", [.notify, .read], value: []), .init("2A4D", .notify)]),
                .init(
                    "180A", isPrimary: false,
                    [
                        .init(
                            "2A25", .read, value: Array("SN-1234".utf8),
                            descriptors: [.init("2901", value: Array("It".utf8)), .init("2904", error: 5)]),
                        .init("2A23", .read, value: [1, 0, 0, 0xFF, 0xFE, 0x22, 0x11, 0xF0]),
                        .init("2A39", [.write, .writeWithoutResponse], error: 0x0F),
                    ]),
                .init("180D", includes: ["180A"]),
            ],
            notifications: [
                .init(time: 1, characteristic: "1812/2A4D", value: [1]),
                .init(time: 1.5, characteristic: "1812/2A4D#2", value: [1, 0, 0, 0x22, 0x11, 0xF0, 7]),
            ], writes: [.init(time: 1.25, characteristic: "180A/2A39", value: Array("for SN-1234".utf8))])
    }

    @Test("what is written to a file is read again")
    func file() throws {
        let whole = Self.whole
        #expect(try Recording(fileContent: whole.fileContent()) == whole)
        #expect(try Recording(fileContent: Recording().fileContent()) == Recording())
        let text = String(decoding: try whole.fileContent(), as: UTF8.self)
        #expect(text.contains(#""properties" : ["#) && text.contains(#""characteristic" : "1812/2A4D#2""#))
    }

    /// The schema, as JSON.
    private static func schema() throws -> [String: Any] {
        let root = URL(fileURLWithPath: #filePath).pathComponents.dropLast(5).joined(separator: "/")
        let data = try Data(contentsOf: URL(fileURLWithPath: root + "/Docs/recording.schema.json"))
        return try #require(try JSONSerialization.jsonObject(with: data) as? [String: Any])
    }

    @Test("the schema in Docs has every key of a file, and no other")
    func schema() throws {
        func keys(ofSchema value: Any) -> Set<String> {
            guard let object = value as? [String: Any] else {
                return (value as? [Any] ?? []).reduce(into: []) { $0.formUnion(keys(ofSchema: $1)) }
            }
            return object.reduce(into: Set<String>()) { found, member in
                // A characteristic has a key with this name as well.
                let names = member.key == "properties" ? member.value as? [String: [String: Any]] : nil
                found.formUnion((names ?? [:]).keys)
                found.formUnion(keys(ofSchema: member.value))
            }
        }
        func keys(of value: Any) -> Set<String> {
            guard let object = value as? [String: Any] else {
                return (value as? [Any] ?? []).reduce(into: []) { $0.formUnion(keys(of: $1)) }
            }
            return object.reduce(into: Set(object.keys)) { found, member in
                // Its keys are UUIDs.
                if member.key != "serviceData" { found.formUnion(keys(of: member.value)) }
            }
        }
        let file = try JSONSerialization.jsonObject(with: Self.whole.fileContent())
        #expect(keys(ofSchema: try Self.schema()) == keys(of: file).subtracting(["FEAA"]))
    }

    @Test("files that are wrong are refused, with the place")
    func refusals() {
        func reason(_ text: String) -> String {
            do throws(RecordingError) {
                _ = try Recording(fileContent: Data(text.utf8))
                return ""
            } catch { return error.description }
        }
        #expect(reason("{") == "it is not JSON")
        // Swift 6.0's JSONDecoder ended the process.
        #expect(reason("{\"\u{1}\":1}") == "it is not JSON")
        #expect(reason("{}") == "it has no 'version'")
        #expect(reason(#"{"version":2}"#).contains("reads up to 1: use a later one"))
        #expect(reason(#"{"version":1,"mtu":7}"#) == "mtu: 7 is not between 23 and 517")
        #expect(reason(#"{"version":1,"address":"F0"}"#).hasPrefix("address: 'F0' is not like"))
        #expect(reason(#"{"version":1,"name":"a\u0000"}"#).hasPrefix("name: a name has at most 248 bytes"))
        #expect(
            reason(#"{"version":1,"services":[{"uuid":"18０D","characteristics":[]}]}"#)
                == "services[0]: '18０D' is not a UUID")
        #expect(
            reason(#"{"version":1,"services":[{"uuid":"180D","characteristics":[{"uuid":"2A37"}]}]}"#)
                == "services[0].characteristics[0]: there is no 'properties'")
        #expect(
            reason(#"{"version":1,"notifications":[{"time":1,"characteristic":"180D/2A37","value":"00"}]}"#)
                == "notifications[0]: there is no characteristic '180D/2A37'")
        #expect(reason(#"{"version":1,"notifications":[{"time":1,"characteristic":"a","value":"0"}]}"#).contains("hex"))
        #expect(
            reason(#"{"version":1,"advertisements":[{"time":2},{"time":1}]}"#)
                .hasPrefix("advertisements[1]: a time is neither negative"))
        #expect(reason(#"{"version":1,"advertisements":[{"time":"2"}]}"#).hasPrefix("advertisements[0].time:"))
        let many = String(repeating: #"{"uuid":"180D"},"#, count: 20_000) + #"{"uuid":"180F"}"#
        #expect(reason(#"{"version":1,"services":[\#(many)]}"#) == "services: there are more than 20000 attributes")
        let long = String(repeating: "00", count: 253)
        #expect(reason(#"{"version":1,"advertisements":[{"time":0,"manufacturerData":["4c00\#(long)"]}]}"#) != "")
    }

    @Test("without address and serial number nothing of them is left, also inside of values")
    func anonymous() throws {
        let other = Self.whole.anonymized()
        let text = String(decoding: try other.fileContent(), as: UTF8.self)
        #expect(other.address == "F0:5E:00:00:00:01")
        for secret in ["F0:11:22", "f01122", "000000002211f0", "221100", "A1B2C3D4"] {
            #expect(!text.contains(secret), "\(secret)")
        }
        let hex = Array("SN-1234".utf8).map { String($0, radix: 16) }.joined()
        #expect(!text.contains(hex))
        #expect(other.advertisements[0].content.localName == "Polar H10 00000000")
        #expect(other.services[1].characteristics[0].value == Array("0000000".utf8))
        #expect(other.notifications[1].value == [1, 0, 0, 0, 0x5E, 0xF0, 7])
        #expect(other.writes[0].value == Array("for 0000000".utf8))
    }

    @Test("an address as text in any form, and the name that is written, are replaced as well")
    func anonymousTexts() {
        let forms = ["a1:b2:c3:d4:e5:f6", "A1-B2-C3-D4-E5-F6", "a1b2C3D4e5f6"]
        let recording = Recording(
            address: "A1:B2:C3:D4:E5:F6",
            services: [
                .init("1815", forms.map { .init("2A56", .read, value: Array("at \($0)".utf8)) }),
                .init("180A", [.init("2A25", .read, value: Array("SN-77x9".utf8)), .init("2A23", .notify)]),
            ],
            notifications: [
                .init(time: 1, characteristic: "180A/2A23", value: [1, 2, 3]),
                .init(time: 2, characteristic: "1815/2A56#2", value: Array("sn-77X9".utf8)),
            ], writes: [.init(time: 3, characteristic: "1800/2A00", value: Array("Tag 12345678".utf8))])
        let other = recording.anonymized()
        let texts = other.services[0].characteristics.map { String(decoding: $0.value ?? [], as: UTF8.self) }
        #expect(texts == ["at F0:5E:00:00:00:01", "at F0-5E-00-00-00-01", "at F05E00000001"])
        #expect(other.notifications.map(\.value) == [[0, 0, 0], Array("0000000".utf8)])
        #expect(other.writes.map(\.value) == [Array("Tag 00000000".utf8)])
    }

    @Test("mutated files are refused, or read and written without a change")
    func mutated() throws {
        let good = [UInt8](try Self.whole.fileContent())
        var random = SystemRandomNumberGenerator()
        var readable = 0
        for _ in 0..<Mutation.count {
            guard let read = try? Recording(fileContent: Mutation.mutated(good, using: &random)) else { continue }
            readable += 1
            let again = try Recording(fileContent: read.fileContent())
            // Times are rounded, and service data sorted.
            #expect(
                again.services == read.services && again.notifications.map(\.value) == read.notifications.map(\.value))
            _ = VirtualPeripheral(recording: read)
        }
        #expect(readable > 0)
    }
}
