import BluezKitSimulator
import BluezDBus
import Testing

@Suite("Simulator: links that fail and end")
struct SimulatorFailureTests {
    /// A simulator with a connected heart rate sensor, and a client.
    static func connected(
        timing: SimulatorTiming? = nil, clock: SimulatorClock = .real
    ) async throws -> (Simulator, VirtualPeripheral, BusClient) {
        let simulator = try await Simulator(timing: timing, clock: clock)
        let heart = simulator.add(.rigHeart())
        let client = try await BusClient(simulator.busAddress, clock: clock)
        client.keeps = simulator
        try await client.adapter("StartDiscovery")
        #expect(await client.hears("+ dev01 Device1"))
        try await client.adapter("StopDiscovery")
        try await client.device("Connect")
        #expect(await client.hears("+ dev01 Battery1"))
        #expect(await client.hears("hci0: Discovering=false"))
        client.forget()
        return (simulator, heart, client)
    }

    @Test("an absent peripheral is refused after the timeout; a second Connect fails at once; Disconnect cancels")
    func absent() async throws {
        let clock = SimulatorClock()
        let simulator = try await Simulator(clock: clock)
        let heart = simulator.add(.rigHeart())
        simulator.remember(heart)
        heart.vanish()
        let client = try await BusClient(simulator.busAddress)
        let other = try await BusClient(simulator.busAddress, clock: clock)
        func connect() -> Task<Void, Never> {
            Task { _ = try? await client.call(BusClient.heart, "org.bluez.Device1", "Connect", deadline: .seconds(60)) }
        }
        let first = connect()
        await simulator.waitForCalls("Connect")
        try? await other.device("Connect")
        #expect(other.lines.last == "Connect fails org.bluez.Error.Failed Operation already in progress")
        try await clock.run { await first.value }
        #expect(client.lines.last == "Connect fails org.bluez.Error.Failed le-connection-abort-by-local")

        let second = connect()
        await simulator.waitForCalls("Connect", count: 3)
        try await other.device("Disconnect")
        try await clock.run { await second.value }
        #expect(client.lines.last == "Connect fails org.bluez.Error.Failed br-connection-canceled")
    }

    @Test("a Connect outlives its caller, and succeeds when the peripheral appears")
    func callerDies() async throws {
        var timing = SimulatorTiming.fast
        timing.connectTimeout = .seconds(30)
        let simulator = try await Simulator(timing: timing)
        let heart = simulator.add(.rigHeart())
        simulator.remember(heart)
        heart.vanish()
        let client = try await BusClient(simulator.busAddress)
        let other = try await BusClient(simulator.busAddress)
        try client.send(BusClient.heart, "org.bluez.Device1", "Connect")
        await simulator.waitForCalls("Connect")
        client.leave()
        heart.comeBack()
        #expect(await other.hears("dev01: Connected=true"))
    }

