import BluezDBus
import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit

// bluetoothd leaves calls unanswered, such as those about an attribute that is removed, and a system bus counts them
// for as long as a connection lasts: 100 of one peripheral stopped all calls of the process for 95 s, and then ended
// its links. Now each peripheral has a budget, and links make such calls on connections that are replaced.
@Suite struct UnansweredCallTests {
    /// A peripheral whose service is replaced while it is read.
    private final class Changing {
        let peripheral: VirtualPeripheral
        private(set) var versions = 0

        init(_ world: SimulatedWorld, _ number: Int = 66, name: String = "Changing") {
            peripheral = VirtualPeripheral(
                "F0:F1:F2:00:00:\(number)", VirtualAdvertisement(localName: name, serviceUUIDs: ["FF10"]),
                services: Self.services)
            world.simulator.add(peripheral)
        }

        private static var services: [VirtualService] {
            [VirtualService("FF10", [VirtualCharacteristic("FF11", .read, value: [1], delay: .seconds(3600))])]
        }

        func change() {
            versions += 1
            peripheral.replaceServices(Self.services)
        }
    }

    /// Reads, and lets the service change meanwhile, until the link ends.
    /// - Returns: The error of the end.
    private func lose(
        _ changing: Changing, _ peripheral: CBPeripheral, _ central: Central, atMost most: Int = .max
    ) async throws -> (any Error)? {
        let simulator = try #require(central.world as? SimulatedWorld).simulator
        // Up to forty rounds, on a machine that may be busy: each step of them has a limit of its own.
        let deadline = ContinuousClock.now + .seconds(6 * world_deadline * Worlds.slowness)
        while ContinuousClock.now < deadline {
            if changing.versions == most {
                changing.peripheral.disconnect()
                return try await ended(peripheral, central) { _ in false }?.first ?? nil
            }
            peripheral.discoverServices(nil)
            if let end = try await ended(peripheral, central, { if case .services = $0 { true } else { false } }) {
                return end[0]
            }
            // The old service is removed, and then the new one added: it is looked for until it is there, and stays.
            guard let service = peripheral.services?.first else { continue }
            peripheral.discoverCharacteristics(nil, for: service)
            let end = try await ended(peripheral, central) { if case .characteristics = $0 { true } else { false } }
            if let end { return end[0] }
            guard let value = peripheral.services?.first?.characteristics?.first else { continue }
            let reads = simulator.calls("ReadValue").count
            peripheral.readValue(for: value)
            _ = try #require(await simulator.waitForCalls("ReadValue", count: reads + 1))
            changing.change()
            let modified = try await ended(peripheral, central) { if case .modified = $0 { true } else { false } }
            if let modified { return modified[0] }
        }
        throw BusError.malformed("the link did not end")
    }

    /// Waits for an event, or for the end of the link.
    private func ended(
        _ peripheral: CBPeripheral, _ central: Central, _ isIt: @escaping (Central.Event) -> Bool
    ) async throws -> [(any Error)?]? {
        let found = try await central.next("the event, or the end") { event -> [(any Error)?]? in
            if case .disconnected(peripheral, _, let error) = event { return [error] }
            return isIt(event) ? [] : nil
        }
        return found.isEmpty ? nil : found
    }

    @Test(
        "a peripheral whose requests are never answered loses its link, is left alone for a while, and the error says so"
    )
    func budget() async throws {
        let world = try await SimulatedWorld(.calm)
        let times = ShortTimes(on: world.busAddress) { $0.unanswered.pause = .seconds(4) }
        defer { withExtendedLifetime(times) {} }
        let changing = Changing(world)
        let central = Central(world)
        try await central.powerOn()
        let peripheral = try await central.find("Changing")
        try await central.connect(peripheral)
        let start = ContinuousClock.now
        let error = try #require(try await lose(changing, peripheral, central) as? CBError)
        #expect(changing.versions == 8)
        #expect(error.code == .connectionTimeout)
        #expect((error as NSError).localizedFailureReason?.contains("no link is made for 4 s") == true)
        // It is connected when that time is over, which began with the loss.
        let attempts = world.simulator.calls("Connect").count
        try await central.connect(peripheral)
        #expect(start.duration(to: .now) > .seconds(4))
        #expect(world.simulator.calls("Connect").count == attempts + 1)
    }

