import BluezKitSimulator
import BluezDBus
import Foundation
import Testing

@Suite("Simulator: GATT values")
struct SimulatorGATTTests {
    static let service = BusClient.sink + "/service0011"
    let notifying = service + "/char001b"
    let short = "dev02/service0011/char001b"

    static func connected(
        _ timing: SimulatorTiming = .fast, version: SimulatorVersion = .v5_66
    ) async throws -> (Simulator, VirtualPeripheral, BusClient) {
        let simulator = try await Simulator(timing: timing, options: SimulatorOptions(version: version))
        let sink = simulator.add(.rigSink(slowRead: .milliseconds(30)))
        simulator.remember(sink)
        let client = try await BusClient(simulator.busAddress)
        client.keeps = simulator
        try await client.device("Connect", BusClient.sink)
        #expect(await client.waits { $0.last?.contains("ServicesResolved=true") == true })
        client.forget()
        return (simulator, sink, client)
    }

    @Test("errors of reads and writes are those of bluetoothd")
    func errors() async throws {
        let (_, _, client) = try await Self.connected()
        func fails(
            _ characteristic: String, _ member: String, _ arguments: [Value] = [], _ error: String,
            _ location: SourceLocation = #_sourceLocation
        ) async {
            let path = Self.service + "/" + characteristic
            switch arguments.count {
            case 0: _ = try? await client.characteristic(path, member)
            case 1: _ = try? await client.characteristic(path, member, arguments[0])
            default: _ = try? await client.characteristic(path, member, arguments[0], arguments[1])
            }
            #expect(client.lines.last == "\(member) fails org.bluez.Error.\(error)", sourceLocation: location)
        }
        let none = Value.noOptions
        await fails("char0030", "ReadValue", [none], "Failed Operation failed with ATT error: 0x80")
        await fails("char0030", "WriteValue", [.bytes([1]), none], "Failed Operation failed with ATT error: 0x80")
        await fails("char0017", "ReadValue", [none], "NotPermitted Read not permitted")
        await fails("char0013", "WriteValue", [.bytes([1]), none], "NotSupported Operation is not supported")
        await fails("char0013", "StartNotify", [], "NotSupported Operation is not supported")
        await fails(
            "char0017", "WriteValue",
            [.bytes([UInt8](repeating: 0, count: 515)), .options(["type": .string("command")])],
            "Failed Failed to initiate write")
        await fails(
            "char0021", "WriteValue", [.bytes([UInt8](repeating: 0, count: 513)), none],
            "InvalidArguments Invalid Length")
        await fails(
            "char0015", "WriteValue", [.bytes([0]), .options(["offset": .uint16(5)])],
            "InvalidArguments Invalid offset")
        await fails("char001b", "StopNotify", [], "Failed No notify session started")
        await fails("char001e", "AcquireNotify", [none], "NotSupported Operation is not supported")
        await fails("char0015", "AcquireWrite", [none], "NotSupported Operation is not supported")
        _ = try? await client.call(
            Self.service + "/char001b/desc001d", "org.bluez.GattDescriptor1", "WriteValue", .bytes([1, 0]), none)
        #expect(client.lines.last == "WriteValue fails org.bluez.Error.NotPermitted Write not permitted")
    }

