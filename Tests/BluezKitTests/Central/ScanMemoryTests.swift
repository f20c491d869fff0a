import BluezKitSimulator
import BluezDBus
import Foundation
import Testing

@testable import BluezKit

// Reported devices were remembered by the address of an object that was freed when BlueZ forgot the device. The next
// device got that address from the allocator, and was treated as reported: with addresses that rotate, a scan soon
// reported nothing new. Now devices are remembered by identity, in a memory with a limit.
@Suite struct ScanMemoryTests {
    private func identity(_ number: Int) -> DeviceIdentity {
        DeviceIdentity(address: 0xF05C_A000_0000 + UInt64(number), isRandom: true)
    }

    private func path(_ number: Int) -> String { ScriptedBus.path(identity(number)) }

    private func show(_ number: Int, _ bluez: ScriptedBus) throws {
        try bluez.add(
            path(number), BlueZ.device, ScriptedBus.properties(identity(number), [("RSSI", .int16(-50))]))
    }

    private func forget(_ number: Int, _ bluez: ScriptedBus) throws { try bluez.remove(path(number), BlueZ.device) }

    /// Counts, and keeps nothing.
    private final class Counter: NSObject, CBCentralManagerDelegate, @unchecked Sendable {  // holds: on one queue
        let counts = EventLog<Int>()
        private var count = 0
        func centralManagerDidUpdateState(_ central: CBCentralManager) {
            if central.state == .poweredOn { central.scanForPeripherals(withServices: nil) }
        }
        func centralManager(
            _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
            rssi RSSI: NSNumber
        ) {
            count += 1
            counts.append(count)
        }
    }

    // Slow: 400,000 signals pass through a bus, a tenth of them in a debug build.
    @Test("SC-1 SC-6 days of new addresses: each is reported once, and only devices that BlueZ knows are kept")
    func day() async throws {
        let bluez = try await ScriptedBus(serving: BlueZVersion(5, 66))
        let counter = Counter()
        let manager = CBCentralManager(
            delegate: counter, queue: DispatchQueue(label: "test.day"), options: bluez.managerOptions)
        let core = manager.core
        let kept = {
            manager.session.queue.sync { (core.scan?.reportedCount ?? -1, core.central.store.count) }
        }
        try await bluez.skip(to: "StartDiscovery")
        let (all, atOnce) = (thorough(200_000), 500)
        for number in 0..<all {
            try show(number, bluez)
            if number >= atOnce { try forget(number - atOnce, bluez) }
            // Not faster than it is read, or the bus keeps it all.
            if number % atOnce == atOnce - 1 {
                try await counter.counts.next("device \(number)") { $0 == number + 1 ? true : nil }
                counter.counts.forget()
                #expect(kept().0 <= 2 * ScanMemory.generation && kept().1 <= 2 * atOnce)
            }
        }
        for number in all - atOnce..<all { try forget(number, bluez) }
        try show(all, bluez)
        try await counter.counts.next("the last one") { $0 == all + 1 ? true : nil }
        #expect(all > ScanMemory.generation && kept().1 == 1)
        withExtendedLifetime((manager, bluez)) {}
    }

    @Test("SC-6 a forgotten device that comes back is reported again only if its advertisement contains something new")
    func comesBack() async throws {
        let bluez = try await ScriptedBus(serving: BlueZVersion(5, 66))
        let central = Central(bluez)
        try await central.powerOn()
        central.manager.scanForPeripherals(withServices: nil)
        try await bluez.skip(to: "StartDiscovery")
        func next() async throws -> CBPeripheral {
            try await central.next("discovery") { if case .discovered(let found, _, _) = $0 { found } else { nil } }
        }
        try show(1, bluez)
        let first = try await next()
        central.keep(first)
        try forget(1, bluez)
        try show(1, bluez)
        try show(2, bluez)
        #expect(try await next() !== first)
        try bluez.change(path(1), BlueZ.device, [("Name", .string("New")), ("RSSI", .int16(-60))])
        #expect(try await next() === first)
        #expect(central.count { if case .discovered = $0 { true } else { false } } == 3)
    }

    @Test("SC-6 at least the last 16,384 devices are remembered, and at most twice as many")
    func memory() {
        var memory = ScanMemory()
        func identity(_ number: Int) -> DeviceIdentity { DeviceIdentity(address: UInt64(number), isRandom: true) }
        for number in 0..<100_000 {
            #expect(memory.kinds(of: identity(number)) == nil)
            memory.record(.name, of: identity(number))
            // A device that is heard all the time.
            if number > 0 { #expect(memory.kinds(of: identity(0)) == .name) }
            #expect(memory.count <= 2 * ScanMemory.generation)
        }
        let last = (0..<100_000).suffix(ScanMemory.generation - 1)
        #expect(last.allSatisfy { memory.kinds(of: identity($0)) == .name })
        #expect(memory.kinds(of: identity(1)) == nil)
    }

    @Test("SC-6 phones that change their address while a scan runs are each found, in the simulator too")
    func rotation() async throws {
        var timing = SimulatorTiming.fast
        timing.temporaryTimeout = .milliseconds(60)
        let world = try await SimulatedWorld(timing: timing)
        let central = Central(world)
        try await central.powerOn()
        central.manager.scanForPeripherals(withServices: nil)
        _ = await world.simulator.waitForCalls("StartDiscovery")
        for number in 0..<300 {
            let phone = VirtualPeripheral(
                identity(number).addressText,
                VirtualAdvertisement(manufacturerData: [0xFFFF: [UInt8(number & 255)]]))
            let identifier = identity(number).identifier
            world.simulator.add(phone)
            try await central.next("phone \(number)") {
                if case .discovered(let found, _, _) = $0, found.identifier == identifier { true } else { nil }
            }
            world.simulator.remove(phone)
            world.simulator.forgetDevice(phone)
        }
    }
}