    // Slow: 150 reads, and a change of services for each.
    @Test(
        "more calls than the bus allows are never answered: nothing else in the process notices, subscriptions live on",
        arguments: [false, true])
    func lanes(slowly: Bool) async throws {
        let world = try await SimulatedWorld(.calm)
        let times = ShortTimes(on: world.busAddress) {
            ($0.unanswered.pause, $0.unanswered.longestPause) = (.milliseconds(1), .milliseconds(1))
            // They never come to be many in that time, so that only the bus counts them.
            if slowly { $0.unanswered.window = .milliseconds(1) }
        }
        defer { withExtendedLifetime(times) {} }
        let changing = Changing(world)
        let (central, other) = (Central(world), Central(world))
        for app in [central, other] { try await app.powerOn() }
        let heart = try await other.find("Rig Heart")
        try await other.connect(heart)
        let measurement = try await other.characteristic(CBUUID(string: "2A37"), of: CBUUID(string: "180D"), on: heart)
        let location = try await other.characteristic(CBUUID(string: "2A38"), of: CBUUID(string: "180D"), on: heart)
        #expect(try await other.setNotify(true, measurement) == nil)
        let peripheral = try await central.find("Changing")
        var (lost, worst) = (0, Duration.zero)
        while lost < 150 {
            try await central.connect(peripheral)
            let before = changing.versions
            #expect(try await lose(changing, peripheral, central) != nil)
            lost += changing.versions - before
            let start = ContinuousClock.now
            #expect(try await other.read(location).get().count == 1)
            worst = max(worst, start.duration(to: .now))
            world.heart.notify("2A37", [0, UInt8(lost)])
            try await other.next("value") {
                if case .value(measurement, Data([0, UInt8(lost)]), nil) = $0 { true } else { nil }
            }
        }
        #expect(worst < .seconds(10))  // it was 95 s
        for app in [central, other] {
            #expect(app.count { if case .state = $0 { true } else { false } } == 1)
            #expect(app.manager.state == .poweredOn)
        }
        #expect(world.simulator.calls("StartNotify").count == 1)
    }

    // Each of them left a connect that waits, and that held a connection to the bus of its own.
    // Slow: twelve peripherals are connected one after the other, and each leaves calls unanswered.
    @Test(
        "peripherals that leave calls unanswered and are gone then, however many addresses they have, keep no connection"
    )
    func rotatingAddresses() async throws {
        let world = try await SimulatedWorld(.calm)
        let times = ShortTimes(on: world.busAddress)
        defer { withExtendedLifetime(times) {} }
        let central = Central(world)
        try await central.powerOn()
        let session = central.manager.session
        session.queue.sync { session.blueZ.timing.unanswered.lane = 14 }
        let lanes = ProtectedBox<[Weak<CallLane>]>([])
        for number in 10..<22 {
            let changing = Changing(world, number, name: "Changing \(number)")
            let peripheral = try await central.find("Changing \(number)")
            try await central.connect(peripheral)
            session.queue.sync {
                for device in session.central.connected {
                    guard let lane = device.connection?.client.calls.lane else { continue }
                    lanes.withLock { if !$0.contains(where: { $0.object === lane }) { $0.append(Weak(lane)) } }
                }
            }
            _ = try await lose(changing, peripheral, central, atMost: 7)
            changing.peripheral.vanish()
            central.manager.connect(peripheral)
        }
        #expect(lanes.withLock { $0.count } >= 5)
        // The first one, and the present one.
        try await eventually("the others are closed") {
            session.queue.sync { lanes.withLock { $0.count { $0.object != nil } } } <= 2
        }
        #expect(central.manager.state == .poweredOn)
    }

