import BluezKitRestore
import Foundation
import Testing

@testable import BluezKit

/// Messages between the app's objects and the core, as bytes. With `BLUEZKIT_BORDER=encoded` every other test shows
/// that they suffice.
@Suite struct BorderFormatTests {
    private let identity = DetachedCentral.identity(1)

    private func passed<Message: Codable>(_ message: Message) throws -> Message {
        let (bytes, descriptors) = try BorderFormat.encode(message)
        return try BorderFormat.decode(from: bytes, descriptors)
    }

    private func decode<Message: Codable>(_ type: Message.Type, _ text: String) throws -> Message {
        try BorderFormat.decode(type, from: Data(text.utf8))
    }

    // Written down here, so that a change of the format is seen.
    @Test("a border message is JSON with a version")
    func format() throws {
        let message = CentralMessage(request: .cancel(identity, ConnectionID(request: 7)), generation: 3)
        let (bytes, descriptors) = try BorderFormat.encode(message)
        let expected =
            #"{"message":{"generation":3,"request":{"cancel":{"_0":{"address":\#(identity.address),"#
            + #""isRandom":true},"_1":{"link":0,"request":7}}}},"version":1}"#
        let sorted = try JSONSerialization.data(
            withJSONObject: JSONSerialization.jsonObject(with: bytes), options: .sortedKeys)
        #expect(String(data: sorted, encoding: .utf8) == expected && descriptors.isEmpty)
        guard case .cancel(identity, 7) = try decode(CentralMessage.self, expected).request else {
            Issue.record("became another request")
            return
        }
    }

    @Test("an unknown version, an unknown message and a value out of range are refused")
    func refusals() throws {
        #expect(throws: BorderFormat.Refusal(version: 2)) {
            try decode(CentralMessage.self, #"{"version":2,"message":{"request":{"endScan":{}}}}"#)
        }
        for text in [
            #"{"message":{"request":{"endScan":{}}}}"#, #"{"version":1}"#, "", "{}", "[]", "\u{0}",
            #"{"version":1,"message":{"request":{"fly":{}}}}"#,
            #"{"version":1,"message":{"request":{"endScan":{},"startScan":{}}}}"#,
            #"{"version":1,"message":{"request":{"setPairing":{"_0":300}}}}"#,
            #"{"version":1,"message":{"request":{"openChannel":{"_0":70000,"_1":1,"_2":1}}}}"#,
            #"{"version":1,"message":{"request":{"perform":{"_0":{"discoverServices":{"_0":["x"]}}}}}}"#,
        ] { #expect(throws: (any Error).self, "\(text)") { try decode(CentralMessage.self, text) } }
        #expect(throws: DecodingError.self) {
            try decode(CentralEvent.self, #"{"version":1,"message":{"state":{"_0":9,"generation":1}}}"#)
        }
        #expect(throws: Never.self) {
            try decode(CentralMessage.self, #"{"version":1,"message":{"request":{"endScan":{}}}}"#)
        }
    }

    @Test("an error crosses the border unchanged: code, texts, BlueZ's error and attempts", arguments: [false, true])
    func errors(isATT: Bool) throws {
        let attempts = [BluezConnectAttempt(date: Date(timeIntervalSince1970: 5), name: "a.b", message: "no")]
        let error =
            isATT
            ? coreBluetoothError(
                name: "org.bluez.Error.NotPermitted", message: "Read not permitted", context: .attributeRead,
                isBonded: false)
            : coreBluetoothError(
                name: "org.bluez.Error.Failed", message: "le-connection-timeout", context: .connect, isBonded: false,
                attempts: attempts)
        let copy = try passed(AppError(error)).error
        #expect(isATT ? copy is CBATTError : copy is CBError)
        let (before, after) = (error as NSError, copy as NSError)
        #expect((after.domain, after.code) == (before.domain, before.code))
        #expect(copy.localizedDescription == error.localizedDescription)
        #expect(after.localizedRecoverySuggestion == before.localizedRecoverySuggestion)
        #expect(after.localizedFailureReason == before.localizedFailureReason)
        let underlying = try #require(after.userInfo[NSUnderlyingErrorKey] as? NSError)
        #expect(
            underlying.userInfo[BluezErrorNameKey] as? String
                == (isATT ? "org.bluez.Error.NotPermitted" : "org.bluez.Error.Failed"))
        #expect(after.userInfo[BluezErrorAttemptsKey] as? [BluezConnectAttempt] == (isATT ? nil : attempts))
    }

