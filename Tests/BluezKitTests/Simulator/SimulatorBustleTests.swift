import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

/// A busy world: what an app does in it works as in a calm one.
@Suite("Simulator: background activity") struct SimulatorBustleTests {
    @Test(
        "an app finds, connects, reads, subscribes and leaves despite other programs",
        arguments: 1...5 as ClosedRange<UInt64>)
    func works(seed: UInt64) async throws {
        let world = try await SimulatedWorld(.busy(seed: seed))
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        for _ in 0..<3 {
            try await central.connect(heart)
            let rate = try await central.characteristic(CBUUID(string: "2A37"), of: CBUUID(string: "180D"), on: heart)
            #expect(try await central.setNotify(true, rate) == nil)
            _ = try await world.control("heart notify 2a37 0042")
            try await central.next("beat") { if case .value(rate, _, nil) = $0 { true } else { nil } }
            let place = try await central.characteristic(CBUUID(string: "2A38"), of: CBUUID(string: "180D"), on: heart)
            #expect(try await central.read(place).get() == Data([1]))
            try await central.disconnect(heart)
        }
        #expect(world.simulator.calls("Connect").allSatisfy { $0.path.hasSuffix("F0_F1_F2_00_00_01") })
    }

    @Test("phones change their addresses, and are forgotten; a scan finds the new ones")
    func phones() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        central.manager.scanForPeripherals(withServices: nil)
        var seen: Set<UUID> = []
        while seen.count < 40 {
            let found = try await central.next("phone") {
                if case .discovered(let found, _, _) = $0 { found } else { nil }
            }
            seen.insert(found.identifier)
        }
        #expect(world.simulator.knownDevices().count < 40)
    }
}
