import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit
@testable import BluezKitRestore

// Docs/LIMITS.md lists every limit and its effect. These are the ones that no other suite shows.
@Suite("Limits") struct LimitsTests {
    @Test("300 managers in one process: all become powered on, with one connection to the bus")
    func managers() async throws {
        let world = try await SimulatedWorld()
        let centrals = (0..<300).map { _ in Central(world) }
        for central in centrals { try await central.powerOn() }
        #expect(Set(centrals.map { ObjectIdentifier($0.manager.session) }).count == 1)
    }

    @Test("4,096 UUIDs from devices are cached; further ones are still parsed")
    func inventedUUIDs() {
        let pool = UUIDPool()
        for number in 0..<10_000 {
            let text = "\(String(0x1000_0000 + number, radix: 16))-dead-beef-dead-beefdeadbeef"
            #expect(text.withCString { pool[$0] } == CBUUID(string: text))
        }
        #expect(pool.count == UUIDPool.limit)
    }

    // Slow: 5,000 calls pass a bus one after the other.
    @Test("RW-1 RW-4 thousands of writes with response that wait behind a slow read are all answered, in order")
    func writes() async throws {
        let count = 5000
        let written = ProtectedBox<[UInt16]>([])
        // Calm: each write would wait for what others do, and they are made one after the other.
        let (world, central, peripheral) = try await connected(
            [
                VirtualService(
                    "1815",
                    [
                        VirtualCharacteristic("2A56", .read, value: [1]),
                        VirtualCharacteristic(
                            "2A57", .write,
                            write: { value in
                                written.withLock { $0.append(UInt16(value[0]) << 8 | UInt16(value[1])) }
                            }),
                    ])
            ], in: .calm)
        let service = CBUUID(string: "1815")
        let slow = try await central.characteristic(CBUUID(string: "2A56"), of: service, on: peripheral)
        let target = try await central.characteristic(CBUUID(string: "2A57"), of: service, on: peripheral)
        // The daemon is stopped, and so is the read: everything else queues up behind it.
        world.simulator.hangDaemon()
        await central.perform {
            peripheral.readValue(for: slow)
            for number in 0..<count {
                peripheral.writeValue(
                    Data([UInt8(number >> 8), UInt8(number & 255)]), for: target, type: .withResponse)
            }
        }
        await central.passBusQueue()
        world.simulator.continueDaemon()
        try await central.next("value") { if case .value(slow, _, nil) = $0 { true } else { nil } }
        for _ in 0..<count {
            try await central.next("answer") { if case .written(target, nil) = $0 { true } else { nil } }
        }
        #expect(written.withLock { $0 } == (0..<UInt16(count)).map { $0 })
    }

    @Test("RW-10 at most 1 MiB of writes without response waits; further ones are dropped, counted, and logged once")
    func commands() async throws {
        let (world, central, peripheral) = try await connected([
            VirtualService("1815", [VirtualCharacteristic("2A57", [.read, .writeWithoutResponse], value: [0])])
        ])
        let target = try await central.characteristic(
            CBUUID(string: "2A57"), of: CBUUID(string: "1815"), on: peripheral)
        let limit = CommandFlow.limitBytes / (CommandFlow.overheadBytes + 1)
        let events = EventLog<String>()
        world.simulator.onEvent { if $0.contains(" written ") { events.append($0) } }
        world.simulator.hangDaemon()
        await central.perform {
            peripheral.readValue(for: target)
            for _ in 0..<(limit + 37) { peripheral.writeValue(Data([7]), for: target, type: .withoutResponse) }
        }
        #expect(!peripheral.canSendWriteWithoutResponse)
        #expect(peripheral.droppedWritesWithoutResponse == 37)
        world.simulator.continueDaemon()
        try await central.next("room", within: 3 * world_deadline) { if case .ready = $0 { true } else { nil } }
        try await LogCapture.shared.expect("dropped 37 writes without response")
        // Sockets are drained before a read.
        #expect(try await central.read(target).get() == Data([7]))
        #expect(events.all.count == limit)
        #expect(peripheral.droppedWritesWithoutResponse == 37)
    }