    /// A link to the sink on another connection than that of the signals: the first attempt opens it, and fails.
    private func connectOnSecondLane(_ world: SimulatedWorld) async throws -> (Central, CBPeripheral) {
        let central = Central(world)
        try await central.powerOn()
        let sink = try await central.find("Rig Sink")
        let session = central.manager.session
        session.queue.sync { session.blueZ.firstLane?.abandoned = session.blueZ.timing.unanswered.lane }
        world.simulator.inject(
            SimulatorFault(
                "Connect", times: nil, .fail(name: "org.bluez.Error.Failed", message: "le-connection-abort-by-local")))
        central.manager.connect(sink)
        try await eventually("another connection is there") {
            session.queue.sync { session.blueZ.callLane().map { $0 !== session.blueZ.firstLane } == true }
        }
        world.simulator.clearFaults()
        try await central.next("didConnect") { if case .connected(sink) = $0 { true } else { nil } }
        let lane = session.queue.sync { session.central.connected.first?.connection?.client.calls.lane }
        #expect(lane != nil && lane?.connection !== session.bus)
        return (central, sink)
    }

    // On a second connection the answer to a read could come before the signal that BlueZ sends before it.
    @Test(
        "a link uses the connection that is current when its attempt begins: a read there is delivered once, as notifications are"
    )
    func echo() async throws {
        let world = try await SimulatedWorld(.calm)
        let times = ShortTimes(on: world.busAddress)
        defer { withExtendedLifetime(times) {} }
        let (central, sink) = try await connectOnSecondLane(world)
        let value = try await central.characteristic(sinkUUID(0x13), of: sinkUUID(1), on: sink)
        #expect(try await central.setNotify(true, value) == nil)
        central.forgetRecords()
        for number in 1...50 {
            try await world.control("sink value 0013 \(number % 2 == 0 ? "aa" : "bb")")
            _ = try await central.read(value).get()
        }
        try await central.settle(sink)
        #expect(central.count { if case .value(value, _, nil) = $0 { true } else { false } } == 50)
        try await world.control("sink notify 0013 cc")
        try await central.next("notification") {
            if case .value(value, Data([0xCC]), nil) = $0 { true } else { nil }
        }
        try await central.disconnect(sink)
    }

    @Test("a read that BlueZ never answers ends with a timeout, and so does the link; the next link can be used")
    func deadline() async throws {
        let world = try await SimulatedWorld(.calm)
        let times = ShortTimes(on: world.busAddress) { $0.gatt.pairingAnswer = .milliseconds(200) }
        defer { withExtendedLifetime(times) {} }
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        try await central.connect(heart)
        let location = try await central.characteristic(CBUUID(string: "2A38"), of: CBUUID(string: "180D"), on: heart)
        world.simulator.inject(SimulatorFault("ReadValue", .ignore))
        #expect((try await central.read(location).failure as? CBError)?.code == .connectionTimeout)
        let end = try await central.next("disconnection") {
            if case .disconnected(heart, _, let error) = $0 { [error] } else { nil }
        }[0]
        #expect((end as? CBError)?.code == .connectionTimeout)
        world.simulator.clearFaults()
        let session = central.manager.session
        session.queue.sync { session.blueZ.timing.gatt.pairingAnswer = .seconds(60) }
        try await central.connect(heart)
        let again = try await central.characteristic(CBUUID(string: "2A38"), of: CBUUID(string: "180D"), on: heart)
        #expect(try await central.read(again).get().count == 1)
    }

