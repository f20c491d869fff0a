import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit

/// Many pending connects: one attempt at a time, and devices in range do not wait for absent ones.
@Suite struct PendingConnectTests {
    private func identifier(_ number: Int) throws -> UUID {
        let address = UInt64(0xF000_0000_0000 + number)
        return DeviceIdentity(address: address, isRandom: true).identifier
    }

    // A connect while one was pending did nothing: it waited for the start delay of the earlier one, with that one's
    // options.
    @Test("CN-4 a further connect replaces the start delay and the options of one that is pending")
    func again() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        func connect(delay: Double, reconnects: Bool) {
            central.manager.connect(
                heart,
                options: [
                    CBConnectPeripheralOptionStartDelayKey: delay,
                    CBConnectPeripheralOptionEnableAutoReconnect: reconnects,
                ])
        }
        connect(delay: 1000, reconnects: true)
        connect(delay: 2000, reconnects: true)
        connect(delay: 0, reconnects: false)
        // The attempt is under way: it continues.
        connect(delay: 1000, reconnects: true)
        try await central.next("connection") { if case .connected(heart) = $0 { true } else { nil } }
        _ = try await central.discoverServices(heart)
        try await world.control("heart disconnect")
        try await central.next("a loss that is followed by a new link") {
            if case .disconnected(heart, true, _?) = $0 { true } else { nil }
        }
        try await central.next("connection") { if case .connected(heart) = $0 { true } else { nil } }
        _ = try await central.discoverServices(heart)
        #expect(central.records.filter { if case .connected = $0.event { true } else { false } }.count == 2)
        central.manager.cancelPeripheralConnection(heart)
        connect(delay: 1000, reconnects: false)
        connect(delay: 0.001, reconnects: false)
        try await central.next("connection") { if case .connected(heart) = $0 { true } else { nil } }
    }

    @Test("D7 CN-5 a hundred pending, five in range: the five connect, and no two attempts run at once")
    func hundred() async throws {
        let world = try await SimulatedWorld()
        world.simulator.timing.connectTimeout = .seconds(60)  // an absent device is not given up by BlueZ
        var present: Set<UUID> = []
        for number in 0..<100 {
            let text = DeviceIdentity(address: UInt64(0xF000_0000_0000 + number), isRandom: true).addressText
            let peripheral = VirtualPeripheral(text, VirtualAdvertisement(localName: "P\(number)"), services: [])
            // Half of the absent devices are known to BlueZ, the others never were.
            let isPresent = number % 20 == 7
            if !isPresent { peripheral.vanish() }
            world.simulator.add(peripheral)
            if !isPresent { peripheral.vanish() }
            if isPresent { present.insert(try identifier(number)) }
            if number % 2 == 0 || isPresent { world.simulator.remember(peripheral) }
        }
        let central = Central(world)
        try await central.powerOn()
        let all = central.manager.retrievePeripherals(withIdentifiers: try (0..<100).map(identifier))
        #expect(all.count == 100 && present.count == 5)
        for peripheral in all { central.manager.connect(peripheral) }
        var connected: Set<UUID> = []
        while connected.count < 5 {
            connected.insert(
                try await central.next("connection", within: 60) {
                    if case .connected(let peripheral) = $0 { peripheral.identifier } else { nil }
                })
        }
        #expect(connected == present)
        #expect(central.count { if case .failed = $0 { true } else { false } } == 0)
        for peripheral in all { central.manager.cancelPeripheralConnection(peripheral) }
        for _ in 0..<100 {
            try await central.next("disconnection") { if case .disconnected(_, false, nil) = $0 { true } else { nil } }
        }
        withExtendedLifetime(all) {}  // a released object gets no callbacks
        // An attempt that BlueZ was at may still be ending, of which the app has heard already.
        let session = central.manager.session
        try await eventually("nothing is left of them") {
            session.queue.sync { session.central.connected.isEmpty && session.central.connects.isEmpty }
        }
    }

    // What they cost a processor is measured by `make bench`.
    @Test("D7 a thousand pending connects cause almost no bus traffic while others are heard")
    func thousand() async throws {
        let world = try await SimulatedWorld()
        world.simulator.timing.connectTimeout = .seconds(60)
        for peripheral in [world.heart, world.sink] { peripheral.vanish() }
        let central = Central(world)
        try await central.powerOn()
        let all = central.manager.retrievePeripherals(withIdentifiers: try (0..<1000).map(identifier))
        for peripheral in all { central.manager.connect(peripheral) }
        // Each is asked about once, and then there is nothing to do but to listen.
        for call in ["GetAll", "Introspect"] {
            _ = try #require(
                await world.simulator.waitForCalls(call, count: 1000, timeout: .seconds(60) * Worlds.slowness))
        }
        _ = try #require(await world.simulator.waitForCalls("StartDiscovery"))
        central.manager.scanForPeripherals(withServices: nil)
        _ = try #require(await world.simulator.waitForCalls("StartDiscovery", count: 2))
        world.simulator.forgetCalls()
        // The phones of this world, as they change their addresses: some seconds of what an adapter hears.
        for number in 0..<40 {
            try await central.next("phone \(number)") { if case .discovered = $0 { true } else { nil } }
        }
        #expect(world.simulator.calls.count < 20, "\(world.simulator.calls.map(\.member))")
        #expect(all.allSatisfy { $0.state == .connecting })
    }

    @Test("LX-15 a device object that expires and comes back is connected")
    func expired() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        world.heart.vanish()
        central.manager.connect(heart)
        _ = await world.simulator.waitForCalls("Connect")
        world.simulator.forgetDevice(world.heart)
        _ = await world.simulator.waitForCalls("StartDiscovery", count: 2)
        world.heart.comeBack()
        try await central.next("connection") { if case .connected(heart) = $0 { true } else { nil } }
    }
}
