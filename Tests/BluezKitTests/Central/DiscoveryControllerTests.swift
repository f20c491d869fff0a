import BluezDBus
import BluezKitRestore
import Testing

@testable import BluezKit

@Suite struct DiscoveryControllerTests {
    /// A manager that may scan, and Bluetooth is on.
    private func stage(
        modalias: String = "usb:v1D6Bp0246d0542"
    ) async throws -> (script: ScriptedBus, core: CentralManagerCore) {
        let script = try await ScriptedBus {
            var timing = $0
            (timing.scan.retry, timing.scan.longestRetry) = (.milliseconds(1), .milliseconds(4))
            return timing
        }
        script.open()
        try await script.expect("GetAll", at: ScriptedBus.hci0)
            .answer(ScriptedBus.adapter(isPowered: true, modalias: modalias))
        try await script.states.next("power") { $0 == .poweredOn ? true : nil }
        return (script, script.manager())
    }

    private func scan(_ script: ScriptedBus, _ core: CentralManagerCore, _ services: [String]? = nil, token: UInt64 = 1)
    {
        let request = ScanRequest(
            services: services.map { $0.compactMap { AttributeUUID($0) } }, allowsDuplicates: nil,
            solicitedServices: nil)
        script.turn { script.central.carryOut(CentralMessage(request: .startScan(request, token: token)), of: core) }
    }

    private func uuids(_ call: ScriptedBus.Call) -> [String]? {
        guard case .array(_, let uuids)? = call.arguments.first?.dictionaryValue?["UUIDs"]?.unwrapped else {
            return nil
        }
        return uuids.compactMap(\.stringValue)
    }

    /// The discovery starts, and is running.
    private func start(_ script: ScriptedBus, wasDiscovering: Bool = false) async throws {
        try await script.expect("SetDiscoveryFilter", at: ScriptedBus.hci0).answer()
        try await script.expect("Get", "Discovering").answer(.variant(.bool(wasDiscovering)))
        try await script.expect("StartDiscovery", at: ScriptedBus.hci0).answer()
        try await script.settle()
    }

    @Test("a discovery is started when BlueZ has taken the filter, and not before")
    func filterFirst() async throws {
        let (script, core) = try await stage()
        scan(script, core, ["180D"])
        let filter = try await script.expect("SetDiscoveryFilter")
        #expect(uuids(filter) == ["0000180d-0000-1000-8000-00805f9b34fb"])
        try await script.expectNoCall()
        filter.answer()
        try await script.expect("Get", "Discovering").answer(.variant(.bool(false)))
        try await script.expect("StartDiscovery").answer()
        try await script.expectNoCall()
    }

    @Test("if the scan changes while BlueZ sets a filter, only the last filter is set after it")
    func lastWish() async throws {
        let (script, core) = try await stage()
        scan(script, core, ["180D"])
        let first = try await script.expect("SetDiscoveryFilter")
        for service in ["180F", "1801", "180A"] { scan(script, core, [service]) }
        try await script.expectNoCall()
        first.answer()
        try await script.expect("Get", "Discovering").answer(.variant(.bool(false)))
        try await script.expect("StartDiscovery").answer()
        // Devices that were reported already must be reported again.
        try await script.expect("StopDiscovery").answer()
        #expect(uuids(try await script.expect("SetDiscoveryFilter")) == ["0000180a-0000-1000-8000-00805f9b34fb"])
    }

    @Test("a scan that ends before its discovery has started is stopped when that is answered")
    func endsEarly() async throws {
        let (script, core) = try await stage()
        scan(script, core)
        try await script.expect("SetDiscoveryFilter").answer()
        try await script.expect("Get", "Discovering").answer(.variant(.bool(false)))
        let start = try await script.expect("StartDiscovery")
        script.turn { script.central.carryOut(CentralMessage(request: .endScan), of: core) }
        try await script.expectNoCall()
        start.answer()
        try await script.expect("StopDiscovery", at: ScriptedBus.hci0).refuse()
        try await script.expectNoCall()
    }

    // An adapter that said once that it was not ready, and stayed on, was never asked again: isScanning was true, and
    // nothing scanned. And no refusal could be seen. Now every refusal is tried again, and one that lasts is logged.
    @Test("a refused discovery is tried again after a pause, from the filter on, and the log says why, once")
    func refused() async throws {
        let (script, core) = try await stage()
        scan(script, core)
        for _ in 0..<3 {
            try await script.expect("SetDiscoveryFilter").answer()
            try await script.expect("Get", "Discovering").answer(.variant(.bool(false)))
            try await script.expect("StartDiscovery").refuse("InProgress")
        }
        let text = "not ready \(script.address)"
        for _ in 0..<8 { try await script.expect("SetDiscoveryFilter").refuse("NotReady", text) }
        try await LogCapture.shared.expect("BlueZ refuses to scan", text, "org.bluez.Error.NotReady")
        try await start(script)
        #expect(LogCapture.shared.count(text) == 1)
        try await script.expectNoCall()
    }

