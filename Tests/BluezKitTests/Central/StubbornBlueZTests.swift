import BluezKitSimulator
import CoreBluetooth
import BluezDBus
import Foundation
import Testing

@testable import BluezKit

/// What BlueZ does now and then, and no peripheral or rig can make it do.
@Suite struct StubbornBlueZTests {
    private func connected(
        times: WaitingTimes = .short
    ) async throws -> (SimulatedWorld, Central, CBPeripheral) {
        let world = try await SimulatedWorld(times: times)
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        try await central.connect(heart)
        return (world, central, heart)
    }

    @Test(
        "CN-14 O-32 a read refused without pairing starts pairing, is repeated once, and answered once",
        arguments: [1, 2])
    func pairsAndRepeats(refusals: Int) async throws {
        let (world, central, heart) = try await connected()
        central.manager.pairing = .justWorks
        let location = try await central.characteristic(
            CBUUID(string: "2A38"), of: CBUUID(string: "180D"), on: heart)
        world.simulator.inject(
            SimulatorFault(
                "ReadValue", times: refusals, .fail(name: "org.bluez.Error.NotPermitted", message: "Not paired")))
        world.simulator.forgetCalls()
        central.forgetRecords()
        let result = try await central.read(location)
        if refusals == 1 {
            #expect(try result.get() == Data([1]))
        } else {
            // Bonded by now, and it does not help.
            #expect((result.failure as? CBATTError)?.code == .insufficientEncryption)
        }
        #expect(world.simulator.calls("Pair").count == 1 && world.simulator.calls("ReadValue").count == 2)
        #expect(central.count { if case .value = $0 { true } else { false } } == 1)
    }

    @Test("a bond is recognized with BlueZ before 5.65, which reports only that a device is paired")
    func pairedMeansBonded() async throws {
        let (world, central, heart) = try await connected()
        world.simulator.options.exposesBonded = false
        central.manager.pairing = .justWorks
        let location = try await central.characteristic(
            CBUUID(string: "2A38"), of: CBUUID(string: "180D"), on: heart)
        #expect(!central.manager.retrieveBondedPeripherals().contains(heart))
        world.simulator.inject(
            SimulatorFault("ReadValue", .fail(name: "org.bluez.Error.NotPermitted", message: "Not paired")))
        #expect(try await central.read(location).get() == Data([1]))
        try await expectAtOnce("it is bonded") { central.manager.retrieveBondedPeripherals() == [heart] }
        // A process that starts later gets the same answer.
        let other = Central(world)
        try await other.powerOn()
        try await expectAtOnce("it is bonded for the other") {
            other.manager.retrieveBondedPeripherals().map(\.identifier) == [heart.identifier]
        }
        try await central.removeBond(heart)
        #expect(central.manager.retrieveBondedPeripherals().isEmpty)
    }

    @Test("removeBond asks again if BlueZ has answered, and the bond is still there")
    func undoneRemoval() async throws {
        let (world, central, heart) = try await connected()
        try await central.disconnect(heart)
        world.simulator.remember(world.heart, bonded: true)
        try await eventually("the bond") { central.manager.retrieveBondedPeripherals() == [heart] }
        // Never: the app hears of it.
        world.simulator.inject(SimulatorFault("RemoveDevice", times: 3, .answer([])))
        let log = EventLog<NSError?>()
        central.manager.removeBond(with: heart) { log.append($0 as NSError?) }
        let failure = try await log.next("answer") { $0 }
        #expect("\(failure)".contains("still paired"))
        try await expectAtOnce("it is bonded") { central.manager.retrieveBondedPeripherals() == [heart] }
        // Twice.
        world.simulator.inject(SimulatorFault("RemoveDevice", times: 2, .answer([])))
        world.simulator.forgetCalls()
        try await central.removeBond(heart)
        #expect(central.manager.retrieveBondedPeripherals().isEmpty)
        #expect(world.simulator.calls("RemoveDevice").count == 3)
        // Not once more than needed.
        world.simulator.forgetCalls()
        try await central.removeBond(heart)
        #expect(world.simulator.calls("RemoveDevice").count == 1)
    }

    @Test("CN-14 an app that allows no pairing gets the refusal, and nothing pairs")
    func doesNotPair() async throws {
        let (world, central, heart) = try await connected()
        let location = try await central.characteristic(
            CBUUID(string: "2A38"), of: CBUUID(string: "180D"), on: heart)
        world.simulator.inject(
            SimulatorFault("ReadValue", .fail(name: "org.bluez.Error.NotPermitted", message: "Not paired")))
        let error = try await central.read(location).failure
        #expect((error as? CBATTError)?.code == .insufficientAuthentication)
        #expect(world.simulator.calls("Pair").isEmpty)
    }

