import BluezKitSimulator
import CoreBluetooth
import BluezDBus
import Foundation
import Testing

/// GATT rules that need a simulator to be seen.
@Suite struct GATTTests {
    private func connected(_ services: [VirtualService]) async throws -> (
        SimulatedWorld, VirtualPeripheral, Central, CBPeripheral
    ) {
        let world = try await SimulatedWorld()
        let device = VirtualPeripheral(
            "F0:00:00:00:00:01", VirtualAdvertisement(localName: "Device"), services: services)
        world.simulator.add(device)
        let central = Central(world)
        try await central.powerOn()
        let peripheral = try await central.find("Device")
        try await central.connect(peripheral)
        return (world, device, central, peripheral)
    }

    private func connectedSink() async throws -> (SimulatedWorld, Central, CBPeripheral) {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        let sink = try await central.find("Rig Sink")
        try await central.connect(sink)
        return (world, central, sink)
    }

    @Test("GD-6 several services and characteristics with one UUID are different objects, all returned, in table order")
    func sameUUIDs() async throws {
        let twin = VirtualService(
            "1815",
            [VirtualCharacteristic("2A56", .read, value: [1]), VirtualCharacteristic("2A56", .read, value: [2])])
        let (_, _, central, peripheral) = try await connected([twin, twin])
        let services = try await central.discoverServices(peripheral, [CBUUID(string: "1815")])
        #expect(services.count == 2 && services[0] !== services[1])
        var values: [Data] = []
        for service in services {
            let characteristics = try await central.discoverCharacteristics(service)
            #expect(characteristics.count == 2 && characteristics[0] !== characteristics[1])
            for characteristic in characteristics { values.append(try await central.read(characteristic).get()) }
        }
        #expect(values == [Data([1]), Data([2]), Data([1]), Data([2])])
    }

    @Test("GD-13 CN-6 discovery before BlueZ has resolved the table waits for it, and ends with the link")
    func waitsForResolution() async throws {
        let world = try await SimulatedWorld()
        world.simulator.timing.serviceDiscovery = .seconds(3600)
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        try await central.connect(heart)
        heart.discoverServices(nil)
        world.heart.disconnect()
        try await central.next("end") { if case .disconnected = $0 { true } else { nil } }
        world.simulator.timing.serviceDiscovery = .milliseconds(50)
        world.simulator.timing.serviceRediscovery = .milliseconds(50)
        try await central.connect(heart)
        #expect(try await central.discoverServices(heart).count == 3)
        #expect(central.count { if case .services = $0 { true } else { false } } == 1)
    }

    @Test(
        "GD-9 GD-10 not bonded: a value from an earlier link is present only if the table cannot have changed",
        arguments: [true, false])
    func earlierValues(hasServiceChanged: Bool) async throws {
        let sensor = VirtualService(
            "1815",
            [
                VirtualCharacteristic("2A56", .read, value: [1]),
                VirtualCharacteristic("2A57", .read, value: [2]),
                VirtualCharacteristic("2A58", [.read, .notify], value: [3]),
            ])
        let generic = VirtualService(
            "1801", hasServiceChanged ? [VirtualCharacteristic("2A05", .indicate)] : [])
        let (_, _, central, peripheral) = try await connected([generic, sensor])
        func discover() async throws -> [CBCharacteristic] {
            let service = try #require(try await central.discoverServices(peripheral).first)
            return try await central.discoverCharacteristics(service)
        }
        let first = try await discover()
        #expect(first.allSatisfy { $0.value == nil })
        for characteristic in [first[0], first[2]] { _ = try await central.read(characteristic).get() }
        try await central.disconnect(peripheral)
        try await central.connect(peripheral)
        central.forgetRecords()
        // What was read, but not what notifies.
        #expect(try await discover().map(\.value) == [hasServiceChanged ? nil : Data([1]), nil, nil])
        #expect(central.count { if case .value = $0 { true } else { false } } == 0)
    }

