import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit
@testable import CoreBluetoothAsync

/// The name of a peripheral, which an app reads without waiting.
@Suite struct AsyncNameTests {
    // Only callbacks renewed it: what BlueZ gave with an answer to something else came with none.
    @Test("a name that has changed without a callback is there after the next awaited call")
    func renewed() async throws {
        let world = try await SimulatedWorld(.calm)
        let central = CentralManager(options: world.managerOptions)
        let heart = try await Scenarios.AsyncCentralScenarios.find("Rig Heart", CBUUID(string: "180D"), central)
        let identifier = heart.identifier
        @Sendable func rename(_ name: String) async {
            _ = await central.core.retrieve { manager in
                for peripheral in manager.retrievePeripherals(withIdentifiers: [identifier]) {
                    manager.mirror.receive(.peripheral(peripheral.identity, .name(name, isNews: false)))
                }
                return []
            }
        }
        await rename("One")
        _ = await heart.services
        #expect(heart.name == "One")
        await rename("Two")
        // There is no connection.
        await #expect(throws: CBError.self) { try await within { try await heart.readRSSI() } }
        #expect(heart.name == "Two")
    }
}
