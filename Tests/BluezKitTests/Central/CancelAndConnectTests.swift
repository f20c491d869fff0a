import BluezKitSimulator
import CoreBluetooth
import Testing

@testable import BluezKit

// The end of a cancelled connection was applied to whatever the app had requested since, so `cancel` followed
// immediately by `connect` left a peripheral that was `.disconnected`, continued to connect, and could not be
// cancelled; and a connect that waited for its start delay was started for objects that the app had released. Now a
// later connect keeps its state, every cancel has its callback, and nothing is started for released objects.
@Suite struct CancelAndConnectTests {
    private func found(_ disconnectDelay: Duration = .milliseconds(20), in given: SimulatedWorld? = nil) async throws
        -> (world: SimulatedWorld, central: Central, heart: CBPeripheral, sink: CBPeripheral)
    {
        let world = if let given { given } else { try await SimulatedWorld() }
        world.simulator.timing.disconnectDelay = disconnectDelay
        let central = Central(world)
        try await central.powerOn()
        return (world, central, try await central.find("Rig Heart"), try await central.find("Rig Sink"))
    }

    private func restartAttempt(_ central: Central, _ peripheral: CBPeripheral) async {
        await central.perform {
            central.manager.cancelPeripheralConnection(peripheral)
            central.manager.connect(peripheral)
        }
    }

    private func disconnection(_ central: Central, _ peripheral: CBPeripheral) async throws -> CBPeripheralState? {
        try await central.nextRecord("disconnection") { record in
            if case .disconnected(peripheral, false, nil) = record.event { record.peripheralState } else { nil }
        }
    }

    @Test(
        "CN-3 CN-7 O-11 cancel followed immediately by connect: it is connecting, and can be cancelled",
        arguments: [true, false])
    func canBeCancelled(isPending: Bool) async throws {
        let (world, central, heart, sink) = try await found(.milliseconds(200))
        if isPending {
            world.heart.vanish()
            central.manager.connect(heart)
            await restartAttempt(central, heart)
        } else {
            try await central.connect(heart)
            await restartAttempt(central, heart)
            world.heart.vanish()
        }
        #expect(try await disconnection(central, heart) == .connecting)
        await central.perform { central.manager.cancelPeripheralConnection(heart) }
        #expect(try await disconnection(central, heart) == .disconnected)
        world.heart.comeBack()
        try await central.connect(sink)
        try await world.awaitConnections("heart", 0)
        #expect(heart.state == .disconnected)
    }

    @Test("CN-1 O-14 cancel, connect, and the last reference is dropped: no link is made")
    func released() async throws {
        let world = try await SimulatedWorld()
        world.simulator.timing.disconnectDelay = .milliseconds(200)
        let central = Central(world)
        try await central.powerOn()
        try await restartAndRelease(central, world)
        world.heart.comeBack()
        try await central.connect(try await central.find("Rig Sink"))
        try await world.awaitConnections("heart", 0)
    }

    private func restartAndRelease(_ central: Central, _ world: SimulatedWorld) async throws {
        let heart = try await central.find("Rig Heart")
        try await central.connect(heart)
        await restartAttempt(central, heart)
        world.heart.vanish()
        _ = try await disconnection(central, heart)
        central.forgetRecords()
    }