    @Test("SC-8 an advertisement crosses the border unchanged")
    func advertisement() throws {
        var properties = DeviceProperties()
        (properties.name, properties.rssiDBm, properties.txPowerDBm) = ("Kit", -60, 4)
        properties.services = [CBUUID(string: "180D"), sinkUUID(1)]
        properties.solicitedServices = [CBUUID(string: "1805")]
        properties.manufacturerEntries = [Data([0x4C, 0, 2, 0x15]), Data([1, 0, 9])]
        properties.serviceData = [CBUUID(string: "180F"): Data([100]), sinkUUID(2): Data()]
        guard
            case .discovered(identity, let copy, 7) = try passed(CentralEvent.discovered(identity, properties, scan: 7))
        else {
            Issue.record("became another event")
            return
        }
        var (before, after) = (properties.advertisementData, copy.advertisementData)
        for key in ["kCBAdvDataTimestamp"] { (before[key], after[key]) = (nil, nil) }
        #expect(
            before as NSDictionary == after as NSDictionary && copy.rssiDBm == -60 && copy.kinds == properties.kinds)
    }

    @Test("the socket of a channel goes with its message, and is closed where that is refused")
    func sockets() throws {
        var ends: [Int32] = [-1, -1]
        #expect(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
        let event = CentralEvent.peripheral(
            identity, .channelOpened(1, 0x80, PassedSocket(ChannelSocket(descriptor: ends[0])), 1))
        let (bytes, descriptors) = try BorderFormat.encode(event)
        #expect(descriptors.count == 1 && descriptors[0] != ends[0])
        do {
            let copy = try BorderFormat.decode(CentralEvent.self, from: bytes, descriptors)
            guard case .peripheral(_, .channelOpened(1, 0x80, let passed, _)) = copy else {
                throw BorderFormat.Refusal(version: 0)
            }
            var byte: UInt8 = 7
            #expect(send(ends[1], &byte, 1, 0) == 1)
            var received: UInt8 = 0
            #expect(withUnsafeMutableBytes(of: &received) { passed.socket.read(into: $0) } == .bytes(1))
            #expect(received == 7)
        }
        // Without its socket, with one that was taken already, or with none of that number.
        #expect(throws: DecodingError.self) { try BorderFormat.decode(CentralEvent.self, from: bytes) }
        #expect(throws: DecodingError.self) { try BorderFormat.decode(CentralEvent.self, from: bytes, [-1]) }
        var spare: [Int32] = [-1, -1]
        #expect(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &spare) == 0)
        #expect(throws: (any Error).self) {
            try BorderFormat.decode(CentralEvent.self, from: Data("no".utf8), [spare[0]])
        }
        var nothing: UInt8 = 0
        #expect(recv(spare[1], &nothing, 1, 0) == 0, "its other end is closed")
        close(spare[1])
        close(ends[1])
    }

    @Test("arbitrary bytes decode as a border message or throw")
    func anyBytes() throws {
        let message = CentralEvent.peripheral(
            identity, .lost(1, next: nil, AppError(CBError(.connectionTimeout)), at: 5))
        let bytes = try BorderFormat.encode(message).bytes
        for index in bytes.indices {
            for change: UInt8 in [0, 0x22, 0x7B, 0x7D, 0xFF] {
                var changed = bytes
                changed[index] = change
                _ = try? BorderFormat.decode(CentralEvent.self, from: changed)
                _ = try? BorderFormat.decode(CentralMessage.self, from: changed)
                _ = try? BorderFormat.decode(PublishEvent.self, from: changed)
            }
            _ = try? BorderFormat.decode(CentralEvent.self, from: bytes[..<index])
        }
    }
}