    @Test("if BlueZ never gives a socket for writes, the write is not reported, and the link ends")
    func noSocket() async throws {
        let world = try await SimulatedWorld(.calm)
        let times = ShortTimes(on: world.busAddress) { $0.gatt.pairingAnswer = .milliseconds(200) }
        defer { withExtendedLifetime(times) {} }
        let central = Central(world)
        try await central.powerOn()
        let sink = try await central.find("Rig Sink")
        try await central.connect(sink)
        let commands = try await central.characteristic(sinkUUID(0x12), of: sinkUUID(1), on: sink)
        world.simulator.inject(SimulatorFault("AcquireWrite", .ignore))
        sink.writeValue(Data([1]), for: commands, type: .withoutResponse)
        let end = try await central.next("disconnection") {
            if case .disconnected(sink, _, let error) = $0 { [error] } else { nil }
        }[0]
        #expect((end as? CBError)?.code == .connectionTimeout)
        #expect(world.simulator.calls("WriteValue").isEmpty)
    }

    @Test(
        "a call counts once as lost: on its lane until it is answered or overdue, for its device unless it is answered")
    func noted() throws {
        let bus = try PrivateBus(policy: .open)
        let blueZ = BlueZBus(address: bus.busAddress)
        blueZ.timing.unanswered.calls = 2
        let device = DeviceIdentity(address: 0xF0F1_F200_0066, isRandom: true)
        try blueZ.queue.sync {
            let lane = CallLane(try Connection(address: bus.busAddress, queue: blueZ.queue))
            defer { lane.connection.close() }
            let unanswered = UnansweredCalls(blueZ)
            let (late, overdue, other) = (OperationCall(), OperationCall(), OperationCall())
            for _ in 0..<2 { unanswered.record(late, about: device, on: lane) }
            #expect(lane.lost == 1 && unanswered.pause(of: device) == nil)
            late.ended(nil)
            #expect(lane.lost == 0)
            overdue.ended(.timedOut)
            for _ in 0..<2 { unanswered.record(overdue, about: device, on: lane) }
            #expect(lane.lost == 0 && unanswered.pause(of: device) == nil)
            unanswered.record(other, about: device, on: lane)
            #expect(lane.lost == 1)
            other.ended(.timedOut)
            #expect(lane.lost == 0)
            #expect(unanswered.pause(of: device) != nil)
        }
    }

    @Test("a call lost with its connection counts as unanswered for its device")
    func closed() throws {
        let blueZ = BlueZBus(address: BusAddress("unix:path=/nonexistent"))
        blueZ.timing.unanswered.calls = 2
        let device = DeviceIdentity(address: 0xF0F1_F200_0066, isRandom: true)
        blueZ.queue.sync {
            let (unanswered, calls) = (UnansweredCalls(blueZ), [OperationCall(), OperationCall()])
            for call in calls { unanswered.record(call, about: device, on: nil) }
            for call in calls { call.ended(.disconnected(name: "", message: "")) }
            #expect(unanswered.pause(of: device) != nil)
        }
    }

    @Test("calls to many other devices, whose addresses may rotate, do not end the pause of a device")
    func rotation() throws {
        let blueZ = BlueZBus(address: BusAddress("unix:path=/nonexistent"))
        blueZ.queue.sync {
            let unanswered = UnansweredCalls(blueZ)
            func lose(_ number: UInt64) {
                unanswered.record(OperationCall(), about: DeviceIdentity(address: number, isRandom: true), on: nil)
            }
            func isPaused(_ number: UInt64) -> Bool {
                unanswered.pause(of: DeviceIdentity(address: number, isRandom: true)) != nil
            }
            for _ in 0..<8 { lose(1) }
            #expect(isPaused(1))
            for number in 2..<5000 { lose(UInt64(number)) }
            #expect(isPaused(1))
            // The last ones are not forgotten either.
            for _ in 0..<7 { lose(4999) }
            #expect(isPaused(4999))
        }
    }

