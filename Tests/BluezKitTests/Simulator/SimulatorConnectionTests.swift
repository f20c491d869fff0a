import BluezKitSimulator
import BluezDBus
import Testing

@Suite("Simulator: links and services")
struct SimulatorConnectionTests {
    let hrm = BusClient.heart + "/service000e/char000f"

    @Test("scan, connect, resolve, read, notify, disconnect: in the real daemon's order")
    func wholeLife() async throws {
        let simulator = try await Simulator(clock: SimulatorClock())
        let heart = simulator.add(.rigHeart())
        let client = try await BusClient(simulator.busAddress, clock: simulator.clock)
        try await client.adapter("StartDiscovery")
        #expect(await client.hears("+ dev01 Device1"))
        try await client.adapter("StopDiscovery")
        #expect(await client.hears("hci0: Discovering=false"))
        client.forget()

        try await client.device("Connect")
        #expect(await client.hears("dev01: UUIDs=[5] ServicesResolved=true"))
        #expect(
            client.lines.starts(with: [
                "dev01: Connected=true", "Connect returns", "+ dev01/service0006 GattService1",
                "+ dev01/service0006/char0007 GattCharacteristic1",
                "+ dev01/service0006/char0007/desc0009 GattDescriptor1",
                "+ dev01/service0006/char000a GattCharacteristic1", "+ dev01/service0006/char000c GattCharacteristic1",
                "+ dev01/service000e GattService1", "+ dev01/service000e/char000f GattCharacteristic1",
                "+ dev01/service000e/char000f/desc0011 GattDescriptor1",
            ]), "\(client.lines)")
        #expect(await client.hears("+ dev01 Battery1"))
        client.forget()

        #expect(try await client.read(BusClient.heart + "/service000e/char0012") == [1])
        #expect(client.lines == ["dev01/service000e/char0012: Value=01", "ReadValue returns"])
        client.forget()

        try await client.characteristic(hrm, "StartNotify")
        #expect(client.lines == ["dev01/service000e/char000f: Notifying=true", "StartNotify returns"])
        heart.notify("2A37", [0, 72])
        heart.notify("2A37", [0, 72])
        #expect(await client.hears("dev01/service000e/char000f: Value=0048", count: 2))
        client.forget()

        try await client.device("Disconnect")
        #expect(await client.hears("dev01: Connected=false"))
        #expect(
            client.lines == [
                "- dev01 Battery1", "dev01: ServicesResolved=false", "Disconnect returns", "dev01: Connected=false",
            ])
        client.forget()
        #expect(await client.hears("- dev01 Device1", timeout: .seconds(60)))
        #expect(client.lines.first == "- dev01/service0006/char0007/desc0009 GattDescriptor1")
    }

    // The time limit of an attempt ran while the link was being made: with a slower link than limit, which a test sets
    // to see what its app does in that time, no connect ever ended.
    @Test("a link that takes longer than the limit of an attempt is made; an absent peripheral ends at the limit")
    func slowLink() async throws {
        var timing = SimulatorTiming.fast
        (timing.connectTimeout, timing.linkSetup) = (.milliseconds(20), .seconds(1))
        let simulator = try await Simulator(timing: timing)
        let heart = simulator.add(.rigHeart())
        let client = try await BusClient(simulator.busAddress)
        try await client.adapter("StartDiscovery")
        #expect(await client.hears("+ dev01 Device1"))
        try await client.device("Connect")
        #expect(client.lines.contains("dev01: Connected=true"))
        try await client.device("Disconnect")
        // One that leaves while its link is made is absent.
        let attempt = Task { try await client.device("Connect") }
        _ = await simulator.waitForCalls("Connect", count: 2)
        heart.vanish()
        await #expect(throws: BusError.self) { try await attempt.value }
    }
}
