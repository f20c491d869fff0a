import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

@testable import BluezKitRestore

// In some cases an app's requests were not preserved or resumed: an option that JSON cannot represent stopped the
// preservation of everything, an unusable directory ended the resumption after resets as well, Bluetooth that was off
// at launch was treated as switched off, and each connect, each discovered service and each change of a subscription
// rewrote the whole file. Now all of these work.
@Suite struct PreservationTests {
    private func absent(_ numbers: Range<Int>) -> [UUID] {
        numbers.compactMap { UUID(uuidString: String(format: "426C7A4B-0100-8000-8000-C00000%06X", $0)) }
    }

    @Test("RS-3 D11 an infinite number in the app's options is not preserved, everything else is")
    func infiniteOption() async throws {
        let directory = try TemporaryDirectory()
        let central = Central(try await SimulatedWorld(), options: directory.centralOptions)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        central.manager.connect(
            heart,
            options: [
                "mine": Double.infinity, CBConnectPeripheralOptionNotifyOnConnectionKey: Double.nan,
                CBConnectPeripheralOptionEnableAutoReconnect: true,
            ])
        let content = try String(contentsOfFile: directory.file("app"), encoding: .utf8)
        #expect(content.contains(heart.identifier.uuidString))
        #expect(content.contains("kCBConnectOptionEnableAutoReconnect"))
        #expect(!content.contains("mine") && !content.contains("NotifyOnConnection"))
    }

    @Test("CN-1 D11 the options of a connect to a connected peripheral are preserved")
    func optionsOfConnected() async throws {
        let directory = try TemporaryDirectory()
        let central = Central(try await SimulatedWorld(), options: directory.centralOptions)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        try await central.connect(heart)
        central.manager.connect(heart, options: [CBConnectPeripheralOptionEnableAutoReconnect: true])
        let content = try String(contentsOfFile: directory.file("app"), encoding: .utf8)
        #expect(content.contains("kCBConnectOptionEnableAutoReconnect"))
    }

    @Test("CN-1 a start delay may have any length: nothing traps, and it can be cancelled")
    func longDelays() async throws {
        let central = Central(try await SimulatedWorld())
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        for delay in [Double.greatestFiniteMagnitude, 1e21, .infinity] {
            central.manager.connect(heart, options: [CBConnectPeripheralOptionStartDelayKey: delay])
            #expect(heart.state == .connecting)
            try await central.disconnect(heart)
        }
        central.manager.connect(heart, options: [CBConnectPeripheralOptionStartDelayKey: -Double.infinity])
        try await central.next("connection") { if case .connected(heart) = $0 { true } else { nil } }
    }

    @Test("D10 a restore identifier whose directory cannot be used: the manager still resumes after a reset")
    func unusableDirectory() async throws {
        let world = try await SimulatedWorld()
        let central = Central(
            world,
            options: [
                CBCentralManagerOptionRestoreIdentifierKey: "app",
                BluezManagerOptionStateDirectoryKey: "/proc/nowhere",
            ])
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        try await central.connect(heart)
        try await world.simulator.restartDaemon()
        try await central.next("connection after the reset") { if case .connected(heart) = $0 { true } else { nil } }
    }

    @Test("R-25 RS-17 Bluetooth is off at launch, and resuming after resets is disabled: restored state waits")
    func offAtTheStart() async throws {
        let world = try await SimulatedWorld()
        let directory = try TemporaryDirectory()
        let heart = RestoredApp.heart
        let preserved = """
            {"version":1,"role":"central","identifier":"app","app":"x","boot":"x","saved":"2026-11-22T10:00:00Z",
            "peripherals":[{"identifier":"\(heart)","adapter":"hci0","state":"connecting","isBonded":false,"options":{}}],
            "services":[]}
            """
        try preserved.write(toFile: directory.file("app"), atomically: true, encoding: .utf8)
        world.simulator.setPowered(false)
        let app = RestoredApp(
            world.managerOptions.merging(
                directory.centralOptions.merging([BluezManagerOptionResumeAfterResetKey: false]) { $1 }
            ) { $1 })
        _ = try await app.log.next("restored") { $0 == "restored connecting" ? true : nil }
        _ = try await app.log.next("off") { $0 == "state 4" ? true : nil }
        #expect(try String(contentsOfFile: directory.file("app"), encoding: .utf8).contains(heart))
        // It is found only when it advertises, as after a boot.
        app.scanWhenOn()
        world.simulator.setPowered(true)
        _ = try await app.log.next("connection") { $0 == "connected" ? true : nil }
    }

