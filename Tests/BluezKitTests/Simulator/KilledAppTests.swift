import BluezKitSimulator
import CoreBluetooth
import CoreBluetoothAsync
import Foundation
import Testing

/// An app that a simulator kills in the process of the test (`Simulator.killApp`): what others see, and what the next
/// one gets.
@Suite("Simulator: an app is killed in this process") struct KilledAppTests {
    private let heartRate = CBUUID(string: "180D"), measurement = CBUUID(string: "2A37")

    private func connected(_ world: SimulatedWorld, _ directory: TemporaryDirectory) async throws -> (
        Central, CBPeripheral, CBCharacteristic
    ) {
        let central = Central(world, options: directory.centralOptions)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart", services: [heartRate])
        try await central.connect(heart)
        let characteristic = try await central.characteristic(measurement, of: heartRate, on: heart)
        #expect(try await central.setNotify(true, characteristic) == nil)
        return (central, heart, characteristic)
    }

    // Calm: the calls are counted.
    @Test("RS-1 RS-7 a killed central is restored by the next one: linked, subscribed, without a scan")
    func central() async throws {
        let (world, directory) = (try await SimulatedWorld(.calm), try TemporaryDirectory())
        let (before, heart, _) = try await connected(world, directory)
        let preserved = try Data(contentsOf: URL(fileURLWithPath: directory.file("app")))
        before.forgetRecords()
        world.simulator.forgetCalls()
        world.simulator.killApp()
        #expect(world.heart.connections.map(\.adapter) == [0])
        #expect(try Data(contentsOf: URL(fileURLWithPath: directory.file("app"))) == preserved)

        let (next, restored) = try await Central.restored(world, options: directory.centralOptions)
        #expect(restored.state == .connected)
        try #require(await world.heart.waitUntil { $0.isSubscribed(to: "2A37") })
        try await eventually("it is subscribed") {
            world.heart.notify("2A37", [0, 99])
            return next.events.contains { if case .value(_, Data([0, 99]), nil) = $0 { true } else { false } }
        }
        for call in ["Connect", "Disconnect", "StartDiscovery", "StopNotify"] {
            #expect(world.simulator.calls(call).isEmpty, "\(call)")
        }
        #expect(before.events.isEmpty, "\(before.events)")
        withExtendedLifetime(heart) {}
    }

    @Test("what happens between a kill and the next start is what the restoration reports")
    func lossMeanwhile() async throws {
        let (world, directory) = (try await SimulatedWorld(), try TemporaryDirectory())
        let (before, _, _) = try await connected(world, directory)
        world.simulator.killApp()
        world.heart.vanish()
        try #require(await world.heart.waitUntil { !$0.isConnected })
        let (next, restored) = try await Central.restored(world, options: directory.centralOptions)
        // The peripheral has lost its link; bluetoothd may hear of that after the manager has started.
        try await eventually("the link is reported as lost") {
            restored.state != .connected || next.count { if case .disconnected = $0 { true } else { false } } > 0
        }
        world.heart.comeBack()
        try await next.next("the link", within: 3 * world_deadline) { event in
            switch event {
            case .connected(restored): true
            case .disconnected(restored, _, _):
                // As an app does.
                {
                    next.manager.connect(restored); return nil
                }()
            default: nil
            }
        }
        withExtendedLifetime(before) {}
    }

    @Test("the objects of a killed app do nothing but log API MISUSE")
    func deadObjects() async throws {
        let (world, directory) = (try await SimulatedWorld(.calm), try TemporaryDirectory())
        let (central, heart, characteristic) = try await connected(world, directory)
        world.simulator.killApp()
        #expect(central.manager.state == .unknown)
        #expect(heart.state == .disconnected)
        #expect(!characteristic.isNotifying)
        world.simulator.forgetCalls()
        central.manager.connect(heart)
        heart.readValue(for: characteristic)
        central.manager.cancelPeripheralConnection(heart)
        try await LogCapture.shared.expect("misuse: ", "connect: the simulator has ended this manager's app")
        central.release()
        #expect(world.heart.isConnected)
        #expect(world.simulator.calls.isEmpty)
    }

    @Test("a killed app in the peripheral role is withdrawn, and publishes again when it is restored")
    func publisher() async throws {
        let (world, directory) = (try await SimulatedWorld(), try TemporaryDirectory())
        let options: [String: Any] = [
            CBPeripheralManagerOptionRestoreIdentifierKey: "app", BluezManagerOptionStateDirectoryKey: directory.path,
        ]
        let before = Publisher(world, options: options)
        try await before.powerOn()
        #expect(try await before.add(localService(0x100, [local(0x110, .read, value: Data([7]))])) == nil)
        #expect(try await before.advertise() == nil)
        let phone = world.simulator.central()
        #expect(try await phone.connect(to: "00:B1:5E:00:00:01").services.contains(sinkUUID(0x100).line))
        world.simulator.killApp()
        if !isHosted {  // a keeper keeps it
            try await eventually("the service is withdrawn") {
                try phone.discover()
                return (try? await phone.read(sinkUUID(0x110).line)) == nil
            }
        }
        let next = Publisher(world, options: options)
        try await next.powerOn()
        try await eventually("the service is there again") {
            try phone.discover()
            return (try? await phone.read(sinkUUID(0x110).line)) == [7]
        }
        withExtendedLifetime(before) {}
    }

