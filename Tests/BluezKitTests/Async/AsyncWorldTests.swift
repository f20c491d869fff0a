import BluezKitSimulator
import CoreBluetooth
import CoreBluetoothAsync
import Foundation
import Synchronization
import Testing

/// Random tasks on the same managers, peripherals and characteristics, which come, go and are cancelled, while the
/// peripheral, Bluetooth and bluetoothd do so as well. Then everything that the API claims is so: for the peripheral,
/// for a central, and in BlueZ.
@Suite struct AsyncWorldTests {
    private static let count = ProcessInfo.processInfo.environment["BLUEZKIT_ASYNC_RUNS"].flatMap { UInt64($0) } ?? 8

    @Test(
        "O-45 many tasks on the same objects: state, services, subscriptions and discovery are what the API claims",
        arguments: 1...count)
    func manyTasks(seed: UInt64) async throws {
        let run = try await AsyncRun(seed: seed, isPreserved: seed.isMultiple(of: 2))
        do {
            for _ in 0..<60 { try await run.step() }
            try await run.settle()
            try await run.compare()
            try await run.end()
        } catch { Issue.record("seed \(seed): \(error)\n\(run.history)") }
    }
}

/// A task that iterates something until it is cancelled, or the sequence ends.
private final class Consumer: Sendable {
    private let state = Mutex((received: 0, hasEnded: false))
    private let task = Mutex<Task<Void, Never>?>(nil)

    init<Element: Sendable>(
        _ make: @escaping @Sendable () async throws -> EventSequence<Element, any Error>
    ) {
        let task = Task { [self] in
            do {
                let sequence = try await make()
                for try await _ in sequence { state.withLock { $0.received += 1 } }
            } catch {}
            state.withLock { $0.hasEnded = true }
        }
        self.task.withLock { $0 = task }
    }

    var received: Int { state.withLock { $0.received } }
    var hasEnded: Bool { state.withLock { $0.hasEnded } }
    func cancel() { task.withLock { $0 }?.cancel() }
}

/// One world, one app, and its tasks.
private final class AsyncRun {
    private let world: SimulatedWorld
    private let directory: TemporaryDirectory
    private var central: CentralManager?
    private var manager: PeripheralManager?
    private var sink: CoreBluetoothAsync.Peripheral?
    private var random: SeededGenerator
    private(set) var history = ""

    private var calls: [(name: String, task: Task<Void, Never>)] = []
    private var values: [Consumer] = []
    private var scans: [Consumer] = []
    private let published = ProtectedBox<[PublishedService]>([])
    private let channels = ProtectedBox<[(psm: CBL2CAPPSM, isEncrypted: Bool)]>([])
    private static let notifying = sinkUUID(0x13).uuidString

    init(seed: UInt64, isPreserved: Bool) async throws {
        world = try await SimulatedWorld(.calm)  // no other program discovers
        directory = try TemporaryDirectory()
        random = SeededGenerator(seed: seed)
        let central = CentralManager(options: Self.options(world, isPreserved ? directory : nil))
        sink = try await Scenarios.AsyncCentralScenarios.find("Rig Sink", sinkUUID(1), central)
        self.central = central
        manager = PeripheralManager(options: Self.options(world, isPreserved ? directory : nil))
    }

    private static func options(_ world: SimulatedWorld, _ directory: TemporaryDirectory?) -> [String: Any] {
        guard let directory else { return world.managerOptions }
        return world.managerOptions.merging([
            CBCentralManagerOptionRestoreIdentifierKey: "app",  // which is the other role's key as well
            BluezManagerOptionStateDirectoryKey: directory.path,
        ]) { $1 }
    }

    private func call(_ name: String, _ body: @escaping @Sendable () async throws -> Void) {
        history += name + "; "
        calls.append((name, Task { try? await body() }))
    }

    private func control(_ line: String) async throws {
        history += "[" + line + "] "
        try await world.control(line)
    }

    /// One thing that a task does, or that happens.
    func step() async throws {
        guard let central, let manager, let sink else { return }
        switch Int.random(in: 0..<26, using: &random) {
        case 0, 1, 2: call("connect") { try await central.connect(sink) }
        case 3: call("cancel connection") { try await central.cancelPeripheralConnection(sink) }
        case 4, 5:
            let isOn = Bool.random(using: &random)
            call("notify \(isOn)") {
                try await sink.setNotifyValue(isOn, for: try await Self.characteristic(0x13, sink))
            }
        case 6: call("slow read") { _ = try await sink.readValue(for: try await Self.characteristic(0x1B, sink)) }
        case 7: call("read") { _ = try await sink.readValue(for: try await Self.characteristic(0x10, sink)) }
        case 8, 9, 10:
            history += "values; "
            values.append(Consumer { sink.values(for: try await Self.characteristic(0x13, sink)) })
        case 11:
            history += "cancel values; "
            values.randomElement(using: &random)?.cancel()
        case 12, 13:
            history += "cancel call; "
            calls.randomElement(using: &random)?.task.cancel()
        case 14:
            history += "scan; "
            let service = Bool.random(using: &random) ? sinkUUID(1).data : sinkUUID(0x999).data
            scans.append(Consumer { central.scanForPeripherals(withServices: [CBUUID(data: service)]) })
        case 15:
            history += "cancel scan; "
            scans.randomElement(using: &random)?.cancel()
        case 16, 17:
            let number = 0x100 + Int.random(in: 0..<4, using: &random)
            call("add \(number)") { [published] in
                let service = try await manager.add(localService(number, [local(number + 0x10, [.read, .notify])]))
                published.withLock { $0.append(service) }
            }
        case 18:
            if let service = published.withLock({ $0 }).randomElement(using: &random) {
                call("remove") { await manager.remove(service) }
            }
        case 19: call("advertise") { try await manager.startAdvertising([CBAdvertisementDataLocalNameKey: "Kit"]) }
        case 20: call("stop advertising") { await manager.stopAdvertising() }
        case 21:
            let isEncrypted = Bool.random(using: &random)
            call("channel \(isEncrypted)") { [channels] in
                let psm = try await manager.publishL2CAPChannel(withEncryption: isEncrypted)
                channels.withLock { $0.append((psm, isEncrypted)) }
            }
        case 22: try? await control("sink disconnect")  // if it is connected
        case 23:
            try await control("sink vanish")
            try await control("sink return")
        case 24: for line in ["off", "on"] { try await control("rig power \(line)") }
        default: for line in ["kill", "start"] { try await control("bluetoothd \(line)") }
        }
        // What was posted before has had its turn, mostly.
        if Bool.random(using: &random) { _ = await central.retrievePeripherals(withIdentifiers: []) }
    }

