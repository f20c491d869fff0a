import BluezKitSimulator
import BluezDBus
import Testing

@testable import BluezKit

@Suite struct RequestOptionsTests {
    /// What they are, each in the words of an own call; nil: an error.
    private func read(_ arguments: [Value]) async throws -> [RequestOptions?] {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        let found = EventLog<RequestOptions?>()
        server.serve { connection, call in
            var reader = call.reader
            found.append(try? RequestOptions(&reader))
            connection.reply(to: call)
        }
        for value in arguments { try await client.echo(server, value) }
        return found.all
    }

    @Test("the options of BlueZ's request are read, and missing ones have defaults")
    func right() async throws {
        let device: ObjectPath = "/org/bluez/hci0/dev_F0_00_00_00_00_01"
        let options = try await read([
            .properties([
                ("device", .path(device)), ("offset", .uint16(7)), ("mtu", .uint16(517)),
                ("prepare-authorize", .bool(true)), ("link", .string("LE")), ("unknown", .strings(["x"])),
            ]),
            .properties([]),
        ])
        #expect(options.count == 2)
        let (all, none) = (try #require(options[0]), try #require(options[1]))
        #expect(all.device == device && all.offset == 7 && all.mtuBytes == 517 && all.isProbe)
        #expect(none.device == nil && none.offset == 0 && none.mtuBytes == nil && !none.isProbe)
    }

    @Test("UP-10 an MTU that no link can have is taken for the least")
    func leastMTU() async throws {
        let options = try await read([0, 22, 23, 65_535].map { .properties([("mtu", .uint16($0))]) })
        #expect(options.map { $0?.mtuBytes } == [23, 23, 23, 65_535])
    }

    @Test("an option of a wrong type is an error, as is a value that is not a dictionary")
    func wrong() async throws {
        let wrong: [Value] = [
            .properties([("offset", .uint32(1))]), .properties([("offset", .string("1"))]),
            .properties([("mtu", .int16(23))]), .properties([("device", .string("/org/bluez"))]),
            .properties([("device", .variant(.path("/")))]), .properties([("prepare-authorize", .byte(1))]),
            .string("offset"), .bytes([1]),
        ]
        let options = try await read(wrong)
        #expect(options.count == wrong.count && options.allSatisfy { $0 == nil })
    }
}
