import BluezKitSimulator
import BluezDBus
import Testing

@Suite("Simulator: discovery")
struct SimulatorDiscoveryTests {
    let beacon = VirtualPeripheral(
        "F0:F1:F2:00:00:09",
        VirtualAdvertisement(manufacturerData: [0xFFFF: [1]], flags: nil, isConnectable: true))

    @Test("each client has one session; errors like bluetoothd's")
    func sessions() async throws {
        let simulator = try await Simulator()
        let client = try await BusClient(simulator.busAddress)
        let other = try await BusClient(simulator.busAddress)
        try await client.adapter("StartDiscovery")
        try? await client.adapter("StartDiscovery")
        #expect(client.lines.last == "StartDiscovery fails org.bluez.Error.InProgress Operation already in progress")
        try? await other.adapter("StopDiscovery")
        #expect(other.lines.last == "StopDiscovery fails org.bluez.Error.Failed No discovery started")
        try await other.adapter("StartDiscovery")
        try await client.adapter("StopDiscovery")
        #expect(try await client.property("/org/bluez/hci0", "org.bluez.Adapter1", "Discovering") == .bool(true))
        #expect(simulator.calls("StartDiscovery").count == 3)
        other.leave()  // without a word, as a process that is killed
        #expect(await client.hears("hci0: Discovering=false"))
        simulator.setPowered(false)
        try? await client.adapter("StartDiscovery")
        #expect(client.lines.last == "StartDiscovery fails org.bluez.Error.NotReady Resource Not Ready")
    }

    @Test("without a filter only discoverable devices exist, and small changes of RSSI are not signalled")
    func regularDiscovery() async throws {
        let simulator = try await Simulator()
        simulator.add(beacon).advertise(false)
        let heart = simulator.add(.rigHeart())
        heart.advertise(false)
        let client = try await BusClient(simulator.busAddress)
        try await client.adapter("StartDiscovery")
        beacon.advertiseOnce()
        heart.advertiseOnce(rssi: -50)
        #expect(await client.hears("+ dev01 Device1"))
        heart.advertiseOnce(rssi: -57)
        heart.advertiseOnce(rssi: -58)
        #expect(await client.hears("dev01: RSSI=-58"))
        #expect(!client.lines.contains { $0.contains("dev09") || $0.contains("RSSI=-57") })
    }