    @Test("RS-8 R-13 another manager of the process already has the link: subscriptions are restored")
    func subscribedOnSharedLink() async throws {
        let world = try await SimulatedWorld()
        let other = Central(world)
        try await other.powerOn()
        let others = try await other.find("Rig Sink")
        try await other.connect(others)
        _ = try await other.discoverServices(others, nil)
        let directory = try TemporaryDirectory()
        let first = Central(world, options: directory.centralOptions)
        try await first.powerOn()
        let sink = try #require(first.manager.retrievePeripherals(withIdentifiers: [others.identifier]).first)
        try await first.connect(sink)
        let characteristic = try await first.characteristic(sinkUUID(0x13), of: sinkUUID(1), on: sink)
        #expect(try await first.setNotify(true, characteristic) == nil)
        // Killed, as far as the disk knows.
        let copy = try TemporaryDirectory(copying: directory)
        first.release()
        _ = try #require(await world.simulator.waitForCalls("StopNotify"))
        let restored = ProtectedBox<[CBPeripheral]>([])
        let second = Central(
            world, options: copy.centralOptions,
            onRestore: { state in
                let peripherals = state[CBCentralManagerRestoredStatePeripheralsKey] as? [CBPeripheral]
                restored.withLock { $0 = peripherals ?? [] }
            })
        try await second.powerOn()
        #expect(restored.withLock { $0.first?.state } == .connected)
        #expect(await world.simulator.waitForCalls("StartNotify", count: 2) != nil)
        withExtendedLifetime((other, others)) {}
    }

    @Test("D11 a thousand pending connects: the last ones write no more than the first ones")
    func costOfConnects() async throws {
        let directory = try TemporaryDirectory()
        let central = Central(try await SimulatedWorld(), options: directory.centralOptions)
        try await central.powerOn()
        let peripherals = central.manager.retrievePeripherals(withIdentifiers: absent(0..<1000))
        // What this thread writes is what the calls write; the bus has a thread of its own.
        func written() throws -> Int {
            let text = try String(contentsOfFile: "/proc/thread-self/io", encoding: .utf8)
            let line = try #require(text.split(separator: "\n").first { $0.hasPrefix("wchar") })
            return try #require(Int(line.split(separator: " ")[1]))
        }
        func connect(_ some: some Sequence<CBPeripheral>) throws -> Int {
            let before = try written()
            for peripheral in some { central.manager.connect(peripheral) }
            return try written() - before
        }
        _ = try connect(peripherals[..<1])
        let first = try connect(peripherals[1..<11])
        _ = try connect(peripherals[11..<990])
        let last = try connect(peripherals[990...])
        #expect(last > 0 && last < 2 * first, "ten of the first wrote \(first) bytes, the last ten \(last)")
        let preserved = BluezPreservedState.all(options: [BluezManagerOptionStateDirectoryKey: directory.path])
        #expect(preserved.first?.lines.filter { $0.hasPrefix("connecting") }.count == 1000)
        withExtendedLifetime((central, peripherals)) {}
    }

