import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

/// The computer sleeps and wakes. The virtual machine of the rig cannot, so all of this is proven in the simulator only, with
/// a BlueZ that tells why a link ends (5.83) and with one that does not.
@Suite struct SuspendTests {
    private func makeWorld(tellsReasons: Bool) async throws -> SimulatedWorld {
        let world = try await SimulatedWorld()
        world.simulator.options.tellsReasons = tellsReasons
        return world
    }

    private func isState(_ event: Central.Event) -> Bool { if case .state = event { true } else { false } }

    /// What was on its way from BlueZ has come when this question is answered.
    private func settle(_ central: Central) {
        _ = central.manager.retrieveConnectedPeripherals(withServices: [CBUUID(string: "180D")])
    }

    private func newcomer() -> VirtualPeripheral {
        VirtualPeripheral("F0:00:00:00:00:01", VirtualAdvertisement(localName: "Newcomer", serviceUUIDs: ["1815"]))
    }

    private func nextNewcomer(_ central: Central) async throws {
        try await central.next("newcomer") {
            if case .discovered(let peripheral, _, _) = $0, peripheral.name == "Newcomer" { true } else { nil }
        }
    }

    @Test(
        "CN-9 CN-12 AR-2 AR-4 links end with peripheralDisconnected, once; with auto-reconnect they are back after resume",
        arguments: [false, true])
    func links(tellsReasons: Bool) async throws {
        let world = try await makeWorld(tellsReasons: tellsReasons)
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        let sink = try await central.find("Rig Sink")
        try await central.connect(heart)
        central.manager.connect(sink, options: [CBConnectPeripheralOptionEnableAutoReconnect: true])
        try await central.next("connection") { if case .connected(sink) = $0 { true } else { nil } }
        let notifying = try await central.characteristic(sinkUUID(0x13), of: sinkUUID(1), on: sink)
        #expect(try await central.setNotify(true, notifying) == nil)
        central.forgetRecords()
        try await world.control("rig suspend")
        #expect(!world.heart.isConnected && !world.sink.isConnected)
        var ends: [CBPeripheral: Central.Record] = [:]
        for _ in 0..<2 {
            let record = try await central.nextRecord("didDisconnect") { record -> Central.Record? in
                if case .disconnected = record.event { record } else { nil }
            }
            if case .disconnected(let peripheral, _, _) = record.event { ends[peripheral] = record }
        }
        for (peripheral, isReconnecting) in [(heart, false), (sink, true)] {
            let record = try #require(ends[peripheral])
            guard case .disconnected(_, let reconnects, let error) = record.event else { continue }
            #expect(reconnects == isReconnecting)
            #expect(record.peripheralState == (isReconnecting ? .connecting : .disconnected))
            let failure = try #require(error as? CBError)
            #expect(failure.code == .peripheralDisconnected)
            let underlying = failure.userInfo[NSUnderlyingErrorKey] as? NSError
            let reason = underlying?.userInfo[BluezErrorNameKey] as? String
            #expect((reason == "org.bluez.Reason.Suspend") == tellsReasons)
        }
        #expect(!notifying.isNotifying)
        try await world.control("rig resume")
        try await central.next("connection") { if case .connected(sink) = $0 { true } else { nil } }
        // Attributes are discovered and subscribed to anew.
        let again = try await central.characteristic(sinkUUID(0x13), of: sinkUUID(1), on: sink)
        #expect(try await central.setNotify(true, again) == nil)
        world.sink.notify(again.uuid.uuidString, [7])
        try await central.next("value") { if case .value(again, Data([7]), nil) = $0 { true } else { nil } }
        #expect(!world.heart.isConnected && heart.state == .disconnected)
        #expect(central.count { if case .disconnected = $0 { true } else { false } } == 2)
        #expect(central.count(isState) == 0 && central.manager.state == .poweredOn)
        try await central.connect(heart)
    }

    @Test("D7 CN-2 a pending connect that is under way is called off by the kernel, and completes after resume")
    func pendingConnect() async throws {
        let world = try await makeWorld(tellsReasons: true)
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        world.heart.vanish()
        central.manager.connect(heart)
        _ = await world.simulator.waitForCalls("Connect")
        central.forgetRecords()
        try await world.control("rig suspend")
        world.heart.comeBack()
        // It tries again, and the radio is silent.
        _ = await world.simulator.waitForCalls("Connect", count: 2)
        #expect(heart.state == .connecting && !world.heart.isConnected)
        try await world.control("rig resume")
        try await central.next("connection") { if case .connected(heart) = $0 { true } else { nil } }
        try await central.settle(heart)
        #expect(central.records.count == 2, "the connection and the question after it")
    }

