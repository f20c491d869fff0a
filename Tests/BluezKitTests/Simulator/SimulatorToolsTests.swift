import BluezKitSimulator
import BluezDBus
import Foundation
import Testing

// Centrals from the seventh on had addresses such as F0:F1:F2:00:00:012, and the channels that they opened were
// refused.
@Suite struct SimulatedCentralTests {
    @Test("each simulated central has a valid address of its own")
    func addresses() async throws {
        let simulator = try await Simulator()
        let addresses = (1...200).map { simulator.central($0).address }
        #expect(Set(addresses).count == 200)
        #expect(addresses.allSatisfy { $0.wholeMatch(of: /F0:F1:F2:00:00:[0-9A-F]{2}/) != nil })
    }
}

@Suite("Simulator: control, faults, scale, independent clients")
struct SimulatorToolsTests {
    @Test("faults affect the calls they name, once or always")
    func faults() async throws {
        let simulator = try await Simulator()
        let client = try await BusClient(simulator.busAddress)
        simulator.inject(SimulatorFault("StartDiscovery", .fail(name: "org.bluez.Error.Failed", message: "no")))
        try? await client.adapter("StartDiscovery")
        #expect(client.lines.last == "StartDiscovery fails org.bluez.Error.Failed no")
        try await client.adapter("StartDiscovery")
        simulator.inject(SimulatorFault("org.bluez.Adapter1.StopDiscovery", .ignore))
        await #expect(throws: BusError.timedOut) {
            try await client.call(
                "/org/bluez/hci0", "org.bluez.Adapter1", "StopDiscovery", deadline: .milliseconds(50))
        }
        simulator.inject(SimulatorFault("StopDiscovery", .delay(.milliseconds(20))))
        try await client.adapter("StopDiscovery")
        simulator.inject(.accessDenied)
        try? await client.adapter("StartDiscovery")
        #expect(client.lines.last?.contains("org.freedesktop.DBus.Error.AccessDenied") == true)
        simulator.clearFaults()
        try simulator.emit(
            path: BusClient.heart, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged",
            arguments: [.string("org.bluez.Device1"), .properties([("RSSI", .string("loud"))]), .strings([])])
        #expect(await client.hears("dev01: RSSI=loud"))
    }

    @Test("control lines answer as the rig does")
    func control() async throws {
        let simulator = try await Simulator()
        #expect(try await simulator.control("heart state") == "connections=[] advertising=1")
        try await simulator.control("heart advertise off")
        #expect(try await simulator.control("heart state") == "connections=[] advertising=0")
        #expect(try await simulator.control("sink value 0010") == "68656c6c6f")
        #expect(try await simulator.control("rig reports") == "0")
        for wrong in [
            "heart", "lung beat 2", "heart fly", "sink value 0099", "rig duplicates some", "heart disconnect",
        ] {
            await #expect(throws: ControlError.self) { try await simulator.control(wrong) }
        }
    }

    @Test("a burst arrives whole, in order")
    func burst() async throws {
        let (simulator, _, client) = try await SimulatorGATTTests.connected()
        try await client.characteristic(BusClient.sink + "/service0011/char001b", "StartNotify")
        client.forget()
        try await simulator.control("sink burst 0013 500 20")
        #expect(await client.waits { $0.count == 500 })
        #expect(client.lines.last?.hasSuffix("Value=f301000000000000000000000000000000000000") == true)
    }

    @Test("two adapters are independent")
    func adapters() async throws {
        let simulator = try await Simulator()
        #expect(simulator.addAdapter(address: "00:B1:5E:00:00:02") == 1)
        let client = try await BusClient(simulator.busAddress)
        try await eventually("the adapter is on") {
            try await client.property("/org/bluez/hci1", "org.bluez.Adapter1", "Powered") == .bool(true)
        }
        try await client.call("/org/bluez/hci1", "org.bluez.Adapter1", "StartDiscovery")
        let xml = try await client.call("/org/bluez", "org.freedesktop.DBus.Introspectable", "Introspect")
        #expect(xml.first?.stringValue?.contains("<node name=\"hci1\"/>") == true)
        #expect(try await client.property("/org/bluez/hci0", "org.bluez.Adapter1", "Discovering") == .bool(false))
        simulator.unplugAdapter(1)
        #expect(await client.waits { $0.contains { $0.hasPrefix("- hci1 Adapter1") } })
    }

    @Test("10,000 known devices are created and listed: in a debug build 1,000")
    func crowd() async throws {
        let simulator = try await Simulator()
        let client = try await BusClient(simulator.busAddress)
        let count = thorough(10_000)
        simulator.addKnownDevices(count)
        let reply = try await client.call("/", "org.freedesktop.DBus.ObjectManager", "GetManagedObjects")
        guard case .dictionary(_, _, let entries) = reply.first else { throw BusError.malformed("no objects") }
        #expect(entries.count == count + 2)
    }

    // Slow: bluetoothctl waits for its time limit, a second, in each of seven runs.
    @Test(
        "bluetoothctl works unchanged",
        .enabled(if: BluetoothControl.isInstalled, "not run: bluetoothctl is not installed (package bluez)"))
    func bluetoothctl() async throws {
        let simulator = try await Simulator()
        try await simulator.control("heart state")
        let tool = BluetoothControl(address: simulator.busAddress)
        func says(_ text: String, _ words: String...) async throws {
            let said = try await tool.run(words, until: text)
            #expect(said.lowercased().contains(text.lowercased()), "\(words): \(said)")
        }
        try await says("Controller 00:B1:5E:00:00:01", "show")
        try await says("Discovery started", "scan", "on")
        let heart = VirtualPeripheral.rigHeart().address
        simulator.timing.temporaryTimeout = .seconds(60)
        try await says("Device \(heart)", "scan", "on")
        try await says("Device \(heart) Rig Heart", "devices")
        try await says("Connection successful", "connect", heart)
        try await says("Connected: yes", "info", heart)
        try await says("Heart Rate", "info", heart)
        // Later versions say: Disconnection successful.
        try await says("successful", "disconnect", heart)
    }
}

/// BlueZ's own command-line client, against a bus.
struct BluetoothControl {
    let address: BusAddress

    static var isInstalled: Bool { FileManager.default.isExecutableFile(atPath: "/usr/bin/bluetoothctl") }

    /// What it says, with longer and longer time limits until it says `text`.
    func run(_ arguments: [String], until text: String) async throws -> String {
        var said = ""
        for limit in [1, 2, 4, 8] {
            said = try await run(arguments, limit: limit)
            if said.lowercased().contains(text.lowercased()) { break }
        }
        return said
    }

    private func run(_ arguments: [String], limit: Int) async throws -> String {
        let process = Process(), output = Pipe()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/bluetoothctl")
        process.arguments = ["--timeout", String(limit)] + arguments
        process.environment = ProcessInfo.processInfo.environment.merging(
            ["DBUS_SYSTEM_BUS_ADDRESS": address.rawValue]) { $1 }
        process.standardOutput = output
        process.standardError = output
        process.standardInput = FileHandle.nullDevice
        return try await withCheckedThrowingContinuation { continuation in
            DispatchQueue.global().async {
                do {
                    try process.run()
                    // Its own limit is shorter.
                    DispatchQueue.global().asyncAfter(deadline: .now() + world_deadline) {
                        if process.isRunning { kill(process.processIdentifier, SIGKILL) }
                    }
                    let data = output.fileHandleForReading.readDataToEndOfFile()
                    process.waitUntilExit()
                    continuation.resume(returning: String(decoding: data, as: UTF8.self))
                } catch {
                    continuation.resume(throwing: error)
                }
            }
        }
    }
}