    @Test("a pause stops the discovery, and its end starts it again, also where BlueZ refuses to stop")
    func pause() async throws {
        let (script, core) = try await stage()
        scan(script, core)
        try await start(script)
        script.turn {
            script.central.discovery.pause(true)
            script.central.discovery.pause(true)
        }
        let stop = try await script.expect("StopDiscovery")
        script.turn { script.central.discovery.pause(false) }
        stop.refuse()
        try await script.expectNoCall()
        script.turn { script.central.discovery.pause(false) }
        try await start(script)
        try await script.expectNoCall()
    }

    @Test(
        "a stop that BlueZ has not carried out, or not answered, is made again",
        arguments: ["InProgress", "org.freedesktop.DBus.Error.NoReply"])
    func stopsAgain(_ error: String) async throws {
        let (script, core) = try await stage()
        scan(script, core)
        try await start(script)
        script.turn { script.central.carryOut(CentralMessage(request: .endScan), of: core) }
        try await script.expect("StopDiscovery").refuse(error)
        try await script.expect("StopDiscovery").answer()
        try await script.expectNoCall()
    }

    @Test("a discovery that BlueZ starts when Bluetooth was off meanwhile is not wanted any longer, and is stopped")
    func stray() async throws {
        let (script, core) = try await stage()
        scan(script, core)
        try await script.expect("SetDiscoveryFilter").answer()
        try await script.expect("Get", "Discovering").answer(.variant(.bool(false)))
        let start = try await script.expect("StartDiscovery")
        for isOn in [false, true] {
            try script.change(ScriptedBus.hci0, BlueZ.adapter, [("Powered", .bool(isOn))])
            try await script.states.next("state") { ($0 == .poweredOn) == isOn ? true : nil }
        }
        try await script.expectNoCall()
        start.answer()
        try await script.expect("StopDiscovery", at: ScriptedBus.hci0).answer()
        try await script.expectNoCall()
    }

    @Test("devices heard by another program's discovery are read once, and unheard ones are left out")
    func joins() async throws {
        let (script, core) = try await stage()
        scan(script, core)
        try await start(script, wasDiscovering: true)
        let (near, far) = (DetachedCentral.identity(1), DetachedCentral.identity(2))
        try await script.expect("GetManagedObjects", at: "/").answer(
            ScriptedBus.objects([
                (ScriptedBus.path(near), ScriptedBus.properties(near, [("RSSI", .int16(-50))])),
                (ScriptedBus.path(far), ScriptedBus.properties(far)),
            ]))
        try await script.expectNoCall()
        script.turn {
            #expect(script.central.store.known(near)?.wasHeard(within: .seconds(1000)) == true)
            #expect(script.central.store.known(far) == nil)
            #expect(core.reportedKinds(of: near) != nil)
        }
    }

    @Test("BlueZ 5.66 is made to forget a device whose services it has lost, but not what a user has set of one")
    func lostServices() async throws {
        let (script, core) = try await stage()
        scan(script, core, ["180D"])
        try await start(script)
        func hear(_ number: Int, _ properties: [(String, Value)] = []) throws {
            let identity = DetachedCentral.identity(number)
            let all = ScriptedBus.properties(identity, [("RSSI", .int16(-50))] + properties)
            try script.add(ScriptedBus.path(identity), BlueZ.device, all)
        }
        try hear(1, [("Alias", .string("Mine"))])
        try await script.expectNoCall()
        try hear(2, [("Alias", .string("Heart")), ("Name", .string("Heart"))])
        try await script.expect("RemoveDevice", at: ScriptedBus.hci0).answer()
        try await script.expect("Get", "Paired", at: ScriptedBus.path(DetachedCentral.identity(2)))
            .answer(.variant(.bool(false)))
        try await script.expectNoCall()
    }

    // Another program that looks for headphones made BlueZ report every computer and television around, which no
    // link of Bluetooth LE can be made to. From 5.78 on BlueZ shows what it has heard over LE.
    @Test(
        "what another program's inquiry of classic Bluetooth finds is not reported before BlueZ hears it over LE",
        arguments: [false, true])
    func inquiry(ranBefore: Bool) async throws {
        let (script, core) = try await stage(modalias: "usb:v1D6Bp0246d0552")
        scan(script, core)
        try await start(script, wasDiscovering: ranBefore)
        let (computer, dual) = (
            DetachedCentral.identity(1, isRandom: false), DetachedCentral.identity(2, isRandom: false)
        )
        let found: [(String, Value)] = [("Class", .uint32(0x5A020C)), ("RSSI", .int16(-50))]
        let flags = ("AdvertisingFlags", Value.bytes([0]))
        let objects: [(path: String, properties: [(String, Value)])] = [
            (ScriptedBus.path(computer), ScriptedBus.properties(computer, found)),
            (ScriptedBus.path(dual), ScriptedBus.properties(dual, found + [flags])),
        ]
        if ranBefore { try await script.expect("GetManagedObjects", at: "/").answer(ScriptedBus.objects(objects)) }
        for object in objects { try script.add(object.path, BlueZ.device, object.properties) }
        try script.change(ScriptedBus.path(computer), BlueZ.device, [("RSSI", .int16(-60))])
        try await script.expectNoCall()
        func isHeard(_ device: DeviceIdentity) -> Bool {
            script.turn {
                core.reportedKinds(of: device) != nil
                    && script.central.store.known(device)?.wasHeard(within: .seconds(1000)) == true
            }
        }
        #expect(isHeard(dual) && !isHeard(computer))
        // It has an advertisement as well.
        try script.change(ScriptedBus.path(computer), BlueZ.device, [flags])
        try await script.expectNoCall()
        #expect(isHeard(computer))
    }