    @Test("SC-4 a scan hears nothing meanwhile, and goes on after resume with no call by the app or to BlueZ")
    func scan() async throws {
        let world = try await makeWorld(tellsReasons: true)
        let central = Central(world)
        try await central.powerOn()
        central.manager.scanForPeripherals(withServices: nil)
        // Heart and sink, which then have nothing new to say.
        for _ in 0..<2 { try await central.next("discovery") { if case .discovered = $0 { true } else { nil } } }
        let before = central.records.count
        try await world.control("rig suspend")
        let newcomer = newcomer()
        world.simulator.add(newcomer)
        newcomer.advertiseOnce()
        settle(central)
        await central.perform {}
        #expect(central.records.count == before && central.manager.isScanning)
        try await world.control("rig resume")
        try await nextNewcomer(central)
        #expect(central.manager.isScanning && central.count(isState) == 1)
        #expect(world.simulator.calls("StartDiscovery").count == 1 && world.simulator.calls("StopDiscovery").isEmpty)
    }

    @Test(
        "AD-3 UP-7 services and advertisement are there after resume: a central subscribes again and is notified",
        arguments: [false, true])
    func published(tellsReasons: Bool) async throws {
        let world = try await makeWorld(tellsReasons: tellsReasons)
        let publisher = Publisher(world)
        try await publisher.powerOn()
        let beat = local(0x41, [.notify])
        try await publisher.add(localService(0x40, [beat]))
        try await publisher.advertise([CBAdvertisementDataLocalNameKey: "Kit"])
        func subscribe() async throws {
            let line = try await world.control("central advertisement \(world.adapterAddress.dropLast(2))")
            #expect(line.contains("name=Kit"))
            try await world.connect()
            try await world.control("central subscribe \(beat.uuid.line)")
            let (_, characteristic) = try await publisher.nextSubscription()
            #expect(characteristic === beat && beat.subscribedCentrals?.count == 1)
        }
        try await subscribe()
        try await world.control("rig suspend")
        let (_, characteristic) = try await publisher.nextUnsubscription()
        #expect(characteristic === beat && beat.subscribedCentrals?.isEmpty == true)
        _ = try await world.nextEvent("end of the link") { $0 == "central disconnected 0x15" }
        await #expect(throws: ControlError.self) {
            try await world.control("central advertisement \(world.adapterAddress.dropLast(2))")
        }
        #expect(publisher.manager.isAdvertising && publisher.manager.state == .poweredOn)
        try await world.control("rig resume")
        try await subscribe()
        #expect(await publisher.perform { $0.updateValue(Data([5]), for: beat, onSubscribedCentrals: nil) })
        _ = try await world.nextEvent("notification") { $0 == "central notified \(beat.uuid.line) 05" }
        #expect(world.simulator.calls("RegisterApplication").count == 1)
        #expect(world.simulator.calls("RegisterAdvertisement").count == 1)
        #expect(publisher.count { if case .state = $0 { true } else { false } } == 1)
    }

    @Test(
        "RS-11 RS-12 AR-2 an app with a restore identifier comes through, and what is preserved is what it then has",
        arguments: [false, true])
    func preserved(tellsReasons: Bool) async throws {
        let world = try await makeWorld(tellsReasons: tellsReasons)
        let stage = try await Scenarios.RestorationScenarios.Stage(world)
        let (heart, sink) = (Scenarios.RestorationScenarios.heart, Scenarios.RestorationScenarios.sink)
        let probe = try await stage.launchBeating()
        try await stage.connect(probe, sink, "reconnect")
        probe.send("scan all")
        try await probe.next("end scan")
        try await world.control("rig suspend")
        try await probe.next("disconnected \(heart)", "reconnecting=false error=7", "disconnected:-")
        try await world.control("rig resume")
        try await probe.next("connected \(sink)", "same=true")
        world.simulator.add(newcomer())
        try await probe.next("discovered", "Newcomer")
        #expect(probe.all.contains { $0.hasPrefix("disconnected \(sink) reconnecting=true error=7") })
        #expect(probe.callbacks.filter { $0 == "state" }.count == 1)
        #expect(probe.callbacks.filter { $0 == "disconnected" }.count == 2)
        try await probe.kill()
        let again = try stage.launch()
        let restored = try await again.next("restored", "scanning=true", "\(sink):connected")
        #expect(!restored.contains(heart))
        try await again.next("state poweredOn")
    }

    @Test("R-12 the computer slept while the app was dead: the link is lost, as told after didUpdateState")
    func asleepWhileDead() async throws {
        let world = try await makeWorld(tellsReasons: true)
        let stage = try await Scenarios.RestorationScenarios.Stage(world)
        let heart = Scenarios.RestorationScenarios.heart
        try await stage.launchBeating().kill()
        try await world.control("rig suspend")
        try await world.control("rig resume")
        let again = try stage.launch()
        try await again.next("restored", "\(heart):connected")
        try await again.next("state poweredOn")
        try await again.next("disconnected \(heart)", "reconnecting=false error=7", "disconnected:-")
        #expect(again.callbacks == ["restored", "state", "disconnected"])
    }
}