    @Test(
        "a Disconnect or StopNotify that BlueZ never answers counts, although the link ends: the device is left alone",
        arguments: ["Disconnect", "StopNotify"])
    func ends(member: String) async throws {
        let world = try await SimulatedWorld(.calm)
        let times = ShortTimes(on: world.busAddress) {
            ($0.unanswered.late, $0.unanswered.pause) = (.zero, .seconds(60))
        }
        defer { withExtendedLifetime(times) {} }
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        world.simulator.inject(SimulatorFault(member, times: nil, .ignore))
        let session = central.manager.session
        func isPaused() -> Bool { session.queue.sync { session.central.unanswered.pause(of: heart.identity) } != nil }
        // On a slow machine an answer may be late as well, so that fewer rounds are enough. It counts until it comes.
        var (round, isLeftAlone) = (0, false)
        while round < 8, !isLeftAlone {
            round += 1
            try await central.connect(heart)
            let value = try await central.characteristic(CBUUID(string: "2A37"), of: CBUUID(string: "180D"), on: heart)
            #expect(try await central.setNotify(true, value) == nil)
            central.manager.cancelPeripheralConnection(heart)
            if member == "Disconnect" {
                _ = try #require(await world.simulator.waitForCalls("Disconnect", count: round))
                world.heart.disconnect()
            }
            try await central.next("disconnection") { if case .disconnected(heart, _, _) = $0 { true } else { nil } }
            isLeftAlone = isPaused()
        }
        #expect(isLeftAlone)
    }

    /// A read of the sink is with BlueZ.
    /// - Parameter isIgnored: BlueZ never answers it.
    private func reading(_ world: SimulatedWorld, isIgnored: Bool = false) async throws -> (Central, CBPeripheral) {
        let central = Central(world)
        try await central.powerOn()
        let sink = try await central.find("Rig Sink")
        try await central.connect(sink)
        let slow = try await central.characteristic(sinkUUID(0x1B), of: sinkUUID(1), on: sink)
        if isIgnored { world.simulator.inject(SimulatorFault("ReadValue", .ignore)) }
        sink.readValue(for: slow)
        _ = await world.simulator.waitForCalls("ReadValue")
        return (central, sink)
    }

    @Test("a link that is lost while a read waits, which BlueZ answers then: the device is not forgotten")
    func isNotForgotten() async throws {
        let world = try await SimulatedWorld(.calm)
        let (central, sink) = try await reading(world)
        world.sink.disconnect()
        try await central.next("disconnection") { if case .disconnected(sink, _, _) = $0 { true } else { nil } }
        try await central.connect(sink)
        #expect(world.simulator.calls("RemoveDevice").isEmpty)
    }

    @Test("a device that BlueZ has forgotten as it must, and has found again at once, is not forgotten again")
    func isForgottenOnce() async throws {
        let world = try await SimulatedWorld(.calm)
        let (central, sink) = try await reading(world, isIgnored: true)
        central.manager.scanForPeripherals(withServices: nil)
        world.sink.disconnect()
        try await central.next("disconnection") { if case .disconnected(sink, _, _) = $0 { true } else { nil } }
        try #require(await world.simulator.waitForCalls("RemoveDevice") != nil)
        try await eventually("it is found again") { world.simulator.knownDevices().contains(world.sink.address) }
        try await central.connect(sink)
        #expect(world.simulator.calls("RemoveDevice").count == 1)
    }

    // Its next link got BlueZ's `InProgress`, once in CI.
    @Test("a device with a read that BlueZ never answers is forgotten, also if BlueZ has answered and kept it")
    func isForgotten() async throws {
        let world = try await SimulatedWorld(.calm)
        world.simulator.inject(SimulatorFault("RemoveDevice", times: 1, .answer([])))
        let (central, sink) = try await reading(world, isIgnored: true)
        world.sink.disconnect()
        try await central.next("disconnection") { if case .disconnected(sink, _, _) = $0 { true } else { nil } }
        try #require(await world.simulator.waitForCalls("RemoveDevice", count: 2) != nil)
        try await eventually("BlueZ has forgotten it") {
            !world.simulator.knownDevices().contains(world.sink.address)
        }
    }
}