    @Test("GD-9 a second link shows the same table, as new objects")
    func secondLink() async throws {
        let (world, central, sink) = try await connectedSink()
        let old = try await central.characteristic(sinkUUID(0x10), of: sinkUUID(1), on: sink)
        world.sink.disconnect()
        try await central.next("end") { if case .disconnected = $0 { true } else { nil } }
        try await central.connect(sink)
        let new = try await central.characteristic(sinkUUID(0x10), of: sinkUUID(1), on: sink)
        #expect(new !== old && new.properties == old.properties)
        #expect(sink.maximumWriteValueLength(for: .withoutResponse) == 512)
    }

    @Test(
        "O-26 RW-9 RW-10 RW-11 flow control: full after some writes, ready once when there is room, true inside it; all arrive in order"
    )
    func flowControl() async throws {
        let received = ProtectedBox<[[UInt8]]>([])
        let service = VirtualService(
            "1815",
            [
                VirtualCharacteristic(
                    "2A56", .writeWithoutResponse, write: { value in received.withLock { $0.append(value) } })
            ])
        let (world, _, central, peripheral) = try await connected([service])
        let characteristic = try await central.characteristic(
            CBUUID(string: "2A56"), of: CBUUID(string: "1815"), on: peripheral)
        #expect(peripheral.canSendWriteWithoutResponse)
        // BlueZ takes its time to give the socket: writes gather.
        world.simulator.inject(SimulatorFault("AcquireWrite", .delay(.milliseconds(200))))
        let (sent, isFull) = await central.perform { () -> (Int, Bool) in
            var sent = 0
            while peripheral.canSendWriteWithoutResponse {
                peripheral.writeValue(Data([UInt8(sent & 255)]), for: characteristic, type: .withoutResponse)
                sent += 1
            }
            return (sent, !peripheral.canSendWriteWithoutResponse)
        }
        #expect(sent > 1 && isFull)
        try await central.next("ready") {
            if case .ready(peripheral) = $0 { peripheral.canSendWriteWithoutResponse ? true : nil } else { nil }
        }
        peripheral.writeValue(Data([0xEE]), for: characteristic, type: .withoutResponse)
        try await eventually("the last value has come") { received.withLock { $0.last } == [0xEE] }
        let expected = (0..<sent).map { [UInt8($0 & 255)] } + [[0xEE]]
        #expect(received.withLock { $0 } == expected)
        #expect(central.count { if case .ready = $0 { true } else { false } } == 1)
    }

    @Test("RW-8 D6 writes without response go through BlueZ's socket; without one, by WriteValue")
    func socketOrCall() async throws {
        let (world, central, sink) = try await connectedSink()
        let command = try await central.characteristic(sinkUUID(0x12), of: sinkUUID(1), on: sink)
        let service = try #require(command.service)
        let all = try await central.discoverCharacteristics(service)
        let counter = try #require(all.first { $0.uuid == sinkUUID(0x1C) })
        for _ in 0..<20 { sink.writeValue(Data([1]), for: command, type: .withoutResponse) }
        #expect(try await central.read(counter).get().littleEndian == 20)
        #expect(world.simulator.calls("AcquireWrite").count == 1 && world.simulator.calls("WriteValue").isEmpty)
        try await central.disconnect(sink)
        world.simulator.inject(
            SimulatorFault(
                "AcquireWrite", times: nil, .fail(name: "org.bluez.Error.NotPermitted", message: "Write acquired")))
        try await central.connect(sink)
        let again = try await central.characteristic(sinkUUID(0x12), of: sinkUUID(1), on: sink)
        for _ in 0..<20 { sink.writeValue(Data([1]), for: again, type: .withoutResponse) }
        try await central.settle(sink)
        #expect(world.simulator.calls("WriteValue").count == 20)
    }