    @Test("reads join, values are 512 bytes, writes are kept, descriptors are read")
    func values() async throws {
        let (simulator, sink, client) = try await Self.connected()
        let other = try await BusClient(simulator.busAddress)
        async let first = client.read(Self.service + "/char0032")
        async let second = other.read(Self.service + "/char0032")
        #expect(try await first == Array("slow".utf8))
        #expect(try await second == Array("slow".utf8))
        #expect(try await client.read(Self.service + "/char0021")?.count == 512)
        try await client.characteristic(Self.service + "/char0015", "WriteValue", .bytes([9, 8]), .noOptions)
        #expect(sink.value(of: VirtualPeripheral.testUUID(0x11)) == [9, 8])
        for _ in 0..<3 {
            try await client.characteristic(
                Self.service + "/char0017", "WriteValue", .bytes([1, 2, 3]), .options(["type": .string("command")]))
        }
        #expect(try await client.read(Self.service + "/char0019") == [9, 0, 0, 0])
        let objects = try await client.objects()
        let characteristic = objects[Self.service + "/char0027"]?["org.bluez.GattCharacteristic1"]
        #expect(
            characteristic?["Flags"]?.stringsValue == ["read", "write", "extended-properties", "writable-auxiliaries"])
        #expect(characteristic?["MTU"] == .uint16(517))
        #expect(
            objects[Self.service]?["org.bluez.GattService1"]?["Includes"]?.stringsValue
                == [BusClient.sink + "/service000e"])
        #expect(objects[BusClient.sink + "/service000e"]?["org.bluez.GattService1"]?["Primary"] == .bool(false))
    }

    @Test("two subscribers cause two signals for each value; sessions are counted")
    func subscribers() async throws {
        let (simulator, sink, client) = try await Self.connected()
        let other = try await BusClient(simulator.busAddress)
        try await client.characteristic(notifying, "StartNotify")
        try await client.characteristic(notifying, "StartNotify")
        try await other.characteristic(notifying, "StartNotify")
        sink.notify(VirtualPeripheral.testUUID(0x13), [0xAA])
        #expect(await client.hears("\(short): Value=aa", count: 2))
        try await client.characteristic(notifying, "StopNotify")
        _ = try? await client.characteristic(notifying, "AcquireNotify", .noOptions)
        #expect(client.lines.last == "AcquireNotify fails org.bluez.Error.InProgress In Progress")
        #expect(!client.lines.contains("\(short): Notifying=false"))
        try await other.characteristic(notifying, "StopNotify")
        #expect(await client.hears("\(short): Notifying=false"))
        #expect(client.lines.count { $0 == "\(short): Value=aa" } == 2)
    }

    @Test("a subscription survives the link: it is renewed before ServicesResolved")
    func subscriptionSurvives() async throws {
        let (_, sink, client) = try await Self.connected()
        let uuid = VirtualPeripheral.testUUID(0x13)
        try await client.characteristic(notifying, "StartNotify")
        sink.disconnect()
        #expect(await client.hears("dev02: ServicesResolved=false Connected=false"))
        #expect(!sink.isSubscribed(to: uuid))
        client.forget()
        try await client.device("Connect", BusClient.sink)
        #expect(await client.hears("dev02: ServicesResolved=true"))
        #expect(sink.isSubscribed(to: uuid))
        #expect(!client.lines.contains { $0.contains("Notifying") })
        let other = try await BusClient(try #require(sinkAddress(of: client)))
        client.leave()  // killed: the subscription stops, the link stays
        #expect(await other.hears("\(short): Notifying=false"))
        #expect(sink.isConnected)
    }

    private func sinkAddress(of client: BusClient) -> BusAddress? { client.queue.sync { client.connection.address } }

    @Test("AcquireNotify hands out a socket of packets, exclusively; AcquireWrite takes them")
    func sockets() async throws {
        let (simulator, sink, client) = try await Self.connected()
        let other = try await BusClient(simulator.busAddress)
        let reply = try await client.characteristic(notifying, "AcquireNotify", .noOptions)
        guard case .fileDescriptor(let descriptor) = reply[0] else { throw BusError.malformed("no descriptor") }
        #expect(reply[1] == .uint16(517))
        #expect(client.lines == ["\(short): NotifyAcquired=true", "AcquireNotify returns"])
        _ = try? await other.characteristic(notifying, "StartNotify")
        #expect(other.lines.last == "StartNotify fails org.bluez.Error.NotPermitted Notify acquired")
        sink.notify(VirtualPeripheral.testUUID(0x13), [1])
        sink.notify(VirtualPeripheral.testUUID(0x13), [2, 3])
        var buffer = [UInt8](repeating: 0, count: 600)
        #expect(recv(descriptor, &buffer, buffer.count, 0) == 1)
        #expect(recv(descriptor, &buffer, buffer.count, 0) == 2)
        #expect(!other.lines.contains { $0.contains("Value") })
        close(descriptor)
        #expect(await other.hears("\(short): NotifyAcquired=false"))

        let writable = Self.service + "/char0017"
        let answer = try await client.characteristic(writable, "AcquireWrite", .noOptions)
        guard case .fileDescriptor(let writer) = answer[0] else { throw BusError.malformed("no descriptor") }
        _ = try? await other.characteristic(writable, "WriteValue", .bytes([1]), .noOptions)
        #expect(other.lines.last == "WriteValue fails org.bluez.Error.NotPermitted Write acquired")
        #expect(send(writer, buffer, 100, Int32(MSG_NOSIGNAL)) == 100)
        close(writer)
        #expect(await other.hears("dev02/service0011/char0017: WriteAcquired=false"))
        #expect(try await client.read(Self.service + "/char0019") == [100, 0, 0, 0])
    }

    @Test("values that do not fit into a socket of AcquireNotify are dropped without a sign")
    func fullSocket() async throws {
        let (_, sink, client) = try await Self.connected()
        let reply = try await client.characteristic(notifying, "AcquireNotify", .noOptions)
        guard case .fileDescriptor(let descriptor) = reply[0] else { throw BusError.malformed("no descriptor") }
        for number in 0..<1000 {
            sink.notify(VirtualPeripheral.testUUID(0x13), [UInt8(number & 255), UInt8(number >> 8)])
        }
        var buffer = [UInt8](repeating: 0, count: 600)
        var count = 0
        while recv(descriptor, &buffer, buffer.count, Int32(MSG_DONTWAIT)) == 2 {
            #expect(Int(buffer[0]) | Int(buffer[1]) << 8 == count)
            count += 1
        }
        #expect(count > 100 && count < 1000)
        close(descriptor)
    }

    @Test(
        "a program that leaves the bus with the socket of AcquireNotify makes bluetoothd crash before 5.86",
        arguments: [(SimulatorVersion.v5_66, true), (.v5_83, true), (.v5_86, false), (.v5_87, false)])
    func leaving(version: SimulatorVersion, crashes: Bool) async throws {
        let (simulator, _, client) = try await Self.connected(version: version)
        let other = try await BusClient(simulator.busAddress)
        _ = try await client.characteristic(notifying, "AcquireNotify", .noOptions)
        client.leave()
        let deadline = ContinuousClock.now + .seconds(world_deadline)
        var isAlive = true
        // The other versions notice the same moment, and continue.
        for _ in 0..<(crashes ? 1_000_000 : 100) where isAlive {
            try #require(ContinuousClock.now < deadline)
            isAlive = (try? await other.property("/org/bluez/hci0", "org.bluez.Adapter1", "Powered")) != nil
        }
        #expect(isAlive != crashes)
    }

    @Test("Service Changed: UUIDs, then the new objects; removed objects, then UUIDs")
    func serviceChanged() async throws {
        let (simulator, _, client) = try await Self.connected()
        try await simulator.control("sink services add")
        #expect(await client.hears("+ dev02/service0034/char0038 GattCharacteristic1"))
        #expect(
            client.lines == [
                "dev02: UUIDs=[5]", "+ dev02/service0034 GattService1",
                "+ dev02/service0034/char0035 GattCharacteristic1",
                "+ dev02/service0034/char0035/desc0037 GattDescriptor1",
                "+ dev02/service0034/char0038 GattCharacteristic1",
            ])
        client.forget()
        try await simulator.control("sink services remove")
        #expect(await client.hears("dev02: UUIDs=[4]"))
        #expect(
            client.lines == [
                "- dev02/service0034/char0035/desc0037 GattDescriptor1",
                "- dev02/service0034/char0035 GattCharacteristic1",
                "- dev02/service0034/char0038 GattCharacteristic1", "- dev02/service0034 GattService1",
                "dev02: UUIDs=[4]",
            ])
    }

    @Test("a value that needs encryption: with an agent pairing, without one silence and the device's removal")
    func encryption() async throws {
        let path = Self.service + "/char0023"
        var timing = SimulatorTiming.fast
        timing.failedPairingRemoval = .milliseconds(50)
        let (_, _, client) = try await Self.connected(timing)
        await #expect(throws: (any Error).self) {
            try await client.call(
                path, "org.bluez.GattCharacteristic1", "ReadValue", .noOptions, deadline: .milliseconds(500))
        }
        #expect(await client.hears("- dev02 Device1"))
        #expect(await client.hears("ReadValue fails org.freedesktop.DBus.Error.NoReply no reply within the deadline"))

        let (_, _, agent) = try await Self.connected()
        try await agent.beAgent(passkey: 123_456)
        #expect(await agent.hears("hci0: Pairable=true"))
        agent.forget()
        #expect(try await agent.read(path) == Array("encrypted".utf8))
        #expect(
            agent.lines.suffix(4) == [
                "agent: RequestAuthorization", "dev02/service0011/char0023: Value=656e63727970746564",
                "dev02: Bonded=true Paired=true", "ReadValue returns",
            ])
    }

    @Test("a device whose pairing has failed is not removed for that after its next link, also when that has ended")
    func failedPairingOfAnEarlierLink() async throws {
        let clock = SimulatorClock()
        let simulator = try await Simulator(options: SimulatorOptions(version: .v5_66), clock: clock)
        let sink = simulator.add(.rigSink(slowRead: .milliseconds(30)))
        simulator.remember(sink)
        let client = try await BusClient(simulator.busAddress, clock: clock)
        client.keeps = simulator
        try await client.device("Connect", BusClient.sink)
        #expect(await client.waits { $0.last?.contains("ServicesResolved=true") == true })
        await #expect(throws: (any Error).self) {
            try await client.call(
                Self.service + "/char0023", "org.bluez.GattCharacteristic1", "ReadValue", .noOptions,
                deadline: .milliseconds(500))
        }
        sink.disconnect()
        try await client.device("Connect", BusClient.sink)
        await clock.advance(by: .seconds(5))
        sink.disconnect()
        // More than 30 s after the failure, less than that after the end of the second link.
        await clock.advance(by: .seconds(27))
        #expect(!client.lines.contains("- dev02 Device1"))
        #expect(client.lines.filter { $0.contains("Connected=false") }.count == 2)
    }
}
