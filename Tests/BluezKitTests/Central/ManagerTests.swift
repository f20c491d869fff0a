import BluezDBus
import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

/// State, queues and delivery of `CBCentralManager`.
@Suite struct ManagerTests {
    final class Delegate: NSObject, CBCentralManagerDelegate, @unchecked Sendable {  // holds: constants
        let log = EventLog<String>()
        func centralManagerDidUpdateState(_ central: CBCentralManager) {
            let isMain = DispatchQueue.getSpecific(key: onMain) == true
            log.append("state \(central.state.rawValue) main \(isMain)")
        }
        private let onMain = DispatchSpecificKey<Bool>()
        override init() {
            super.init()
            DispatchQueue.main.setSpecific(key: onMain, value: true)
        }
    }

    @Test("O-1 O-2 ST-1 init returns before any callback; unknown until the first, which is didUpdateState")
    func startsUnknown() async throws {
        let world = try await SimulatedWorld()
        let queue = DispatchQueue(label: "test")
        queue.suspend()
        let central = Central(world, queue: queue)
        _ = try #require(await world.simulator.waitForCalls("GetAll"))
        #expect(central.manager.state == .unknown && central.records.isEmpty)
        queue.resume()
        try await central.powerOn()
        guard case .state(.poweredOn)? = central.events.first else {
            Issue.record("first callback: \(central.events)")
            return
        }
    }

    @Test("O-3 MOD-6 a delegate set after init gets the first state; a released one gets nothing")
    func lateDelegate() async throws {
        let world = try await SimulatedWorld()
        let queue = DispatchQueue(label: "test")
        queue.suspend()
        let manager = CBCentralManager(delegate: nil, queue: queue, options: world.managerOptions)
        let delegate = Delegate()
        manager.delegate = delegate
        queue.resume()
        _ = try await delegate.log.next("state") { $0.hasPrefix("state 5") ? true : nil }
        var gone: Delegate? = Delegate()
        manager.delegate = gone
        gone = nil
        #expect(manager.delegate == nil)
    }

    @Test("DL-1 R-28 queue nil means the main queue")
    func mainQueue() async throws {
        let world = try await SimulatedWorld()
        let delegate = Delegate()
        let manager = CBCentralManager(delegate: delegate, queue: nil, options: world.managerOptions)
        _ = try await delegate.log.next("state") { $0 == "state 5 main true" ? true : nil }
        withExtendedLifetime(manager) {}  // optimized code would release it after its last use
    }

    @Test("O-4 DL-1 DL-2 every callback is made on the manager's queue, one at a time, also with a concurrent queue")
    func concurrentQueue() async throws {
        let world = try await SimulatedWorld()
        let queue = DispatchQueue(label: "test.concurrent", attributes: .concurrent)
        let central = Central(world, queue: queue, watch: ContractWatch(isQueueConcurrent: true))
        try await central.powerOn()
        let sink = try await central.find("Rig Sink")
        try await central.connect(sink)
        let characteristic = try await central.characteristic(sinkUUID(0x13), of: sinkUUID(1), on: sink)
        #expect(try await central.setNotify(true, characteristic) == nil)
        for n in 0..<500 { world.sink.notify(characteristic.uuid.uuidString, [UInt8(n & 255)]) }
        for n in 0..<500 {
            try await central.next("value \(n)") { if case .value = $0 { true } else { nil } }
        }
        #expect(central.records.allSatisfy { $0.wasOnQueue && $0.depth == 1 })
        let values = central.events.compactMap { if case .value(_, let value?, _) = $0 { value.first } else { nil } }
        #expect(values == (0..<500).map { UInt8($0 & 255) })
    }