    @Test("what an inquiry finds that was heard over LE before BlueZ forgot it is reported when it is heard again")
    func inquiryAgain() async throws {
        let (script, core) = try await stage(modalias: "usb:v1D6Bp0246d0552")
        scan(script, core)
        try await start(script)
        let phone = DetachedCentral.identity(1, isRandom: false)
        let path = ScriptedBus.path(phone)
        let found = ScriptedBus.properties(phone, [("Class", .uint32(0x5A020C)), ("RSSI", .int16(-50))])
        let flags = ("AdvertisingFlags", Value.bytes([0x1A]))
        try script.add(path, BlueZ.device, found + [flags])
        try script.remove(path, BlueZ.device)
        try script.add(path, BlueZ.device, found)
        try script.change(path, BlueZ.device, [flags])
        try script.change(path, BlueZ.device, [("Name", .string("Phone")), ("RSSI", .int16(-60))])
        try await script.expectNoCall()
        #expect(script.turn { core.reportedKinds(of: phone) } == .name)
    }

    @Test("a BlueZ that does not show what it has heard over LE has every device with a strength reported")
    func olderInquiry() async throws {
        let (script, core) = try await stage()
        scan(script, core)
        try await start(script)
        let television = DetachedCentral.identity(1, isRandom: false)
        let properties = ScriptedBus.properties(television, [("Class", .uint32(0x5A020C)), ("RSSI", .int16(-50))])
        try script.add(ScriptedBus.path(television), BlueZ.device, properties)
        try await script.expectNoCall()
        #expect(script.turn { core.reportedKinds(of: television) } != nil)
    }

    @Test("the answer about what was heard is dropped if the scan has ended meanwhile")
    func joinsTooLate() async throws {
        let (script, core) = try await stage()
        scan(script, core)
        try await start(script, wasDiscovering: true)
        let objects = try await script.expect("GetManagedObjects")
        script.turn { script.central.carryOut(CentralMessage(request: .endScan), of: core) }
        try await script.expect("StopDiscovery").answer()
        let near = DetachedCentral.identity(1)
        objects.answer(
            try ScriptedBus.objects([(ScriptedBus.path(near), ScriptedBus.properties(near, [("RSSI", .int16(-50))]))]))
        try await script.expectNoCall()
        #expect(script.turn { script.central.store.known(near) } == nil)
    }

    @Test("a device of which only a change is known is read once; what it was is not known if BlueZ has removed it")
    func readUnknown() async throws {
        let (script, core) = try await stage()
        scan(script, core)
        try await start(script)
        let (near, gone) = (DetachedCentral.identity(1), DetachedCentral.identity(2))
        for rssi: Int16 in [-50, -51, -52] {
            try script.change(ScriptedBus.path(near), BlueZ.device, [("RSSI", .int16(rssi))])
        }
        let question = try await script.expect("GetAll", at: ScriptedBus.path(near))
        try script.change(ScriptedBus.path(gone), BlueZ.device, [("RSSI", .int16(-60))])
        let other = try await script.expect("GetAll", at: ScriptedBus.path(gone))
        try script.remove(ScriptedBus.path(gone), BlueZ.device)
        try await script.expectNoCall()
        other.answer(.properties(ScriptedBus.properties(gone, [("RSSI", .int16(-60))])))
        question.answer(.properties(ScriptedBus.properties(near, [("RSSI", .int16(-52))])))
        try await script.expectNoCall()
        script.turn {
            #expect(script.central.store.known(near)?.lastRSSI == -52)
            #expect(script.central.store.known(gone) == nil)
        }
    }

    // The rig with BlueZ 5.82: a scan that began as the link of a dead process ended did not report the peripheral for
    // 120 s.
    @Test("a device that is being read is reported though BlueZ removes its battery meanwhile, as after a link")
    func batteryRemoved() async throws {
        let (script, core) = try await stage()
        scan(script, core)
        try await start(script)
        let near = DetachedCentral.identity(1)
        try script.change(ScriptedBus.path(near), BlueZ.device, [("RSSI", .int16(-50))])
        let question = try await script.expect("GetAll", at: ScriptedBus.path(near))
        try script.remove(ScriptedBus.path(near), "org.bluez.Battery1")
        try await script.expectNoCall()
        question.answer(.properties(ScriptedBus.properties(near, [("RSSI", .int16(-50))])))
        try await script.expectNoCall()
        #expect(script.turn { script.central.store.known(near) }?.lastRSSI == -50)
    }
}