    @Test("RW-12 a descriptor is written with response; NT-5 reading 2902 is allowed")
    func descriptors() async throws {
        let (_, central, sink) = try await connectedSink()
        let described = try await central.characteristic(sinkUUID(0x18), of: sinkUUID(1), on: sink)
        sink.discoverDescriptors(for: described)
        try await central.next("descriptors") { if case .descriptors = $0 { true } else { nil } }
        let own = try #require(described.descriptors?.first { $0.uuid == sinkUUID(0x30) })
        sink.writeValue(Data("new".utf8), for: own)
        try await central.next("write") { if case .descriptorWritten(own, nil) = $0 { true } else { nil } }
        #expect(own.value == nil)
        sink.readValue(for: own)
        try await central.next("value") { if case .descriptorValue(own, nil) = $0 { true } else { nil } }
        #expect(own.value as? Data == Data("new".utf8))
        let notifying = try #require(described.service?.characteristics?.first { $0.uuid == sinkUUID(0x18) })
        #expect(notifying === described)
        let main = try #require(described.service)
        let all = try await central.discoverCharacteristics(main)
        let subscribed = try #require(all.first { $0.uuid == sinkUUID(0x13) })
        sink.discoverDescriptors(for: subscribed)
        try await central.next("descriptors") { if case .descriptors(subscribed, nil) = $0 { true } else { nil } }
        let configuration = try #require(subscribed.descriptors?.first { $0.uuid == CBUUID(string: "2902") })
        #expect(try await central.setNotify(true, subscribed) == nil)
        sink.readValue(for: configuration)
        try await central.next("value") { if case .descriptorValue(configuration, nil) = $0 { true } else { nil } }
        #expect(configuration.value as? NSNumber == 1)
    }

    @Test("MIS-9 a write without response to a characteristic that does not allow it is dropped and logged")
    func wrongType() async throws {
        let (world, central, sink) = try await connectedSink()
        let short = try await central.characteristic(sinkUUID(0x11), of: sinkUUID(1), on: sink)
        sink.writeValue(Data([1]), for: short, type: .withoutResponse)
        try await LogCapture.shared.expect("misuse", "does not specify the \"Write Without Response\" property")
        #expect(try await central.read(short).get() == Data([0]))
        #expect(world.simulator.calls("WriteValue").isEmpty)
    }

    @Test("RW-16 the data of a write is that of the call")
    func copies() async throws {
        let (_, central, sink) = try await connectedSink()
        let short = try await central.characteristic(sinkUUID(0x11), of: sinkUUID(1), on: sink)
        await central.perform {
            var data = Data([1, 2, 3])
            sink.writeValue(data, for: short, type: .withResponse)
            data[0] = 9
        }
        #expect(try await central.read(short).get() == Data([1, 2, 3]))
    }

    @Test("NT-1 NT-3 CN-14 a refused subscription is an error, and isNotifying stays false")
    func refusedSubscription() async throws {
        let service = VirtualService(
            "1815", [VirtualCharacteristic("2A56", .notify, subscribeFailure: ATTFailure(0x80))])
        let (_, _, central, peripheral) = try await connected([service])
        let characteristic = try await central.characteristic(
            CBUUID(string: "2A56"), of: CBUUID(string: "1815"), on: peripheral)
        let error = try await central.setNotify(true, characteristic)
        #expect((error as? CBATTError)?.code.rawValue == 0x80 && !characteristic.isNotifying)
    }

    @Test("NT-4 values before and after a slow delegate: none lost, each its own")
    func slowDelegate() async throws {
        let (world, central, sink) = try await connectedSink()
        let characteristic = try await central.characteristic(sinkUUID(0x13), of: sinkUUID(1), on: sink)
        #expect(try await central.setNotify(true, characteristic) == nil)
        let gate = DispatchSemaphore(value: 0)
        central.queue.async { gate.wait() }  // the app is busy
        for n in 0..<2000 { world.sink.notify(characteristic.uuid.uuidString, [UInt8(n & 255), UInt8(n >> 8)]) }
        gate.signal()
        var values: [Int] = []
        while values.count < 2000 {
            values.append(
                try await central.next("value \(values.count)") {
                    if case .value(_, let value?, nil) = $0 { value.littleEndian } else { nil }
                })
        }
        #expect(values == Array(0..<2000))
    }

    @Test("IV-3 a request on an attribute that is removed in the meantime ends in an error, and the queue continues")
    func vanishingAttribute() async throws {
        let (world, central, sink) = try await connectedSink()
        _ = try await central.discoverServices(sink)
        world.sink.addService(VirtualPeripheral.changingService)
        try await central.next("change") { if case .modified = $0 { true } else { nil } }
        let new = try await central.characteristic(sinkUUID(0x21), of: sinkUUID(3), on: sink)
        let hello = try await central.characteristic(sinkUUID(0x10), of: sinkUUID(1), on: sink)
        world.simulator.inject(
            SimulatorFault("ReadValue", .fail(name: "org.freedesktop.DBus.Error.UnknownObject", message: "gone")))
        #expect((try await central.read(new).failure as? CBError)?.code == .invalidHandle)
        #expect(try await central.read(hello).get() == Data("hello".utf8))
    }