    @Test("CN-7 cancel, connect, cancel without a pause: each cancel has its didDisconnect", arguments: [true, false])
    func oneDisconnectEach(isPending: Bool) async throws {
        let (world, central, heart, _) = try await found()
        if isPending { world.heart.vanish() }
        if isPending { central.manager.connect(heart) } else { try await central.connect(heart) }
        await central.perform {
            central.manager.cancelPeripheralConnection(heart)
            central.manager.connect(heart)
            central.manager.cancelPeripheralConnection(heart)
        }
        for _ in 0..<2 { #expect(try await disconnection(central, heart) == .disconnected) }
        world.heart.comeBack()
        try await central.connect(heart)
        #expect(central.count { if case .disconnected = $0 { true } else { false } } == 2)
    }

    // On a busy machine the one attempt failed, and was repeated. Calm: the calls are counted.
    @Test("CN-1 CN-15 peripheral or manager released in the start delay: no link is made", arguments: [true, false])
    func releasedDuringDelay(isManager: Bool) async throws {
        let (world, central, heart, _) = try await found(in: SimulatedWorld(.calm, times: .virtual))
        let other = Central(world)
        try await other.powerOn()
        let clock = try await other.find("Rig Sink")
        try await releaseDuringDelay(central, heart, other, clock, isManager: isManager)
        try await other.next("connection") { if case .connected(clock) = $0 { true } else { nil } }
        #expect(world.simulator.calls("Connect").count == 1)
        try await world.awaitConnections("heart", 0)
    }

    private func releaseDuringDelay(
        _ central: Central, _ heart: CBPeripheral, _ other: Central, _ clock: CBPeripheral, isManager: Bool
    ) async throws {
        let options = { (delay: Double) in [CBConnectPeripheralOptionStartDelayKey: delay] }
        // The release follows the connect in the next block of the bus queue, whatever else the machine is doing.
        let session = other.manager.session
        session.queue.suspend()
        defer { session.queue.resume() }
        session.run {}
        if isManager {
            central.manager.connect(heart, options: options(0.2))
            central.release()
        } else {
            var only: CBPeripheral? = other.manager.retrievePeripherals(withIdentifiers: [heart.identifier]).first
            other.manager.connect(try #require(only), options: options(0.2))
            other.forgetRecords()
            only = nil
        }
        // Whose turn comes later.
        other.manager.connect(clock, options: options(0.5))
    }

    @Test(
        "CN-15 BlueZ forgets a peripheral and never answers a call: all objects of the library are released",
        arguments: ["Disconnect", "ReadValue", "WriteValue", "StartNotify", "AcquireWrite"])
    func neverAnswered(call: String) async throws {
        let world = try await SimulatedWorld()
        let session = try await releaseDuring(call, world)
        world.simulator.forgetDevice(world.sink)
        try await awaitEnd(of: session)
    }

    @Test(
        "CN-15 PB-12 BlueZ never answers a registration or unregistration: all objects of the library are released",
        arguments: ["RegisterApplication", "RegisterAdvertisement", "UnregisterAdvertisement"])
    func releasedWhilePublishing(call: String) async throws {
        let world = try await SimulatedWorld()
        world.simulator.inject(SimulatorFault(call, .ignore))
        let session = try await releaseWhilePublishing(call, world)
        try await awaitEnd(of: session)
    }

    @Test("CN-15 AD-3 a manager is released while its advertisement starts, another remains: the advertisement ends")
    func releasedBeforeAdvertising() async throws {
        let world = try await SimulatedWorld()
        let other = Publisher(world)
        try await other.powerOn()
        world.simulator.inject(SimulatorFault("RegisterAdvertisement", .delay(.milliseconds(100))))
        _ = try await releaseWhilePublishing("RegisterAdvertisement", world)
        #expect(await world.simulator.waitForCalls("UnregisterAdvertisement") != nil)
        #expect(try await other.advertise() == nil)
        #expect(world.simulator.work.advertisements == 1)
    }

    private func releaseWhilePublishing(_ call: String, _ world: SimulatedWorld) async throws -> Weak {
        let publisher = Publisher(world)
        try await publisher.powerOn()
        switch call {
        case "RegisterApplication": publisher.manager.add(localService(0x100, [local(0x110, .read)]))
        case "RegisterAdvertisement": publisher.manager.startAdvertising(nil)
        default:
            #expect(try await publisher.advertise() == nil)
            publisher.manager.stopAdvertising()
        }
        _ = try #require(await world.simulator.waitForCalls(call))
        let session = Weak(session: publisher.manager.session)
        publisher.release()
        return session
    }

    private func awaitEnd(of session: Weak) async throws {
        try await eventually("the session is released") { session.session == nil }
    }

    @Test("CN-15 a socket for writes is closed when its owner is released")
    func socketEnds() {
        var ends: [Int32] = [0, 0]
        #expect(socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue), 0, &ends) == 0)
        var socket: CommandSocket? = CommandSocket(descriptor: ends[0], mtuBytes: 23)
        #expect(socket?.isDrained == true)
        socket = nil
        var byte: UInt8 = 0
        #expect(recv(ends[1], &byte, 1, Int32(MSG_DONTWAIT)) == 0)
        close(ends[1])
    }

    private struct Weak { weak var session: Session? }

    /// Releases a connected manager while this call is not answered.
    private func releaseDuring(_ call: String, _ world: SimulatedWorld) async throws -> Weak {
        let central = Central(world)
        try await central.powerOn()
        let sink = try await central.find("Rig Sink")
        try await central.connect(sink)
        let service = try #require(try await central.discoverServices(sink, [sinkUUID(1)]).first)
        let found = try await central.discoverCharacteristics(service)
        func characteristic(_ number: Int) throws -> CBCharacteristic {
            try #require(found.first { $0.uuid == sinkUUID(number) })
        }
        world.simulator.inject(SimulatorFault(call, .ignore))
        switch call {
        case "ReadValue": sink.readValue(for: try characteristic(0x11))
        case "WriteValue": sink.writeValue(Data([1]), for: try characteristic(0x11), type: .withResponse)
        case "StartNotify": sink.setNotifyValue(true, for: try characteristic(0x13))
        case "AcquireWrite": sink.writeValue(Data([1]), for: try characteristic(0x12), type: .withoutResponse)
        default: break
        }
        if call != "Disconnect" { _ = await world.simulator.waitForCalls(call) }
        central.forgetRecords()
        let session = Weak(session: central.manager.session)
        central.release()
        _ = await world.simulator.waitForCalls("Disconnect")
        return session
    }
}
