import BluezKitSimulator
import BluezDBus
import Testing

@Suite("Simulator: private addresses")
struct SimulatorPrivateAddressTests {
    private let identity = "F0:F1:F2:00:00:02"

    private func element(_ address: String) -> String { "dev_" + address.replacing(":", with: "_") }

    @Test("a new device with each address; when bonded it reveals its identity, and keeps its path with every address")
    func addresses() async throws {
        let simulator = try await Simulator()
        let client = try await BusClient(simulator.busAddress)
        try await client.beAgent()
        let first = try await simulator.control("sink private")
        try await client.adapter("StartDiscovery")
        #expect(await client.hears("+ hci0/\(element(first)) Device1"))
        let second = try await simulator.control("sink private")
        #expect(await client.hears("+ hci0/\(element(second)) Device1"))
        let path = "/org/bluez/hci0/" + element(second)
        try await client.device("Pair", path)
        #expect(try await client.property(path, "org.bluez.Device1", "Address") == .string(identity))
        #expect(
            await client.waits { $0.contains { $0.hasPrefix("hci0/\(element(second)): ") && $0.contains("Address=") } })
        try await client.device("Disconnect", path)
        // Once more under another one, and under its own: the controller knows it.
        for line in ["sink private", "sink identity"] {
            try await simulator.control(line)
            try await client.device("Connect", path)
            try await client.device("Disconnect", path)
        }
        let others = simulator.knownDevices().filter { $0 != first }  // that one may be forgotten by now
        #expect(others == [second])
        // The next daemon has it under its identity address, and knows it by that.
        try await simulator.control("sink private")
        try await simulator.restartDaemon(crash: false)
        #expect(simulator.knownDevices() == [identity])
        simulator.setPowered(true)
        try await client.device("Connect", "/org/bluez/hci0/" + element(identity))
    }
}
