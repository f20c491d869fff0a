import BluezKitSimulator
import BluezDBus
import Foundation
import Testing

@testable import BluezKit

/// What a process asks of bluetoothd, and does not stay to hear: bluetoothd watches for the end of its clients from the
/// moment at which it handles their calls, so what it handles later than that end it keeps until it ends itself. An
/// agent that is left so refuses the pairings of all programs, and a discovery occupies the radio.
extension Scenarios {
    @Suite struct AbandonedCallScenarios {
        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test(
            "CN-15 O-45 a manager is released while bluetoothd hangs: what it has asked for ends, and pairings are not refused",
            seesCore
        )
        func released() async throws {
            let world = try await Worlds.make()
            (world as? SimulatedWorld)?.simulator.options.keepsGoneClients = true
            try await leave(world)
            try await AsyncCentralScenarios.stopsScanning(world)
            let setting = try await PairingScenarios().prepare("justworks", .justWorks, in: world)
            #expect(try await setting.read().get() == Data("encrypted".utf8))
            try await setting.removeBond()
        }

        // BlueZ answers no `RegisterApplication` that `UnregisterApplication` overtakes.
        @Test("PB-6 O-45 managers that are released while they add a service leave no connection to the bus", seesCore)
        func releasedWhileAdding() async throws {
            let world = try await Worlds.make()
            var connections: [WeakConnection] = []
            for _ in 0..<10 {
                let publisher = Publisher(world)
                try await publisher.powerOn()
                let session = publisher.manager.session
                connections.append(session.queue.sync { WeakConnection(connection: session.bus) })
                publisher.manager.add(localService(0x100, [local(0x110, [.read])]))
                publisher.release()
            }
            try await eventually("all have left") { connections.allSatisfy { $0.connection == nil } }
        }

        /// One exists as long as it is on the bus.
        private struct WeakConnection { weak var connection: Connection? }

        /// All that remains of the session is what bluetoothd handles when it continues.
        private func leave(_ world: any World) async throws {
            let central = Central(world)
            try await central.powerOn()
            let queue = central.manager.session.queue
            try await world.control("bluetoothd hang")
            do {
                // BlueZ knows no such device, so nothing but the agent concerns it.
                let identifier = DeviceIdentity(address: 0xF0F1_F2AA_AAAA, isRandom: true).identifier
                let absent = central.manager.retrievePeripherals(withIdentifiers: [identifier])
                for peripheral in absent { central.manager.connect(peripheral) }
                queue.sync {}
                #expect(absent.map(\.state) == [.connecting])
            }
            central.release()
            queue.sync {}
            try await world.control("bluetoothd continue")
        }
    }
}
