import BluezKitRestore
import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit

/// When a manager's app hears what was restored: once, and before anything else.
@Suite struct CentralRestorationTests {
    private static let heart = "/org/bluez/hci0/dev_F0_F1_F2_00_00_01"

    /// An app that says what it hears, in order.
    private final class App: NSObject, CBCentralManagerDelegate {
        let log = EventLog<String>()

        func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {
            let found = dict[CBCentralManagerRestoredStatePeripheralsKey] as? [CBPeripheral] ?? []
            log.append("restored \(found.count)")
        }

        func centralManagerDidUpdateState(_ central: CBCentralManager) { log.append("\(central.state)") }
    }

    /// - Parameter limit: How long the answers may take.
    private func restore(
        _ fault: SimulatorFault.Effect, limit: Duration, meanwhile: (SimulatedWorld) async throws -> Void = { _ in }
    ) async throws -> (events: [String], outcome: BluezRestoration.Outcome?) {
        let world = try await SimulatedWorld(.calm)
        let directory = try TemporaryDirectory()
        let before = Central(world, options: directory.centralOptions)
        try await before.powerOn()
        let peripherals = [try await before.find("Rig Heart"), try await before.find("Rig Sink")]
        for peripheral in peripherals { try await before.connect(peripheral) }
        let heart = peripherals[0].identifier
        // Killed, as far as the disk knows.
        let copy = try TemporaryDirectory(copying: directory)
        let times = ShortTimes(on: world.busAddress) { $0.link.restoration = limit }
        defer { withExtendedLifetime((times, before)) {} }
        let asked = world.simulator.calls("GetAll", path: Self.heart).count
        world.simulator.inject(SimulatorFault("GetAll", path: Self.heart, fault))
        let app = App()
        // Of another session, as in another process.
        let manager = CBCentralManager(
            delegate: app, queue: DispatchQueue(label: "test.restoration"),
            options: world.managerOptions.merging(copy.centralOptions) { $1 }
                .merging([BluezManagerOptionAdapterKey: "hci0"]) { $1 })
        _ = try #require(await world.simulator.waitForCalls("GetAll", path: Self.heart, count: asked + 1))
        try await meanwhile(world)
        try await app.log.next("the state") { $0.hasPrefix("restored") ? nil : true }
        // A late answer, or the end of the time, would be told by now.
        _ = manager.retrieveConnectedPeripherals(withServices: [])
        manager.session.queue.sync {}
        return (app.log.all, manager.restoration?.peripherals.first { $0.identifier == heart }?.outcome)
    }

    @Test("RS-3 an app hears what is restored when BlueZ has told of the last peripheral, and not before")
    func answers() async throws {
        let restored = try await restore(.delay(.milliseconds(100)), limit: .seconds(60))
        #expect(restored.events == ["restored 2", "poweredOn"])
        #expect(restored.outcome == .connected)
    }

    @Test("RS-3 if BlueZ does not answer about a peripheral, the app hears of its restoration after a time limit")
    func isSilent() async throws {
        let restored = try await restore(.ignore, limit: .milliseconds(50))
        #expect(restored.events == ["restored 2", "poweredOn"])
        #expect(restored.outcome == .connecting)
    }

    // BlueZ had two seconds, which a machine that stands still or a peripheral that floods bluetoothd can take: the app
    // got a link that was there as one that is to be made, and its subscriptions were lost. It has ten now.
    // Calm: others would do something in each second that passes.
    @Test("RS-3 a link of which bluetoothd takes five seconds to tell is restored as connected", seesCore)
    func slowAnswer() async throws {
        let world = try await SimulatedWorld(.calm, times: .virtual)
        let directory = try TemporaryDirectory()
        let before = Central(world, options: directory.centralOptions)
        try await before.powerOn()
        let found = try await before.find("Rig Heart")
        try await before.connect(found)
        // Killed, as far as the disk knows.
        let copy = try TemporaryDirectory(copying: directory)
        world.simulator.inject(SimulatorFault("GetAll", path: Self.heart, .delay(.seconds(5))))
        // Of another session, as in another process.
        let (after, _) = try await Central.restored(
            world, options: copy.centralOptions.merging([BluezManagerOptionAdapterKey: "hci0"]) { $1 })
        #expect(after.manager.restoration?.peripherals.map(\.outcome) == [.connected])
        withExtendedLifetime((before, found)) {}
    }

    // After a logout no program could end a link any more: its lease had gone with the session's directory, and a link
    // without one is that of another program. The preserved state says whose it is.
    @Test(
        "CN-7 RS-3 a restored link without a lease is ended by a cancel if it was ours, and only then", seesCore,
        arguments: [true, false])
    func leaseHasGone(isOurs: Bool) async throws {
        let world = try await SimulatedWorld(.calm)
        let directory = try TemporaryDirectory()
        let before = Central(world, options: directory.centralOptions)
        try await before.powerOn()
        let found = try await before.find("Rig Heart")
        try await before.connect(found)
        let session = before.manager.session
        let stack = try #require(session.queue.sync { session.adapter.stackGeneration })
        let name = "\(stack) dev_F0_F1_F2_00_00_01".replacing("/", with: "_")
        let lease = try #require(LinkLease.directory) + "/" + name
        // Killed, as far as the disk knows.
        let copy = try TemporaryDirectory(copying: directory)
        try copy.editState("central-app.json") { $0.peripherals[found.identifier]?.isOurs = isOurs }
        #expect(unlink(lease) == 0)
        // Of another session, as in another process.
        let (after, heart) = try await Central.restored(
            world, options: copy.centralOptions.merging([BluezManagerOptionAdapterKey: "hci0"]) { $1 })
        #expect(heart.state == .connected)
        #expect((access(lease, F_OK) == 0) == isOurs)
        after.manager.cancelPeripheralConnection(heart)
        try await after.next("the end") { if case .disconnected(heart, _, _) = $0 { true } else { nil } }
        try await world.awaitConnections("heart", isOurs ? 0 : 1)
        withExtendedLifetime(before) {}
    }

    @Test("RS-3 an app hears what is restored once, if Bluetooth goes off while BlueZ is asked")
    func goesOff() async throws {
        let restored = try await restore(.ignore, limit: .seconds(60)) { try await $0.control("rig power off") }
        #expect(restored.events == ["restored 2", "poweredOff"])
        #expect(restored.outcome == .connecting)
    }
}
