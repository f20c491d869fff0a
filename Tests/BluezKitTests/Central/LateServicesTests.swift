import CoreBluetooth
import Foundation
import Testing

@testable import BluezKitSimulator

// BlueZ sends changes in the order in which each object first changed: if a change of the device has not been sent yet,
// `ServicesResolved` precedes the services. The app then got none, and shortly afterwards `didModifyServices`. Now
// BlueZ is queried before a table counts as empty.
@Suite struct LateServicesTests {
    @Test("GD-1 GD-13 services that BlueZ announces after ServicesResolved are discovered")
    func afterResolved() async throws {
        var timing = SimulatorTiming.fast
        timing.serviceDiscovery = .seconds(3600)  // controlled by the test
        let world = try await SimulatedWorld(.calm, timing: timing)  // no other call may send what waits
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        try await central.connect(heart)
        heart.discoverServices(nil)
        let device = try #require(world.simulator.sync { world.simulator.adapters[0].devices[world.heart.address] })
        world.simulator.sync {
            device.changed("Alias")
            device.resolve()
        }
        try await central.next("services") { if case .services(heart, nil) = $0 { true } else { nil } }
        #expect(heart.services?.contains { $0.uuid == CBUUID(string: "180D") } == true)
        #expect(central.count { if case .modified = $0 { true } else { false } } == 0)
    }
}