    private static func characteristic(
        _ number: Int, _ sink: CoreBluetoothAsync.Peripheral
    ) async throws -> Characteristic {
        try await sink.discoverCharacteristic(sinkUUID(number), in: sinkUUID(1))
    }

    /// Waits until nothing is on its way.
    func settle() async throws {
        guard let central, let manager else { return }
        history += "settle"
        try await within {
            for await state in central.states where state == .poweredOn { break }
            for await state in manager.states where state == .poweredOn { break }
        }
        for (name, task) in calls {
            do { try await within { await task.value } } catch { throw Wrong(description: "\(name) does not end") }
        }
    }

    private struct Wrong: Error, CustomStringConvertible { let description: String }

    func compare() async throws {
        guard let central, let manager, let sink else { return }
        // The link.
        try await eventually("the state is that of the link") {
            let isLinked = try await world.saysConnected("F0:F1:F2:00:00:02")
            return sink.state == (isLinked ? .connected : .disconnected)
        }
        // Discovery.
        try await eventually("discovery is there for scans, and for nothing else") {
            world.simulator.isDiscovering() == scans.contains { !$0.hasEnded }
        }
        try await compareSubscriptions(sink)
        try await compareServices(manager)
        try await compareChannels(manager)
        // It can all begin again.
        try await within {
            try await central.connect(sink)
            _ = try await sink.readValue(for: try await Self.characteristic(0x10, sink))
        }
    }

    private func compareSubscriptions(_ sink: CoreBluetoothAsync.Peripheral) async throws {
        guard sink.state == .connected else {
            try await eventually("without a link there are no consumers") { values.allSatisfy(\.hasEnded) }
            return
        }
        let characteristic = try await within { try await Self.characteristic(0x13, sink) }
        try await eventually("the subscription is what the API says, and there for each consumer") {
            let claim = await sink.isNotifying(characteristic)
            return claim == world.sink.isSubscribed(to: Self.notifying) && (claim || values.allSatisfy(\.hasEnded))
        }
        let before = values.map(\.received)
        world.sink.notify(Self.notifying, [1])
        try await eventually("each consumer gets the value") {
            zip(values, before).allSatisfy { $0.hasEnded || $0.received > $1 }
        }
    }

    private func compareServices(_ manager: PeripheralManager) async throws {
        // What can be updated is published.
        var claimed: [String] = []
        for service in published.withLock({ $0 }) {
            do {
                try await within { try await manager.updateValue(Data([1]), for: service.characteristics[0]) }
                claimed.append(service.uuid.line)
            } catch is CBError {}
        }
        var isHeard = false
        try await eventually("isAdvertising is \(!isHeard)") {
            isHeard = (try? await world.control("central advertisement \(world.adapterAddress)")) != nil
            return await manager.isAdvertising == isHeard
        }
        if !isHeard { try await within { try await manager.startAdvertising() } }
        try await world.connect()
        let seen = try await world.control("central services").split(separator: " ").compactMap { entry -> String? in
            let uuid = entry.dropFirst("primary:".count).prefix { $0 != "@" }
            return entry.hasPrefix("primary:bb1e") ? String(uuid) : nil
        }
        guard seen.sorted() == claimed.sorted() else {
            throw Wrong(description: "a central finds \(seen), and the API says \(claimed)")
        }
    }

    private func compareChannels(_ manager: PeripheralManager) async throws {
        // What can be withdrawn was published; what is open is as it was asked for.
        let all = channels.withLock { $0 }
        var open: Set<CBL2CAPPSM> = []
        for psm in Set(all.map(\.psm)) where (try? await world.openChannel(psm)) != nil { open.insert(psm) }
        for psm in Set(all.map(\.psm)) {
            let isPublished =
                (try? await within { try await manager.unpublishL2CAPChannel(psm) }) != nil
            // The last one of that number counts: PSMs are used again.
            let isPlain = all.last { $0.psm == psm }?.isEncrypted == false
            guard open.contains(psm) == (isPublished && isPlain) else {
                throw Wrong(description: "channel \(psm): open \(open.contains(psm)), published \(isPublished)")
            }
        }
        try await world.resetChannels()
    }

    /// Everything ends with the managers.
    func end() async throws {
        for scan in scans { scan.cancel() }  // they keep the manager
        try await eventually("scans have ended") { scans.allSatisfy(\.hasEnded) }
        guard let states = central?.states, let more = manager?.states else { return }
        (central, manager, sink) = (nil, nil, nil)
        calls = []
        try await within {
            for await _ in states {}
            for await _ in more {}
        }
        try await eventually("all consumers have ended") { (values + scans).allSatisfy(\.hasEnded) }
        try await world.awaitConnections("sink", 0)
        try await eventually("nothing discovers") { !world.simulator.isDiscovering() }
    }
}
