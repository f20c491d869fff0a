import BluezKitSimulator
import CoreBluetooth
import BluezDBus
import Foundation
import Testing

@testable import BluezKit

// While another program scans, BlueZ's discovery neither starts nor ends with ours, and a device whose signal strength
// and data do not change is not signalled again: a new scan never reported it. Now a scan that finds a discovery
// running reads the devices that it has heard.
@Suite struct ForeignScanTests {
    /// Calm: no other program may start or end the discovery under test.
    private func world() async throws -> (SimulatedWorld, Central) {
        let world = try await SimulatedWorld(.calm)
        world.simulator.add(
            VirtualPeripheral(
                "F0:00:00:00:05:CB", VirtualAdvertisement(localName: "Beacon", serviceUUIDs: ["1815"])))
        let central = Central(world)
        try await central.powerOn()
        return (world, central)
    }

    /// Another program, which scans until it is released.
    private func other(_ world: SimulatedWorld) async throws -> Peer {
        let peer = try await Peer.named(world.busAddress)
        let filter = Value.properties([("Transport", .string("le"))])
        for (member, arguments) in [("SetDiscoveryFilter", [filter]), ("StartDiscovery", [])] {
            try await peer.call("org.bluez", "/org/bluez/hci0", "org.bluez.Adapter1", member, arguments)
        }
        return peer
    }

    @Test("SC-1 while another program scans, each new scan reports a device whose properties do not change")
    func eachScan() async throws {
        let (world, central) = try await world()
        for _ in 0..<2 { _ = try await central.find("Beacon") }
        #expect(world.simulator.calls("GetManagedObjects").isEmpty)  // no other program scans: there is nothing to read
        let other = try await other(world)
        for _ in 0..<3 { _ = try await central.find("Beacon", services: [CBUUID(string: "1815")]) }
        withExtendedLifetime(other) {}
    }

    @Test("SC-7 a scan that continues after a connect does not repeat its reports, even if other programs scan")
    func onlyOnce() async throws {
        let (world, central) = try await world()
        let other = try await other(world)
        central.manager.scanForPeripherals(
            withServices: nil, options: [CBCentralManagerScanOptionAllowDuplicatesKey: true])
        let discoveries = {
            central.count { if case .discovered(let found, _, _) = $0 { found.name == "Beacon" } else { false } }
        }
        var found: [String: CBPeripheral] = [:]
        while found["Rig Heart"] == nil || found["Beacon"] == nil {
            let next = try await central.next("heart and beacon") {
                if case .discovered(let next, _, _) = $0 { next } else { nil }
            }
            found[next.name ?? ""] = next
        }
        let before = discoveries()
        let heart = try #require(found["Rig Heart"])
        try await central.connect(heart)
        #expect(await world.simulator.waitForCalls("GetManagedObjects", count: 2) != nil)
        // The answer to this comes after that one.
        _ = central.manager.retrieveConnectedPeripherals(withServices: [CBUUID(string: "180D")])
        try await central.settle(heart)
        #expect(discoveries() == before)
        withExtendedLifetime(other) {}
    }
}