    @Test("the agent is registered once, is never made the default, and refuses requests about other programs' devices")
    func agent() async throws {
        let (world, central, heart) = try await connected()
        try await central.disconnect(heart)
        try await central.connect(heart)
        #expect(world.simulator.calls("RegisterAgent").count == 1)
        #expect(world.simulator.calls("RequestDefaultAgent").isEmpty)
        central.manager.pairing = .justWorks
        var display = BluezPairing()
        display.displayPasskey = { _, _ in }
        central.manager.pairing = display
        try await central.settle(heart)
        #expect(
            world.simulator.calls("RegisterAgent").count == 2, "another capability is another registration")
        // The sink belongs to another program: its client has no agent, so ours is asked.
        central.manager.pairing = .justWorks
        try await central.settle(heart)
        let other = try await BusClient(world.simulator.busAddress)
        world.simulator.remember(world.sink)
        let sink = "/org/bluez/hci0/dev_F0_F1_F2_00_00_02"
        try await other.call(sink, "org.bluez.Device1", "Connect")
        try await eventually("the services of the sink are resolved") {
            try await other.property(sink, "org.bluez.Device1", "ServicesResolved") == .bool(true)
        }
        await #expect(throws: (any Error).self) {
            try await other.call(
                sink + "/service0011/char0023", "org.bluez.GattCharacteristic1", "ReadValue", .noOptions,
                deadline: .seconds(1))
        }
        #expect(
            !central.manager.retrieveBondedPeripherals().map(\.identifier).contains(
                DeviceIdentity(address: 0xF0F1_F200_0002, isRandom: true).identifier))
    }

    @Test("a pairing request just after the app released its last manager is refused")
    func agentWithoutSession() async throws {
        typealias Agent = BluezKit.PairingAgent
        let world = try await SimulatedWorld()
        let (app, bluez) = (try await Peer.named(world.busAddress), try await Peer.named(world.busAddress))
        let server = app.sync { connection in
            let server = ObjectServer(connection: connection)
            // The session ends right here; in an app it does so on another thread, while the question is on its way.
            let session = Session.shared(Session.Key(address: world.simulator.busAddress, adapter: nil))
            server.add(Agent.interface, to: Agent.path, owner: Agent(session.pairing))
            return server
        }
        func ask(_ member: String, _ arguments: [Value] = []) async throws {
            try await bluez.call(app.name, Agent.path, "org.bluez.Agent1", member, arguments)
        }
        for member in ["Cancel", "Release"] { try await ask(member) }
        await #expect {
            try await ask("RequestAuthorization", [.path("/org/bluez/hci0/dev_F0_F1_F2_00_00_01")])
        } throws: { ($0 as? BusError)?.name == "org.bluez.Error.Rejected" }
        app.sync { _ in server.close() }
    }

    @Test("a dual-mode device that BlueZ pages: LE is requested in every possible way, then an error says why")
    func dualMode() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        world.simulator.inject(
            SimulatorFault(
                "org.bluez.Device1.Connect", times: nil,
                .fail(name: "org.bluez.Error.Failed", message: "br-connection-profile-unavailable")))
        central.manager.connect(heart)
        let error = try await central.next("failure") {
            if case .failed(heart, let error) = $0 { [error] } else { nil }
        }[0]
        let failure = try #require(error as? CBError)
        #expect(failure.code == .connectionFailed)
        #expect(
            (failure.userInfo[NSLocalizedRecoverySuggestionErrorKey] as? String)?.contains("ControllerMode = le")
                == true)
        let attempts = try #require(failure.userInfo[BluezErrorAttemptsKey] as? [BluezConnectAttempt])
        #expect(attempts.count >= 3 && attempts.allSatisfy { $0.date <= Date() && !$0.name.isEmpty })
        #expect(world.simulator.calls("Connect").contains { $0.interface == "org.bluez.Bearer.LE1" })
        #expect(world.simulator.calls("Set").count >= 1)
        // The error is not permanent.
        world.simulator.clearFaults()
        try await central.connect(heart)
    }

    @Test("AR-3 the timestamp is the time when the link ended, before the held-back callback")
    func timestamp() async throws {
        // In real times, or the two moments would hardly differ.
        let (world, central, heart) = try await connected(times: .real)
        let before = CFAbsoluteTimeGetCurrent()
        world.heart.disconnect()
        try await central.next("disconnection") { if case .disconnected(heart, _, .some) = $0 { true } else { nil } }
        let loss = try #require(central.losses.withLock { $0.last })
        // It waits 200 ms for a power-off that may follow.
        #expect(before <= loss.time && loss.time + 0.15 < loss.told)
    }

    @Test("CE-3 symbols of Apple's notification service and classic Bluetooth exist, and have no effect")
    func appleServices() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        central.manager.connect(
            heart,
            options: [
                CBConnectPeripheralOptionRequiresANCS: true, CBConnectPeripheralOptionEnableTransportBridgingKey: true,
            ])
        try await central.next("connection") { if case .connected(heart) = $0 { true } else { nil } }
        #expect(!heart.ancsAuthorized)
    }
}