    @Test("O-5 DL-2 DL-3 commands issued inside a callback never lead to a nested one")
    func neverNested() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world) { central, event in
            switch event {
            case .state(.poweredOn):
                central.manager.scanForPeripherals(withServices: nil)
                central.manager.stopScan()
                central.manager.scanForPeripherals(withServices: nil)
            case .discovered(let peripheral, _, _) where peripheral.name == "Rig Sink":
                central.keep(peripheral)
                central.manager.connect(peripheral)
                central.manager.cancelPeripheralConnection(peripheral)
                central.manager.connect(peripheral)
            case .connected(let peripheral):
                peripheral.discoverServices(nil)
                peripheral.readRSSI()
            default: break
            }
        }
        try await central.next("services") { if case .services = $0 { true } else { nil } }
        #expect(central.records.allSatisfy { $0.depth == 1 })
    }

    @Test("DL-5 MIS-17 commands from many threads at once do no harm")
    func manyThreads() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        let sink = try await central.find("Rig Sink")
        central.watch.stop()  // the order of these calls is undefined, so the expected callbacks are too
        DispatchQueue.concurrentPerform(iterations: 8) { thread in
            for n in 0..<100 {
                switch (thread + n) % 7 {
                case 0: central.manager.scanForPeripherals(withServices: nil)
                case 1: central.manager.stopScan()
                case 2: central.manager.connect(sink)
                case 3: central.manager.cancelPeripheralConnection(sink)
                case 4: sink.discoverServices(nil)
                case 5: _ = central.manager.retrievePeripherals(withIdentifiers: [sink.identifier])
                default: sink.delegate = n % 2 == 0 ? central : nil
                }
            }
        }
        sink.delegate = central
        central.manager.stopScan()
        // Whichever was the last request, it is carried out; and then the next one.
        while sink.state != .connected {
            if sink.state == .disconnected { central.manager.connect(sink) }
            try await central.next("a change") {
                switch $0 {
                case .connected, .disconnected: true
                default: nil
                }
            }
        }
        _ = try await central.discoverServices(sink)
    }

    @Test("DL-7 O-45 CN-15 releasing a manager ends its scan and its links, without a callback")
    func releases() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        try await central.connect(heart)
        central.manager.scanForPeripherals(withServices: nil)
        _ = await world.simulator.waitForCalls("StartDiscovery", count: 2)
        let manager = Weak(central.manager)
        let count = central.records.count
        central.release()
        #expect(manager.object == nil)
        _ = await world.simulator.waitForCalls("StopDiscovery", count: 2)
        try await world.awaitConnections("heart", 0)
        #expect(central.records[count...].allSatisfy { if case .discovered = $0.event { true } else { false } })
        #expect(central.count { if case .disconnected = $0 { true } else { false } } == 0)
    }

    @Test(
        "O-18 O-19 ST-2 ST-3 ST-4 CN-12 power off: one callback; scan, links and attempts gone inside it; on again: handles work"
    )
    func powerOff() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        let sink = try await central.find("Rig Sink")
        try await central.connect(heart)
        _ = try await central.discoverServices(heart)
        world.sink.vanish()
        central.manager.connect(sink)
        central.manager.scanForPeripherals(withServices: nil)
        let states = ProtectedBox<[(CBPeripheralState, CBPeripheralState, Bool, Bool)]>([])
        central.observeStates { [states] in
            states.withLock { $0.append((heart.state, sink.state, heart.services == nil, central.manager.isScanning)) }
        }
        world.simulator.setPowered(false)
        try await central.next("powered off") { if case .state(.poweredOff) = $0 { true } else { nil } }
        let seen = try #require(states.withLock { $0.first })
        #expect(seen.0 == .disconnected && seen.1 == .disconnected && seen.2 && !seen.3)
        #expect(central.count { if case .disconnected = $0 { true } else { false } } == 0)
        world.simulator.setPowered(true)
        try await central.powerOn()
        #expect(!central.manager.isScanning && heart.state == .disconnected)
        #expect(central.count { if case .state(.poweredOff) = $0 { true } else { false } } == 1)
        try await central.connect(heart)
        #expect(try await central.discoverServices(heart).count == 3)
    }

    @Test(
        "O-44 ST-6 MIS-3 bluetoothd restarts: resetting, then powered on; no disconnect callbacks; old handles are refused"
    )
    func daemonRestart() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        try await central.connect(heart)
        world.simulator.killDaemon()
        try await central.next("resetting") { if case .state(.resetting) = $0 { true } else { nil } }
        #expect(heart.state == .disconnected)
        try await world.simulator.startDaemon()
        try await central.powerOn()
        #expect(central.count { if case .disconnected = $0 { true } else { false } } == 0)
        central.manager.connect(heart)
        #expect(heart.state == .disconnected)
        let again = try #require(central.manager.retrievePeripherals(withIdentifiers: [heart.identifier]).first)
        #expect(again !== heart)
        try await central.connect(again)
    }

    @Test("ST-6 the adapter is unplugged and plugged: resetting, then powered on")
    func replug() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        world.simulator.unplugAdapter()
        try await central.next("resetting") { if case .state(.resetting) = $0 { true } else { nil } }
        world.simulator.plugAdapter()
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        try await central.connect(heart)
    }

    @Test("ST-1 ST-6 no adapter: unsupported, after a grace period; no bus: unsupported as well")
    func unsupported() async throws {
        let simulator = try await Simulator(options: .busy, adapterAddresses: [])
        let nowhere = "unix:path=/nonexistent/\(UUID().uuidString)"
        let times = [simulator.address, nowhere].map { ShortTimes(on: BusAddress($0)) }
        defer { withExtendedLifetime(times) {} }
        let central = Central(OptionsWorld([BluezManagerOptionBusAddressKey: simulator.address]))
        try await central.next("unsupported") { if case .state(.unsupported) = $0 { true } else { nil } }
        let lost = Central(OptionsWorld([BluezManagerOptionBusAddressKey: nowhere]))
        try await lost.next("unsupported") { if case .state(.unsupported) = $0 { true } else { nil } }
        #expect(lost.events.count == 1)
    }

    @Test("ST-1 access denied by the bus: unauthorized; authorization says so")
    func unauthorized() async throws {
        let world = try await SimulatedWorld()
        world.simulator.inject(.accessDenied)
        let central = Central(world)
        try await central.next("unauthorized") { if case .state(.unauthorized) = $0 { true } else { nil } }
    }

    @Test("the first adapter that is powered is used; an option names another")
    func adapters() async throws {
        let simulator = try await Simulator(
            options: .busy, adapterAddresses: ["00:B1:5E:00:00:01", "00:B1:5E:00:00:02"])
        simulator.setPowered(false, adapter: 0)
        let world = OptionsWorld([BluezManagerOptionBusAddressKey: simulator.address])
        let central = Central(world)
        try await central.powerOn()
        central.manager.scanForPeripherals(withServices: nil)
        #expect(await simulator.waitForCalls("StartDiscovery", path: "/org/bluez/hci1") != nil)
        let first = Central(world, options: [BluezManagerOptionAdapterKey: "hci0"])
        try await first.next("powered off") { if case .state(.poweredOff) = $0 { true } else { nil } }
    }

    @Test("O-20 SC-13 RT-4 MIS-1 commands before power-on have no effect, now or later")
    func beforePowerOn() async throws {
        let world = try await SimulatedWorld()
        let queue = DispatchQueue(label: "test")
        queue.suspend()
        let central = Central(world, queue: queue)
        central.manager.scanForPeripherals(withServices: nil)
        central.manager.stopScan()
        #expect(!central.manager.isScanning)
        let identifier = UUID(uuidString: "426C7A4B-0100-8000-8000-F0F1F2000001")
        #expect(central.manager.retrievePeripherals(withIdentifiers: [try #require(identifier)]).isEmpty)
        #expect(central.manager.retrieveConnectedPeripherals(withServices: [CBUUID(string: "180D")]).isEmpty)
        queue.resume()
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        #expect(world.simulator.calls("StartDiscovery").count == 1)
        world.simulator.setPowered(false)
        try await central.next("powered off") { if case .state(.poweredOff) = $0 { true } else { nil } }
        central.manager.connect(heart)
        #expect(heart.state == .disconnected)
        try await LogCapture.shared.expect("misuse", "can only accept this command while in the powered on state")
    }
}

/// Any BlueZ.
struct OptionsWorld: World {
    let address: [String: String]
    init(_ options: [String: String]) { address = options }
    var managerOptions: [String: Any] { address }
    var connectTimeout: Double { 0 }
}

/// A value under a lock.
final class ProtectedBox<Value>: @unchecked Sendable {  // holds: touched only under `lock`
    private let lock = NSLock()
    private var value: Value
    init(_ value: Value) { self.value = value }
    func withLock<R>(_ body: (inout Value) -> R) -> R { lock.withLock { body(&value) } }
}