    @Test("GD-1 a peripheral with more than 20,000 attributes: discovery fails with the reason; others are read")
    func attributes() async throws {
        // 7 services with 955 characteristics, each with 2 descriptors, one of which is added automatically.
        let services = (0..<7).map { service in
            VirtualService(
                "F0\(service)0",
                (0..<955).map { _ in
                    VirtualCharacteristic(
                        "2A56", [.read, .notify], descriptors: [VirtualDescriptor("2901", value: [65])])
                })
        }
        // Calm: others would hear of each attribute as well, and ask for all of them.
        let (world, central, peripheral) = try await connected(services, in: .calm)
        peripheral.discoverServices(nil)
        let error = try await central.next("services", within: 30 * world_deadline) {
            if case .services(peripheral, let error) = $0 { [error] } else { nil }
        }[0]
        let reason = (error as NSError?)?.localizedFailureReason
        #expect(reason?.contains("\(AttributeTable.limit)") == true, "\(String(describing: error))")
        #expect(peripheral.services == nil)
        try await central.disconnect(peripheral)
        let heart = try await central.find("Rig Heart")
        try await central.connect(heart)
        #expect(try await central.discoverServices(heart).count == 3)
        withExtendedLifetime(world) {}
    }

    @Test("PB-3 RQ-11 a fixed value of 512 bytes is published and read; one of 513 is refused with the reason")
    func publishedValues() async throws {
        let value = Data((0..<512).map { UInt8(truncatingIfNeeded: $0) })
        let (world, publisher) = try await Publisher.connected([local(0x110, .read, value: value)])
        #expect(try await world.control("central read \(sinkUUID(0x110).line)") == value.hex)
        let large = local(0x111, .read, value: value + [0])
        let withDescriptor = local(0x112, .read)
        withDescriptor.descriptors = [CBMutableDescriptor(type: sinkUUID(0x120), value: value + [0])]
        for characteristic in [large, withDescriptor] {
            let error = try await publisher.add(localService(0x101, [characteristic])) as? CBError
            #expect(error?.code == .invalidParameters)
            let text = error?.localizedDescription ?? ""
            #expect(text.contains("\(characteristic.uuid)") && text.contains("512"), "\(text)")
        }
        withDescriptor.descriptors = [CBMutableDescriptor(type: sinkUUID(0x120), value: value)]
        #expect(try await publisher.add(localService(0x101, [withDescriptor])) == nil)
    }

    /// To a peripheral with these.
    private func connected(
        _ services: [VirtualService], in options: SimulatorOptions = .busy
    ) async throws -> (world: SimulatedWorld, central: Central, peripheral: CBPeripheral) {
        let world = try await SimulatedWorld(options)
        world.simulator.add(
            VirtualPeripheral("C0:00:00:09:00:10", VirtualAdvertisement(localName: "Large"), services: services))
        let central = Central(world)
        try await central.powerOn()
        // What has so much to do has its time: here bluetoothd shares the processors of a busy machine.
        noticeHangs(in: world, after: .seconds(600))
        let peripheral = try await central.find("Large")
        try await central.connect(peripheral)
        return (world, central, peripheral)
    }

    @Test("a state file of more than 16 MiB is refused, and so is a path element of 65 characters")
    func stateFiles() throws {
        let bytes = Snapshot.maximumBytes + 1
        #expect(throws: Snapshot.FileError.tooLarge(bytes: bytes)) {
            try Snapshot(fileContent: Data(repeating: UInt8(ascii: " "), count: bytes))
        }
        #expect(PathElement(String(repeating: "a", count: 64)) != nil)
        #expect(PathElement(String(repeating: "a", count: 65)) == nil)
    }
}