    @Test("the peripheral ends the link: one signal, then Battery1; reads fail at once; objects are removed later")
    func peripheralDisconnects() async throws {
        let (_, heart, client) = try await Self.connected(clock: SimulatorClock())
        heart.disconnect()
        #expect(await client.hears("- dev01 Battery1"))
        _ = try? await client.characteristic(BusClient.heart + "/service000e/char0012", "ReadValue", .noOptions)
        #expect(
            client.lines.prefix(3) == [
                "dev01: ServicesResolved=false Connected=false", "- dev01 Battery1",
                "ReadValue fails org.bluez.Error.Failed Not connected",
            ])
        #expect(await client.hears("- dev01 Device1", timeout: .seconds(60)))
        #expect(client.lines[3] == "- dev01/service0006/char0007/desc0009 GattDescriptor1")
    }

    @Test("a peripheral out of range loses its link and a pending read, and connects again back in range")
    func vanishes() async throws {
        var timing = SimulatorTiming.fast
        timing.attTimeout = .seconds(3600)
        timing.temporaryTimeout = .seconds(3600)
        let (simulator, heart, client) = try await Self.connected(timing: timing)
        heart.replaceServices([
            VirtualService("180D", [VirtualCharacteristic("2A38", .read, answers: false)])
        ])
        #expect(await client.waits { $0.last == "+ dev01/service000e/char000f GattCharacteristic1" })
        async let read = client.read(BusClient.heart + "/service000e/char000f")
        await simulator.waitForCalls("ReadValue")
        client.forget()
        heart.vanish()
        _ = try? await read
        #expect(
            client.lines.prefix(1) + client.lines.suffix(1) == [
                "dev01: ServicesResolved=false Connected=false",
                "ReadValue fails org.bluez.Error.Failed Operation failed with ATT error: 0x0e",
            ])
        heart.comeBack()
        client.forget()
        try await client.device("Connect")
        #expect(await client.hears("dev01: ServicesResolved=true"))
        #expect(client.lines == ["dev01: Connected=true", "Connect returns", "dev01: ServicesResolved=true"])
    }

    @Test("the daemon is killed: its name is lost and nothing is signalled; devices come back without GATT objects")
    func daemonKilled() async throws {
        let (simulator, heart, client) = try await Self.connected()
        simulator.killDaemon()
        #expect(await client.hears("org.bluez lost"))
        #expect(client.lines == ["org.bluez lost"])
        client.forget()
        try? await client.device("Connect")
        #expect(client.lines.last?.contains("org.freedesktop.DBus.Error.") == true)
        client.forget()
        try await simulator.startDaemon()
        #expect(await client.hears("+ dev01 Device1"))
        #expect(
            client.lines == [
                "org.bluez owned", "+ /org/bluez AgentManager1 ProfileManager1",
                "+ hci0 Adapter1 GattManager1 Media1 NetworkServer1 LEAdvertisingManager1", "+ dev01 Device1",
            ])
        let objects = try await client.objects()
        #expect(objects[BusClient.heart]?["org.bluez.Device1"]?["Connected"] == .bool(false))
        #expect(!objects.keys.contains { $0.contains("service") })
        try await simulator.awaitGone(heart)
        try await client.device("Connect")
        #expect(await client.hears("dev01: ServicesResolved=true"))
    }

    @Test("the daemon is stopped: links end, all objects are removed, then its name")
    func daemonStopped() async throws {
        let (simulator, heart, client) = try await Self.connected()
        simulator.stopDaemon()
        #expect(await client.hears("org.bluez lost"))
        #expect(client.lines.first == "dev01: ServicesResolved=false Connected=false")
        #expect(client.lines.suffix(3).dropLast(1).first?.hasPrefix("- hci0 Adapter1") == true, "\(client.lines)")
        #expect(!heart.isConnected)
        try await simulator.startDaemon()
        #expect(await client.hears("hci0: Powered=true"))
    }

    @Test("the adapter is unplugged while connected, and plugged in again")
    func unplugged() async throws {
        let (simulator, _, client) = try await Self.connected()
        try await simulator.control("rig unplug")
        #expect(await client.waits { $0.last?.hasPrefix("- hci0 Adapter1") == true })
        #expect(
            client.lines.prefix(4) == [
                "hci0: Powered=false", "dev01: ServicesResolved=false Connected=false", "- dev01 Battery1",
                "- dev01/service0006/char0007/desc0009 GattDescriptor1",
            ])
        client.forget()
        try await simulator.control("rig plug")
        #expect(await client.hears("hci0: Powered=true"))
        #expect(client.lines.dropFirst() == ["+ dev01 Device1", "hci0: Powered=true"])
    }

    @Test("power off while connected and discovering: links end, GATT objects stay, the reply, then the adapter")
    func powerOff() async throws {
        var timing = SimulatorTiming.fast
        timing.temporaryTimeout = .seconds(3600)
        let (simulator, _, client) = try await Self.connected(timing: timing)
        simulator.add(.rigSink())
        try await client.adapter("StartDiscovery")
        #expect(await client.hears("+ dev02 Device1"))
        client.forget()
        try await client.call(
            "/org/bluez/hci0", "org.freedesktop.DBus.Properties", "Set", .string("org.bluez.Adapter1"),
            .string("Powered"), .variant(.bool(false)))
        #expect(await client.waits { $0.last == "hci0: Powered=false Discovering=false" })
        #expect(
            client.lines == [
                "- dev02 Device1", "dev01: ServicesResolved=false Connected=false", "- dev01 Battery1", "Set returns",
                "hci0: Powered=false Discovering=false",
            ])
        try? await client.device("Connect")
        #expect(client.lines.last == "Connect fails org.bluez.Error.Failed Input/output error")
        #expect(try await client.objects().keys.contains { $0.contains("char") })
    }
}

extension Simulator {
    /// Waits until the kernel has dropped a crashed daemon's link.
    func awaitGone(_ peripheral: VirtualPeripheral) async throws {
        try await eventually("the link is gone") { !peripheral.isConnected }
    }
}