    @Test("managers of CoreBluetoothAsync die and are restored as well")
    func async() async throws {
        let (world, directory) = (try await SimulatedWorld(.calm), try TemporaryDirectory())
        func options() -> [String: Any] { world.managerOptions.merging(directory.centralOptions) { $1 } }
        var before: CentralManager? = CentralManager(options: options())
        let heart = try await Scenarios.AsyncCentralScenarios.find("Rig Heart", heartRate, #require(before))
        try await within { [before] in try await before?.connect(heart) }
        world.simulator.killApp()
        #expect(world.heart.isConnected)
        let ended = try #require(before).states
        let next = CentralManager(options: options())
        let state = try await within { await next.restoredState.first { _ in true } }
        #expect(state?.peripherals.map(\.name) == ["Rig Heart"])
        #expect(world.simulator.calls("Disconnect").isEmpty)
        // What waits for the dead one ends with it.
        before = nil
        try await within { for await _ in ended {} }
        #expect(world.heart.isConnected)
    }

    // They were kept only if a keeper had been there, although CoreBluetooth subscribes again without one.
    @Test("R-9 RS-15 values of a restored subscription wait until the app asks for them, without a keeper too")
    func earlyValues() async throws {
        let (world, directory) = (try await SimulatedWorld(.calm), try TemporaryDirectory())
        func options() -> [String: Any] { world.managerOptions.merging(directory.centralOptions) { $1 } }
        let before = CentralManager(options: options())
        let old = try await Scenarios.AsyncCentralScenarios.find("Rig Sink", sinkUUID(1), before)
        try await within {
            try await before.connect(old)
            _ = try await old.discoverCharacteristic(sinkUUID(0x10), in: sinkUUID(1))
            let notifying = try await old.discoverCharacteristic(sinkUUID(0x13), in: sinkUUID(1))
            try await old.setNotifyValue(true, for: notifying)
        }
        world.simulator.killApp()
        let next = CentralManager(options: options())
        let state = try #require(try await within { await next.restoredState.first { _ in true } })
        let sink = try #require(state.peripherals.first)
        try await within { try await next.waitUntilReady() }
        let services = await sink.services
        let service = try #require(services?.first { $0.uuid == sinkUUID(1) })
        let known = try #require(await sink.characteristics(of: service))
        let readable = try #require(known.first { $0.uuid == sinkUUID(0x10) })
        let notifying = try #require(known.first { $0.uuid == sinkUUID(0x13) })
        for number in UInt8(1)...20 {
            // It is subscribed again after one of the first; and what was notified before an answer is there with it.
            world.sink.notify(sinkUUID(0x13).uuidString, [number])
            _ = try await within { try await sink.readValue(for: readable) }
        }
        let values = sink.values(for: notifying)
        #expect(try await within { try await values.first { $0 == Data([20]) } } != nil)
        withExtendedLifetime((before, old)) {}
    }

    @Test("two apps on two adapters: one is killed, and the other one continues")
    func oneOfTwo() async throws {
        let world = try await SimulatedWorld(.calm)
        _ = world.simulator.addAdapter(address: "00:B1:5E:00:00:02")
        let first = Central(world, options: [BluezManagerOptionAdapterKey: "hci0"])
        let second = Central(world, options: [BluezManagerOptionAdapterKey: "00:B1:5E:00:00:02"])
        for central in [first, second] { try await central.powerOn() }
        let (heart, sink) = (try await first.find("Rig Heart"), try await second.find("Rig Sink"))
        try await first.connect(heart)
        try await second.connect(sink)
        #expect(world.heart.connections.map(\.adapter) == [0])
        #expect(world.sink.connections.map(\.adapter) == [1])
        world.simulator.killApp(adapter: 1)
        #expect((first.manager.state, second.manager.state) == (.poweredOn, .unknown))
        try await first.settle(heart)
        let third = Central(world, options: [BluezManagerOptionAdapterKey: "hci1"])
        try await third.powerOn()
        _ = try await third.find("Rig Sensor 1", adding: world)
    }

    @Test("subscribe returns when the app has heard of it: an update right after it arrives", arguments: 1...20)
    func subscribes(_ run: Int) async throws {
        let world = try await SimulatedWorld()
        let publisher = Publisher(world)
        try await publisher.powerOn()
        let characteristic = local(0x110, run % 2 == 0 ? .notify : .indicate)
        #expect(try await publisher.add(localService(0x100, [characteristic])) == nil)
        #expect(try await publisher.advertise() == nil)
        let phone = world.simulator.central()
        try await phone.connect(to: "00:B1:5E:00:00:01")
        let values = phone.values(of: sinkUUID(0x110).line)
        try await phone.subscribe(sinkUUID(0x110).line)
        try await eventually("the app has heard of it") {
            publisher.count { if case .subscribed = $0 { true } else { false } } == 1
        }
        #expect(publisher.manager.updateValue(Data([UInt8(run)]), for: characteristic, onSubscribedCentrals: nil))
        #expect(try await within { await values.first { _ in true } } == [UInt8(run)])
    }
}

extension Central {
    fileprivate func find(_ name: String, adding world: SimulatedWorld) async throws -> CBPeripheral {
        world.simulator.add(.rigSensor(1))
        return try await find(name)
    }
}
