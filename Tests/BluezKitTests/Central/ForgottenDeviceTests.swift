import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit

// A device that BlueZ had forgotten was kept as long as a scan lasted, if it had been connected or connecting: a
// gateway that scans for weeks, among peripherals that change their addresses, kept each of them in memory. Now the
// device is released with its link.
@Suite struct ForgottenDeviceTests {
    private func isKnown(_ central: Central, _ peripheral: CBPeripheral) -> Bool {
        let session = central.manager.session
        return session.queue.sync {
            session.central.store.known(peripheral.identity) != nil || !session.central.store.isConsistent
        }
    }

    @Test(
        "CN-9 BlueZ forgets a connected device during a scan: the session forgets it when the disconnection is reported"
    )
    func forgottenWhileConnected() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        await central.perform { central.manager.scanForPeripherals(withServices: nil) }
        try await central.connect(heart)
        #expect(isKnown(central, heart))
        world.heart.advertise(false)
        world.simulator.forgetDevice(world.heart)
        try await central.next("loss") { if case .disconnected(heart, false, .some) = $0 { true } else { nil } }
        await central.passBusQueue()
        #expect(!isKnown(central, heart))
        // It comes back, and is found and connected as before.
        world.heart.advertise(true)
        try await central.connect(heart)
        #expect(isKnown(central, heart) && central.manager.isScanning)
        // BlueZ has it: it stays, for the scan.
        try await central.disconnect(heart)
        await central.passBusQueue()
        #expect(isKnown(central, heart))
    }

    @Test("CN-7 a pending connect to a device unknown to BlueZ is cancelled during a scan: nothing of it is kept")
    func neverThere() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        await central.perform { central.manager.scanForPeripherals(withServices: nil) }
        let identifier = try #require(UUID(uuidString: "426C7A4B-0100-8000-8000-C00000090020"))
        let peripheral = try #require(central.manager.retrievePeripherals(withIdentifiers: [identifier]).first)
        central.manager.connect(peripheral)
        await central.passBusQueue()
        #expect(isKnown(central, peripheral))
        try await central.disconnect(peripheral)
        await central.passBusQueue()
        #expect(!isKnown(central, peripheral))
    }
}
