import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit

// Each manager with pending events had a thread that waited for the app's queue, without a limit if that never ran: no
// main loop, or a suspended queue. A completion handler was lost with its manager. Now the first delivery uses the
// queue, and completions are called even if the manager was released.
@Suite struct DeliveryTests {
    private var threads: Int {
        ((try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/task")) ?? []).count
    }

    @Test("O-45 managers on a queue that does not run leave no threads behind")
    func deadQueue() async throws {
        let world = try await SimulatedWorld()
        let queue = DispatchQueue(label: "test.suspended")
        queue.suspend()
        let before = threads
        for _ in 0..<200 {
            let manager = CBCentralManager(delegate: nil, queue: queue, options: world.managerOptions)
            let session = manager.session
            // The state is known, so there is an event to deliver.
            try await eventually("the state is announced") {
                session.queue.sync { manager.core.announcedState } != .unknown
            }
        }
        #expect(threads < before + 100)
        queue.resume()
    }

    @Test(
        "removeBond calls its completion once, on the queue, even if the manager was released",
        arguments: [true, false])
    func removeBond(isAnswered: Bool) async throws {
        let world = try await SimulatedWorld()
        world.simulator.remember(world.heart, bonded: true)
        let central = Central(world)
        try await central.powerOn()
        let heart = try #require(
            central.manager.retrievePeripherals(withIdentifiers: [
                DeviceIdentity(address: 0xF0F1_F200_0001, isRandom: true).identifier
            ]).first)
        world.simulator.inject(SimulatorFault("RemoveDevice", isAnswered ? .delay(.milliseconds(100)) : .ignore))
        let log = EventLog<Bool>()
        central.manager.removeBond(with: heart) { error in
            log.append(Central.queues.isHere && (error == nil) == isAnswered)
        }
        _ = await world.simulator.waitForCalls("RemoveDevice")
        central.release()
        if !isAnswered { world.simulator.killDaemon() }
        #expect(try await log.next("completion") { $0 })
        #expect(log.all.count == 1)
    }

    @Test("MIS-1 MIS-3 a refused removeBond passes the error to its completion")
    func removeBondRefused() async throws {
        let world = try await SimulatedWorld()
        let (central, other) = (Central(world), Central(world))
        try await central.powerOn()
        try await other.powerOn()
        let heart = try await other.find("Rig Heart")
        let log = EventLog<CBError.Code?>()
        central.manager.removeBond(with: heart) { log.append(($0 as? CBError)?.code) }
        #expect(try await log.next("completion") { $0 } == .invalidParameters)
        world.simulator.setPowered(false)
        try await other.next("off") { if case .state(.poweredOff) = $0 { true } else { nil } }
        other.manager.removeBond(with: heart) { log.append(($0 as? CBError)?.code) }
        #expect(try await log.next("completion") { $0 } == .notConnected)
        #expect(world.simulator.calls("RemoveDevice").isEmpty)
    }

    @Test("CE-1 a released manager is not kept alive while other managers follow connection events")
    func connectionEvents() async throws {
        let world = try await SimulatedWorld()
        let identifiers = [1, 2].map { DeviceIdentity(address: 0xF0F1_F200_0000 + $0, isRandom: true).identifier }
        let central = Central(world)
        try await central.powerOn()
        weak var core: CentralManagerCore?
        try await follow(world, identifiers, central, &core)
        try await eventually("the manager's core is released") { core == nil }
    }

    private func follow(
        _ world: SimulatedWorld, _ identifiers: [UUID], _ central: Central, _ core: inout CentralManagerCore?
    ) async throws {
        let watcher = Central(world)
        try await watcher.powerOn()
        for one in [central, watcher] {
            one.manager.registerForConnectionEvents(options: [.peripheralUUIDs: identifiers])
        }
        try await central.connect(try await central.find("Rig Heart"))
        try await watcher.next("event") { if case .connectionEvent = $0 { true } else { nil } }
        core = watcher.manager.core
        watcher.release()
    }

    @Test("CE-1 a connection to another adapter is not reported to the manager")
    func otherAdapter() async throws {
        let world = try await SimulatedWorld()
        world.simulator.addAdapter(address: "00:B1:5E:00:00:02")
        world.simulator.remember(world.sink, adapter: 1)
        let central = Central(world, options: [BluezManagerOptionAdapterKey: "hci0"])
        try await central.powerOn()
        let identifiers = [1, 2].map { DeviceIdentity(address: 0xF0F1_F200_0000 + $0, isRandom: true).identifier }
        central.manager.registerForConnectionEvents(options: [.peripheralUUIDs: identifiers])
        let heart = try await central.find("Rig Heart")
        try await central.settleQueues()
        let client = try await BusClient(world.simulator.busAddress)
        let path = "/org/bluez/hci1/dev_F0_F1_F2_00_00_02"
        try await eventually("another program has connected") {
            (try? await client.call(path, "org.bluez.Device1", "Connect")) != nil
        }
        try await central.connect(heart)
        central.manager.registerForConnectionEvents(options: nil)
        try await central.settle(heart)
        let seen = central.events.compactMap { if case .connectionEvent(_, let peer) = $0 { peer } else { nil } }
        #expect(!seen.contains { $0.identifier != heart.identifier }, "\(seen)")
    }
}

extension Central {
    /// Waits until what was called has reached the bus queue.
    fileprivate func settleQueues() async throws {
        manager.session.queue.sync {}
        await perform {}
    }
}