    @Test("with a filter everything is signalled; with DuplicateData unchanged data too")
    func filteredDiscovery() async throws {
        var timing = SimulatorTiming.real
        timing.scanRestart = .zero
        let simulator = try await Simulator(timing: timing, clock: SimulatorClock())
        simulator.add(beacon).advertise(false)
        let client = try await BusClient(simulator.busAddress, clock: simulator.clock)
        try await client.adapter("SetDiscoveryFilter", .options(["Transport": .string("le")]))
        try await client.adapter("StartDiscovery")
        beacon.advertiseOnce(rssi: -50)
        #expect(await client.hears("+ dev09 Device1"))
        beacon.advertiseOnce(rssi: -51)
        #expect(await client.hears("dev09: RSSI=-51"))
        try await client.adapter(
            "SetDiscoveryFilter", .options(["Transport": .string("le"), "DuplicateData": .bool(true)]))
        beacon.advertiseOnce(rssi: -52)
        #expect(await client.hears("dev09: RSSI=-52 ManufacturerData={}"))
        try await client.adapter("StopDiscovery")
        try await client.adapter("StartDiscovery")
        beacon.advertiseOnce(rssi: -53)
        #expect(await client.hears("dev09: RSSI=-53 ManufacturerData={}"))
        client.forget()
        try await client.adapter("StopDiscovery")
        #expect(await client.hears("hci0: Discovering=false"))
        #expect(client.lines == ["StopDiscovery returns", "dev09: RSSI gone", "hci0: Discovering=false"])
        #expect(
            await client.hears("- dev09 Device1", timeout: .seconds(60)),
            "a device that was only discovered is removed after a while")
    }

    @Test("a discovery that is to end while another filter takes effect continues, for no client")
    func strandedDiscovery() async throws {
        var timing = SimulatorTiming.fast
        timing.scanRestart = .seconds(60)
        let simulator = try await Simulator(timing: timing)
        let client = try await BusClient(simulator.busAddress)
        try await client.adapter("SetDiscoveryFilter", .options(["Transport": .string("le")]))
        try await client.adapter("StartDiscovery")
        try await client.adapter(
            "SetDiscoveryFilter", .options(["Transport": .string("le"), "DuplicateData": .bool(true)]))
        try? await client.adapter("StopDiscovery")
        #expect(client.lines.last == "StopDiscovery fails org.bluez.Error.InProgress Operation already in progress")
        try? await client.adapter("StopDiscovery")
        #expect(client.lines.last == "StopDiscovery fails org.bluez.Error.Failed No discovery started")
        #expect(try await client.property("/org/bluez/hci0", "org.bluez.Adapter1", "Discovering") == .bool(true))
    }

    // Otherwise a scan heard nothing of a peripheral that was connected as it began, while another program scanned all
    // the time.
    @Test("in a busy world a signal varies, and is reported again")
    func fading() async throws {
        var options = SimulatorOptions()
        var bustle = SimulatorBustle(seed: 1)
        (bustle.phones, bustle.clients) = (0, 0)
        options.bustle = bustle
        options.duplicateFilter = .none
        let simulator = try await Simulator(timing: .fast, options: options)
        simulator.add(beacon).advertise(false)
        let client = try await BusClient(simulator.busAddress)
        try await client.adapter("SetDiscoveryFilter", .options(["Transport": .string("le")]))
        try await client.adapter("StartDiscovery")
        for _ in 0..<20 { beacon.advertiseOnce(rssi: -50) }
        beacon.advertiseOnce(rssi: -90)
        try await eventually("the last one is heard") { client.lines.contains { $0.hasPrefix("dev09: RSSI=-9") } }
        let strengths = client.lines.compactMap { Int($0.trimmingPrefix("dev09: RSSI=")) }.dropLast()
        #expect(strengths.count > 5 && strengths.allSatisfy { (-53 ... -47).contains($0) })
    }

    @Test("a UUID filter of the only client hides other devices; wrong filters are refused")
    func uuidFilter() async throws {
        let simulator = try await Simulator()
        simulator.add(beacon).advertise(false)
        let heart = simulator.add(.rigHeart())
        heart.advertise(false)
        let client = try await BusClient(simulator.busAddress)
        for wrong: [String: Value] in [
            ["Colour": .string("red")], ["RSSI": .string("x")], ["RSSI": .int16(-50), "Pathloss": .uint16(3)],
            ["Transport": .string("wifi")],
        ] {
            try? await client.adapter("SetDiscoveryFilter", .options(wrong))
            #expect(client.lines.last?.contains("org.bluez.Error.InvalidArguments") == true)
        }
        try await client.adapter("SetDiscoveryFilter", .options(["UUIDs": .strings(["180d"])]))
        try await client.adapter("StartDiscovery")
        beacon.advertiseOnce()
        heart.advertiseOnce()
        #expect(await client.hears("+ dev01 Device1"))
        #expect(!client.lines.contains("+ dev09 Device1"))
    }

    @Test("the controller reports an address once in a scan cycle, or every change")
    func duplicates() async throws {
        var timing = SimulatorTiming.fast
        timing.scanCycle = .seconds(3600)
        timing.advertisingInterval = .milliseconds(1)
        let simulator = try await Simulator(timing: timing)
        try await simulator.control("crowd set 20 100")
        let client = try await BusClient(simulator.busAddress)
        try await client.adapter("SetDiscoveryFilter", .options(["Transport": .string("le")]))
        try await client.adapter("StartDiscovery")
        #expect(await client.waits { $0.count { $0.hasPrefix("+ hci0/dev_F0_C0_D0") } == 20 })
        #expect(simulator.reportsSent == 20)
        try await simulator.control("rig duplicates data")
        #expect(await client.waits { $0.count { $0.contains("ManufacturerData={}") } >= 40 })
        try await simulator.control("crowd set 0")
    }
}
