import BluezKitSimulator
import BluezDBus
import Foundation
import Testing

@Suite("BluezDBus: reading")
struct MessageReaderTests {
    typealias Read = @Sendable (inout MessageReader) throws(BusError) -> Void
    /// Every way to read, and the signature that it takes.
    static let reads: [(String, Read)] = [
        ("y", { (r) throws(BusError) in _ = try r.readByte() }),
        ("b", { (r) throws(BusError) in _ = try r.readBool() }),
        ("n", { (r) throws(BusError) in _ = try r.readInt16() }),
        ("q", { (r) throws(BusError) in _ = try r.readUInt16() }),
        ("i", { (r) throws(BusError) in _ = try r.readInt32() }),
        ("u", { (r) throws(BusError) in _ = try r.readUInt32() }),
        ("x", { (r) throws(BusError) in _ = try r.readInt64() }),
        ("t", { (r) throws(BusError) in _ = try r.readUInt64() }),
        ("d", { (r) throws(BusError) in _ = try r.readDouble() }),
        ("s", { (r) throws(BusError) in _ = try r.readString() }),
        ("s", { (r) throws(BusError) in _ = try r.readCString() }),
        ("o", { (r) throws(BusError) in _ = try r.readPath() }),
        ("ay", { (r) throws(BusError) in _ = try r.readBytes() }),
        ("v", { (r) throws(BusError) in try r.readVariant { (_) throws(BusError) in } }),
        ("(ys)", { (r) throws(BusError) in try r.readStruct { (_) throws(BusError) in } }),
        ("as", { (r) throws(BusError) in _ = try r.readStrings() }),
        ("a{sv}", { (r) throws(BusError) in try r.readProperties { (_, _) throws(BusError) in } }),
        (
            "a{qv}",
            {
                (r) throws(BusError) in
                try r.readDictionary { (entry) throws(BusError) in _ = try entry.readUInt16() }
            }
        ),
    ]

    static let values: [Value] = [
        .byte(1), .bool(true), .int16(1), .uint16(1), .int32(1), .uint32(1), .int64(1), .uint64(1), .double(1),
        .string("s"), .path("/o"), .signature("g"), .bytes([1]), .variant(.byte(1)),
        .structure([.byte(1), .string("s")]), .strings(["s"]), .properties([("k", .byte(1))]),
        .dictionary(key: "q", value: "v", [.init(.uint16(1), .variant(.bytes([])))]),
        .array(element: "i", [.int32(1)]), .array(element: "as", [.strings(["x"])]),
        .array(element: "a{sv}", [.properties([("k", .byte(1))])]),
    ]

    @Test("reading any wrong type is malformed, and reading continues from the same position, also at the end")
    func wrongTypes() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        let done = EventLog<String>()
        server.serve { connection, call in
            let found = call.signature
            for (expected, read) in Self.reads {
                var reader = call.reader
                do throws(BusError) {
                    try read(&reader)
                    #expect(expected == found, "read \(found) as \(expected)")
                } catch {
                    guard case .malformed = error else {
                        Issue.record("\(error)")
                        continue
                    }
                    #expect(expected != found, "\(expected): \(error)")
                    // Nothing was passed over.
                    #expect((try? reader.readValue())?.signature == found)
                }
                var end = call.reader
                end.skip()
                #expect(isAtEnd(end))
                #expect(failure(of: read, &end) != nil)
                end.skip()
                #expect(failure(of: { (r) throws(BusError) in _ = try r.readValue() }, &end) != nil)
            }
            done.append(found)
            connection.reply(to: call)
        }
        for value in Self.values { try await client.echo(server, value) }
        #expect(done.all == Self.values.map(\.signature))
    }

    @Test("an empty message reads as nothing, and an empty array as no element")
    func empty() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        let done = EventLog<Bool>()
        server.serve { connection, call in
            var reader = call.reader
            if call.signature.isEmpty {
                #expect(isAtEnd(reader))
                for (_, read) in Self.reads { #expect(failure(of: read, &reader) != nil) }
            } else {
                #expect((try? reader.readBytes())?.count == 0)
                let noEntries: Read = { (r) throws(BusError) in
                    try r.readProperties { (_, _) throws(BusError) in Issue.record("an entry") }
                }
                #expect(failure(of: noEntries, &reader) == nil)
                #expect(isAtEnd(reader))
            }
            done.append(true)
            connection.reply(to: call)
        }
        try await client.echo(server)
        try await client.echo(server, .bytes([]), .noOptions)
        #expect(done.all.count == 2)
    }

    @Test("unread parts of an element or a variant are skipped; an error inside is rethrown")
    func passesOver() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        let properties = Value.properties([
            ("A", .strings(["x", "y"])), ("B", .byte(2)), ("C", .dictionary(key: "q", value: "v", [])), ("D", .byte(4)),
        ])
        server.serve { connection, call in
            var reader = call.reader
            var found: [String] = []
            try? reader.readProperties { (key, value) throws(BusError) in
                if key.matches("B") || key.matches("D") { found.append("\(try value.readByte())") }
            }
            #expect(found == ["2", "4"] && (try? reader.readString()) == "after")
            var again = call.reader
            let throwing: Read = { (r) throws(BusError) in
                try r.readProperties { (_, _) throws(BusError) in throw .malformed("mine") }
            }
            #expect(failure(of: throwing, &again) == .malformed("mine"))
            var copy = call.reader
            _ = try? copy.readValue()
            let rest = copy
            #expect((try? copy.readString()) == "after")
            var second = rest
            #expect((try? second.readString()) == "after")  // a copy continues independently
            connection.reply(to: call)
        }
        try await client.echo(server, properties, .string("after"))
    }

    private func failure(of read: Read, _ reader: inout MessageReader) -> BusError? {
        do throws(BusError) { try read(&reader) } catch { return error }
        return nil
    }

    private func isAtEnd(_ reader: MessageReader) -> Bool {
        var reader = reader
        return reader.atEnd
    }
}
