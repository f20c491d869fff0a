import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

// In some cases an app's requests were not preserved or resumed: an option that JSON cannot represent stopped the
// preservation of everything, an unusable directory ended the resumption after resets as well, Bluetooth that was off
// at launch was treated as switched off, and each connect rewrote the whole file. Now all of these work.
@Suite struct PreservationTests {
    private func options(_ directory: TemporaryDirectory, _ more: [String: Any] = [:]) -> [String: Any] {
        [
            CBCentralManagerOptionRestoreIdentifierKey: "app",
            BluezManagerOptionStateDirectoryKey: directory.path,
        ].merging(more) { $1 }
    }

    private func absent(_ numbers: Range<Int>) -> [UUID] {
        numbers.compactMap { UUID(uuidString: String(format: "426C7A4B-0100-8000-8000-C00000%06X", $0)) }
    }

    @Test("RS-3 D11 an infinite number in the app's options is not preserved, everything else is")
    func infiniteOption() async throws {
        let directory = try TemporaryDirectory()
        let central = Central(try await SimulatedWorld(), options: options(directory))
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
                options(directory, [BluezManagerOptionResumeAfterResetKey: false])
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
        func options(_ directory: TemporaryDirectory) -> [String: Any] {
            [
                CBCentralManagerOptionRestoreIdentifierKey: "shared",
                BluezManagerOptionStateDirectoryKey: directory.path,
            ]
        }
        let first = Central(world, options: options(directory))
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
            world, options: options(copy),
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
        let central = Central(try await SimulatedWorld(), options: options(directory))
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
