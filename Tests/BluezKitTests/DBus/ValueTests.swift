import BluezKitSimulator
import BluezDBus
import Foundation
import Testing

@Suite("BluezDBus: values")
struct ValueTests {
    /// One of each type, at its limits, and nested.
    static let all: [Value] = [
        .byte(0), .byte(255), .bool(true), .bool(false), .int16(.min), .uint16(.max), .int32(.min), .uint32(.max),
        .int64(.min), .uint64(.max), .double(-1.5), .double(.infinity), .string(""), .string("ä € 𝄞 \u{10FFFF}"),
        .path("/"), .path("/a/b_1"), .signature(""), .signature("a{sv}(ii)"), .bytes([]), .bytes([0, 255]),
        .array(element: "s", []), .strings(["a", ""]), .array(element: "ay", [.bytes([1]), .bytes([])]),
        .array(element: "(sa{yv})", [.structure([.string("x"), .dictionary(key: "y", value: "v", [])])]),
        .dictionary(key: "s", value: "v", [.init(.string("k"), .variant(.variant(.int32(-1))))]),
        .dictionary(key: "q", value: "ay", [.init(.uint16(2), .bytes([7]))]),
        .dictionary(key: "o", value: "a{sa{sv}}", []),
        .structure([.byte(1), .structure([.string("in"), .double(0)])]),
        .variant(.structure([.bytes([1, 2]), .variant(.strings(["x"]))])),
    ]

    @Test("a value of every type is received as it was sent, alone and all in one message")
    func roundTrip() async throws {
        let bus = try PrivateBus(policy: .open)
        let (echo, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        echo.serveEcho()
        for value in Self.all { #expect(try await client.echo(echo, value) == [value]) }
        let everything = try await client.call(echo.name, "/echo", "test.Echo", "Echo", Self.all)
        #expect(everything == Self.all)
        #expect(everything.map(\.signature) == Self.all.map(\.signature))
    }

    @Test("NaN is transferred as NaN, without a trap")
    func notANumber() async throws {
        let bus = try PrivateBus(policy: .open)
        let (echo, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        echo.serveEcho()
        guard case .double(let back)? = try await client.echo(echo, .double(.nan)).first else {
            Issue.record("no double")
            return
        }
        #expect(back.isNaN)
    }

    static let unsendable: [Value] = [
        .string("a\0b"), .signature("a"), .signature("{sv}"), .signature("a\0"), .signature("(("),
        .signature(String(repeating: "a", count: 40) + "y"), .fileDescriptor(-1), .fileDescriptor(1 << 20),
        .array(element: "s", [.byte(1)]), .array(element: "", []), .array(element: "ii", []),
        .array(element: "z", []), .array(element: "a", []), .array(element: "s\0", []),
        .array(element: "{sv}", [.string("no entry")]), .array(element: "{", []),
        .dictionary(key: "s", value: "v", [.init(.byte(1), .variant(.byte(1)))]),
        .dictionary(key: "s", value: "v", [.init(.string("k"), .byte(1))]),
        .dictionary(key: "v", value: "s", []), .dictionary(key: "(i)", value: "s", []),
        .dictionary(key: "", value: "", []), .dictionary(key: "s", value: "vv", []),
        .dictionary(key: "s", value: "}", []), .structure([]), .variant(.structure([])),
        .variant(.array(element: "", [])), .structure([.string("a"), .structure([])]),
    ]

    @Test(
        "a value that D-Bus forbids is a thrown error, never an abort, and the connection continues to work",
        arguments: unsendable)
    func forbidden(_ value: Value) async throws {
        let bus = try PrivateBus(policy: .open)
        let (echo, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        echo.serveEcho()
        for argument in [value, .structure([.byte(0), value])] {
            do {
                let back = try await client.echo(echo, argument)
                Issue.record("\(value) was sent, and came back as \(back)")
            } catch let error as BusError {
                #expect(error.name == "org.freedesktop.DBus.Error.InvalidArgs", "\(error)")
            }
        }
        #expect(try await client.echo(echo, .string("still here")) == [.string("still here")])
    }

    @Test("a message of 31 MiB is sent; one for which a system bus would close the connection is a thrown limit")
    func oversized() async throws {
        let bus = try PrivateBus(policy: .open)
        let client = try await Peer.named(bus.busAddress)
        let limit = 31 << 20
        let error = BusError.limit("a message exceeds the 32 MiB that a system bus accepts")
        await #expect(throws: error) {
            try await client.bus("GetNameOwner", .bytes([UInt8](repeating: 1, count: limit + 1)))
        }
        await #expect(throws: error) {
            let text = String(repeating: "x", count: 1 << 20)
            try await client.bus("GetNameOwner", .strings(Array(repeating: text, count: 32)))
        }
        await #expect(throws: error) {
            let part = Value.bytes([UInt8](repeating: 1, count: limit / 3 + 1))
            try await client.bus("GetNameOwner", part, part, part)
        }
        // The bus refuses the type, not the size.
        await #expect(throws: BusError.self) {
            try await client.bus("GetNameOwner", .bytes([UInt8](repeating: 1, count: limit)))
        }
        #expect(try await client.bus("GetId").count == 1)
    }

    @Test("values nested deeper than D-Bus allows are refused, and the connection continues to work")
    func nestedTooDeeply() async throws {
        let bus = try PrivateBus(policy: .open)
        let (echo, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        echo.serveEcho()
        func nested(_ depth: Int) -> Value { (0..<depth).reduce(.byte(1)) { inner, _ in .variant(inner) } }
        #expect(try await client.echo(echo, nested(60)) == [nested(60)])
        await #expect(throws: BusError.self) { try await client.echo(echo, nested(70)) }
        #expect(try await client.echo(echo, .byte(3)) == [.byte(3)])
    }

    @Test("accessors open variants and refuse what does not fit")
    func accessors() {
        #expect(Value.variant(.variant(.string("a"))).stringValue == "a" && Value.path("/a").stringValue == "/a")
        #expect(Value.byte(1).stringValue == nil && Value.bool(true).boolValue == true)
        #expect(Value.uint64(.max).intValue == nil && Value.int16(-3).intValue == -3)
        #expect(Value.strings(["a", "b"]).stringsValue == ["a", "b"] && Value.byte(1).stringsValue == nil)
        #expect(Value.properties(["b": .byte(1), "a": .byte(2)]).dictionaryValue == ["a": .byte(2), "b": .byte(1)])
        #expect(Value.dictionary(key: "q", value: "v", [.init(.uint16(1), .variant(.byte(1)))]).dictionaryValue == nil)
    }
}
