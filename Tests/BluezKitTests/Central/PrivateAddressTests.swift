import BluezKitSimulator
import CoreBluetooth
import Testing

@testable import BluezKit

// A peripheral that bonds with a private address gets another `Address`, and keeps its path. A search by its identity
// identifier queried a nonexistent object 1,700 times in 6 s, and the next scan of the process that had bonded created
// another object for it. Now BlueZ is asked once where such devices are, and they keep their identity.
@Suite struct PrivateAddressTests {
    private static let identity = DeviceIdentity(address: 0xF0F1_F200_0002, isRandom: true)

    /// A sink that has bonded with `central` under a private address.
    private func bonded(_ world: SimulatedWorld) async throws -> (Central, CBPeripheral) {
        world.sink.usePrivateAddress()
        let central = Central(world)
        try await central.powerOn()
        central.manager.pairing = .justWorks
        let sink = try await central.find("Rig Sink")
        try await central.connect(sink)
        let secret = try await central.characteristic(sinkUUID(0x16), of: sinkUUID(1), on: sink)
        #expect(try await central.read(secret).get().isEmpty == false)
        #expect(sink.identityIdentifier == Self.identity.identifier && sink.identifier != sink.identityIdentifier)
        return (central, sink)
    }

    /// An app with a session of its own, as in another process.
    private func later(_ world: SimulatedWorld) async throws -> Central {
        let central = Central(world, options: [BluezManagerOptionAdapterKey: "hci0"])
        try await central.powerOn()
        return central
    }

    @Test(
        "RT-1 ID-2 a peripheral with a private address is retrieved by its identity identifier, and connected",
        arguments: [false, true])
    func retrieveByIdentity(isNear: Bool) async throws {
        let world = try await SimulatedWorld()
        let (first, sink) = try await bonded(world)
        try await first.disconnect(sink)
        world.sink.usePrivateAddress()
        if !isNear { world.sink.advertise(false) }
        let central = try await later(world)
        let found = try #require(
            central.manager.retrievePeripherals(withIdentifiers: [sink.identityIdentifier]).first)
        let before = world.simulator.calls("Connect").count
        world.simulator.timing.connectTimeout = .seconds(60)  // one attempt, however long it takes until it is near
        central.manager.connect(found)
        if !isNear {
            _ = await world.simulator.waitForCalls("Connect", count: before + 1)
            world.sink.advertise(true)
        }
        try await central.next("connection") { if case .connected(found) = $0 { true } else { nil } }
        #expect(world.simulator.calls("Connect").count == before + 1)
        #expect(world.simulator.calls("GetManagedObjects").count <= 1)
    }

    @Test(
        "RT-3 ID-2 a peripheral that another program connected is retrieved as connected, or by its identity identifier",
        arguments: [false, true])
    func retrieveConnected(byService: Bool) async throws {
        let world = try await SimulatedWorld()
        let (first, sink) = try await bonded(world)
        let central = try await later(world)
        var retrieved: CBPeripheral?
        try await expectAtOnce("it is retrieved") {
            retrieved =
                byService
                ? central.manager.retrieveConnectedPeripherals(withServices: [sinkUUID(1)]).first
                : central.manager.retrievePeripherals(withIdentifiers: [sink.identityIdentifier]).first
            return retrieved != nil
        }
        let found = try #require(retrieved)
        #expect(found.identifier == sink.identityIdentifier)
        try await central.connect(found)
        // The link is shared: one's cancel leaves it.
        try await central.disconnect(found)
        #expect(world.sink.isConnected && sink.state == .connected)
        withExtendedLifetime(first) {}
    }

    @Test(
        "ID-2 ID-3 the process that bonded finds the peripheral as the same object, with any address, and retrieves it")
    func sameObject() async throws {
        let world = try await SimulatedWorld()
        let (central, sink) = try await bonded(world)
        try await central.disconnect(sink)
        for isPrivate in [true, false] {
            isPrivate ? _ = world.sink.usePrivateAddress() : world.sink.useIdentityAddress()
            #expect(try await central.find("Rig Sink") === sink)
        }
        let retrieved = central.manager.retrievePeripherals(withIdentifiers: [sink.identityIdentifier, sink.identifier])
        #expect(retrieved.count == 2 && retrieved.allSatisfy { $0 === sink })
        try await central.connect(sink)
    }
}