    @Test(
        "IV-1 O-23 a service that grows ends its subscriptions with its old objects, also one in progress",
        arguments: [false, true])
    func growingService(whileSubscribing: Bool) async throws {
        // While time stands still no one else answers.
        let world = try await whileSubscribing ? SimulatedWorld(.calm, times: .virtual) : SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        try await central.connect(heart)
        let (service, measurement) = (CBUUID(string: "180D"), CBUUID(string: "2A37"))
        let rate = try await central.characteristic(measurement, of: service, on: heart)
        if whileSubscribing {
            world.simulator.timing.attRoundTrip = .seconds(1)
            await world.time?.stop()
            heart.setNotifyValue(true, for: rate)
            try await world.awaitCall("StartNotify")
        } else {
            #expect(try await central.setNotify(true, rate) == nil)
        }
        // bluetoothd announces a service piece by piece, and takes its time when it is busy.
        let path = try #require(world.simulator.calls("StartNotify").last?.path)
        let parent = try #require(ObjectPath(path)?.parent)
        let signal = Signal.added(
            "\(parent)/char00f0", "GattCharacteristic1",
            [
                ("UUID", .string("00002a38-0000-1000-8000-00805f9b34fb")), ("Service", .path(parent)),
                ("Flags", .strings(["read"])),
            ])
        try world.simulator.emit(
            path: signal.path, interface: signal.interface, member: signal.member, arguments: signal.arguments)
        world.time?.pass()
        let changed = try await central.next("change") {
            if case .modified(_, let services) = $0 { services.map(\.uuid) } else { nil }
        }
        #expect(changed == [service])
        if whileSubscribing {
            // BlueZ would never answer if it were called to stop in the meantime.
            try await central.next("answer") { if case .notifying(rate, _, _) = $0 { true } else { nil } }
            world.simulator.timing.attRoundTrip = .zero
        }
        #expect(!rate.isNotifying)
        world.heart.notify("2A37", [0, 61])
        try await central.settle(heart)
        #expect(central.count { if case .value = $0 { true } else { false } } == 0)
        let again = try await central.characteristic(measurement, of: service, on: heart)
        #expect(again !== rate)
        #expect(try await central.setNotify(true, again) == nil)
        world.heart.notify("2A37", [0, 62])
        try await central.next("value") { if case .value(again, Data([0, 62]), nil) = $0 { true } else { nil } }
    }

    @Test("MIS-4 an attribute of another peripheral is refused")
    func foreignAttribute() async throws {
        let (_, central, sink) = try await connectedSink()
        let heart = try await central.find("Rig Heart")
        try await central.connect(heart)
        let hello = try await central.characteristic(sinkUUID(0x10), of: sinkUUID(1), on: sink)
        heart.readValue(for: hello)
        try await LogCapture.shared.expect("misuse", "is not an attribute of")
        try await central.settle(heart)
        #expect(central.count { if case .value = $0 { true } else { false } } == 0)
    }

    #if compiler(>=6.2)  // exit tests
    @Test("NT-5 MIS-11 writing 2902 is a programming error that names the fix")
    func writesConfiguration() async {
        await #expect(processExitsWith: .failure) {
            let world = try await SimulatedWorld()
            let central = Central(world)
            try await central.powerOn()
            let sink = try await central.find("Rig Sink")
            try await central.connect(sink)
            let characteristic = try await central.characteristic(sinkUUID(0x13), of: sinkUUID(1), on: sink)
            sink.discoverDescriptors(for: characteristic)
            try await central.next("descriptors") { if case .descriptors = $0 { true } else { nil } }
            guard let configuration = characteristic.descriptors?.first(where: { $0.uuid == CBUUID(string: "2902") })
            else {
                exit(0)
            }
            sink.writeValue(Data([1, 0]), for: configuration)
        }
    }
    #endif
}
