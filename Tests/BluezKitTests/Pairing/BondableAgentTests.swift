import BluezDBus
import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit
@testable import BluezKitSimulator

// An app that changed its pairing handlers got no bond: BluezKit registered its agent again right after it had
// unregistered it, and bluetoothd, which compares with the last value it sent to the kernel, left bonding off. The
// peripheral paired and the read succeeded, but the keys were lost with the link. Now the agent is registered once
// more.
@Suite struct BondableAgentTests {
    @Test("CN-14 an app's pairing abilities change while it is connected: a device that pairs then is bonded")
    func changesCapability() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        try await world.control("sink pairing justworks")
        central.manager.pairing = .justWorks
        let sink = try await central.find("Rig Sink")
        try await central.connect(sink)
        try await awaitPairable(world)
        var pairing = BluezPairing.justWorks
        pairing.displayPasskey = { _, _ in }
        central.manager.pairing = pairing
        let secret = try await central.characteristic(sinkUUID(0x16), of: sinkUUID(1), on: sink)
        // The second registration leaves bonding off; the third one mends that.
        _ = await world.simulator.waitForCalls("RegisterAgent", count: 3)
        try await awaitPairable(world)
        #expect(try await central.read(secret).get() == Data("encrypted".utf8))
        try await eventually("the sink is bonded") { central.manager.retrieveBondedPeripherals().contains(sink) }
    }

    private func awaitPairable(_ world: SimulatedWorld) async throws {
        let client = try await BusClient(world.simulator.busAddress)
        try await eventually("the adapter is pairable") {
            try await client.property("/org/bluez/hci0", "org.bluez.Adapter1", "Pairable")?.boolValue == true
        }
    }
}