    @Test(
        "D11 a table of 4,000 characteristics: what is written while it is discovered grows with it, not with its square"
    )
    func costOfTable() async throws {
        let directory = try TemporaryDirectory()
        let world = try await SimulatedWorld()
        let services = (0..<40).map { _ in
            VirtualService("F000", (0..<100).map { _ in VirtualCharacteristic("2A56", .read) })
        }
        world.simulator.add(
            VirtualPeripheral("C0:00:00:09:00:20", VirtualAdvertisement(localName: "Large"), services: services))
        let central = Central(world, options: directory.centralOptions)
        try await central.powerOn()
        let peripheral = try await central.find("Large")
        try await central.connect(peripheral)
        // The file is not rewritten meanwhile: it grows by all that is written.
        SnapshotStore.background.suspend()
        defer { SnapshotStore.background.resume() }
        peripheral.discoverServices(nil)
        try await central.next("services", within: 3 * world_deadline) {
            if case .services(peripheral, nil) = $0 { true } else { nil }
        }
        let found = try #require(peripheral.services)
        let file = try FileHandle(forReadingFrom: URL(fileURLWithPath: directory.file("app")))
        for service in found {
            peripheral.discoverIncludedServices(nil, for: service)
            _ = try await central.discoverCharacteristics(service)
        }
        let last = try #require(found.last?.characteristics)
        for characteristic in last { peripheral.discoverDescriptors(for: characteristic) }
        for _ in last { try await central.next("descriptors") { if case .descriptors = $0 { true } else { nil } } }
        // Read by what was open before: the file is still the same one.
        let content = try #require(try file.readToEnd())
        let snapshot = try Snapshot(fileContent: content)
        let record = try #require(snapshot.peripherals[peripheral.identifier]?.services)
        #expect(record.count == 40 && record.allSatisfy { $0.characteristics?.count == 100 })
        #expect(record.allSatisfy { $0.includedServices == [] })
        #expect(record.last?.characteristics?.allSatisfy { $0.descriptors != nil } == true)
        let once = try snapshot.fileContent().count
        #expect(content.count < 3 * once, "\(content.count) bytes were written, and the table takes \(once)")
    }

    @Test("UP-7 D11 a central that toggles its subscription has the state written once a second at most")
    func togglingCentral() async throws {
        let directory = try TemporaryDirectory()
        let world = try await SimulatedWorld()
        let publisher = Publisher(
            world,
            options: [
                CBPeripheralManagerOptionRestoreIdentifierKey: "app",
                BluezManagerOptionStateDirectoryKey: directory.path,
            ])
        try await publisher.powerOn()
        let characteristic = local(0x110, [.read, .notify])
        #expect(try await publisher.add(localService(0x100, [characteristic])) == nil)
        #expect(try await publisher.advertise() == nil)
        try await world.connect()
        SnapshotStore.background.suspend()
        defer { SnapshotStore.background.resume() }
        // Each change is a line.
        func lines() throws -> Int {
            try String(contentsOfFile: directory.path + "/peripheral-app.json", encoding: .utf8).split(separator: "\n")
                .count
        }
        let (before, start) = (try lines(), ContinuousClock.now)
        for _ in 0..<100 {
            try await world.control("central subscribe \(characteristic.uuid.line)")
            _ = try await publisher.nextSubscription()
            try await world.control("central unsubscribe \(characteristic.uuid.line)")
            _ = try await publisher.nextUnsubscription()
        }
        let written = try lines() - before
        // The first one at once, then one in each second that the machine took.
        #expect(written >= 1 && written <= 2 + Int((ContinuousClock.now - start) / .seconds(1)), "\(written) times")
    }

    /// An app that keeps what is restored.
    private final class RestoredApp: NSObject, CBCentralManagerDelegate, @unchecked Sendable {
        // holds: the log is safe; the rest is touched on `queue`
        static let heart = "426C7A4B-0100-8000-8000-F0F1F2000001"
        let log = EventLog<String>()
        private let queue = DispatchQueue(label: "test.restored")
        private var scansWhenOn = false
        private var kept: [CBPeripheral] = []
        private var manager: CBCentralManager?

        init(_ options: [String: Any]) {
            super.init()
            queue.sync { manager = CBCentralManager(delegate: self, queue: queue, options: options) }
        }

        func scanWhenOn() { queue.sync { scansWhenOn = true } }

        func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {
            kept = dict[CBCentralManagerRestoredStatePeripheralsKey] as? [CBPeripheral] ?? []
            for peripheral in kept {
                log.append("restored \(peripheral.state == .connecting ? "connecting" : "other")")
            }
        }

        func centralManagerDidUpdateState(_ central: CBCentralManager) {
            log.append("state \(central.state.rawValue)")
            if scansWhenOn, central.state == .poweredOn { central.scanForPeripherals(withServices: nil) }
        }

        func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
            log.append("connected")
        }
    }
}
