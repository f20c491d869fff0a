import BluezKitSimulator
import BluezDBus
import Foundation
import Testing

/// bluetoothd's peripheral role. What is expected here was seen with 5.66 in the rig: Docs/BLUETOOTHD-SERVER.md.
@Suite("Simulator: peripheral role")
struct SimulatorServerTests {
    static let adapter = "00:B1:5E:00:00:01"

    struct Setting {
        let simulator: Simulator
        let app: BusServer
        let events: EventLog<String>

        func central(_ line: String, _ name: String = "central") async throws -> String {
            try await simulator.control("\(name) \(line)")
        }

        /// The answer, or what was answered instead.
        func outcome(_ line: String, _ name: String = "central") async -> String {
            do { return try await central(line, name) } catch { return "error \(error)" }
        }

        func hears(_ line: String, _ location: SourceLocation = #_sourceLocation) async {
            #expect(await app.client.hears("<- " + line), "\(app.client.lines)", sourceLocation: location)
        }
    }

    /// An application that is registered and advertised, and a central that is connected.
    static func connected(_ build: (BusServer) throws -> Void) async throws -> Setting {
        let setting = try await registered(build)
        _ = try await setting.central("connect \(adapter)/P")
        setting.app.client.forget()
        return setting
    }

    static func registered(_ build: (BusServer) throws -> Void) async throws -> Setting {
        let simulator = try await Simulator()
        let events = EventLog<String>()
        simulator.onEvent { events.append($0) }
        let app = try await BusServer(simulator.busAddress)
        try app.service("/app/s", "180f")
        try build(app)
        try await app.register()
        try await app.advertise(["Type": .string("peripheral"), "LocalName": .string("Test")])
        return Setting(simulator: simulator, app: app, events: events)
    }

    @Test("reads: options, blobs, permissions, and silence that ends with 0x0E")
    func reads() async throws {
        let long = (0..<600).map { UInt8($0 & 255) }
        let setting = try await Self.connected { app in
            try app.characteristic("/app/s/a", "2a19", ["read"], [100])
            try app.characteristic("/app/s/b", "2a38", ["read"], long)
            try app.characteristic("/app/s/c", "2a39", ["write"])
            try app.characteristic("/app/s/d", "2a37", ["notify"])
            try app.characteristic("/app/s/e", "2a3a", ["read"])
            try app.descriptor("/app/s/a/d", "2901", ["read"], [7])
            app.ignore("/app/s/e")
        }
        #expect(try await setting.central("read 2a19") == "64")
        await setting.hears("/app/s/a ReadValue device=04 link=LE mtu=517")
        #expect(try await setting.central("read 2a38").count == 1024)
        #expect(setting.app.client.lines.count { $0.contains("/app/s/b") } == 1, "512 bytes fit into one answer")
        #expect(
            try await setting.central("readat 2a38 510") == "feff"
                + long[512...].map { String(format: "%02x", $0) }.joined())
        await setting.hears("/app/s/b ReadValue device=04 offset=510 link=LE mtu=517")
        #expect(await setting.outcome("read 2a39") == "error att 0x02")
        #expect(try await setting.central("read 2a37") == "", "flags that name no access allow all")
        #expect(try await setting.central("readdescriptor 2a19 2901") == "07")
        setting.simulator.timing.applicationTimeout = .milliseconds(50)
        #expect(await setting.outcome("read 2a3a") == "error att 0x0e")
        setting.simulator.timing.applicationTimeout = .seconds(20)
        _ = try await setting.central("disconnect")
        _ = try await setting.central("connect \(Self.adapter) 23")
        #expect(try await setting.central("read 2a38").count == 1024)
        await setting.hears("/app/s/b ReadValue device=04 offset=506 link=LE mtu=23")
    }

    @Test("writes: requests, commands, long ones, reliable ones; 510 bytes is the most")
    func writes() async throws {
        let setting = try await Self.connected { app in
            try app.characteristic("/app/s/a", "2a19", ["read", "write"])
            try app.characteristic("/app/s/b", "2a38", ["write", "write-without-response"])
            try app.characteristic("/app/s/c", "2a39", ["write", "reliable-write"])
            try app.characteristic("/app/s/d", "2a3a", ["write", "authorize"])
            try app.characteristic("/app/s/e", "2a3b", ["read"])
        }
        _ = try await setting.central("write 2a19 0102")
        await setting.hears("/app/s/a WriteValue 0102 device=04 link=LE mtu=517")
        #expect(try await setting.central("read 2a19") == "0102")
        let byte = "ab"
        #expect(await setting.outcome("write 2a19 \(String(repeating: byte, count: 510))") == "")
        #expect(await setting.outcome("write 2a19 \(String(repeating: byte, count: 511))") == "error att 0x0d")
        #expect(await setting.outcome("writelong 2a19 \(String(repeating: byte, count: 508))") == "")
        #expect(await setting.outcome("writelong 2a19 \(String(repeating: byte, count: 509))") == "error att 0x0d")
        #expect(await setting.outcome("write 2a3b 01") == "error att 0x03")
        setting.app.refuse("/app/s/b", "org.bluez.Error.NotPermitted")
        #expect(await setting.outcome("write 2a38 03") == "", "acknowledged at once")
        await setting.hears("/app/s/b WriteValue 03 device=04 link=LE mtu=517")
        #expect(try await setting.central("preparewrite 2a19 0 0102") == "0 0102")
        _ = try await setting.central("preparewrite 2a19 2 03")
        _ = try await setting.central("execute 1")
        #expect(setting.app.value("/app/s/a") == [1, 2, 3])
        _ = try await setting.central("preparewrite 2a19 1 09")
        _ = try await setting.central("execute 0")
        _ = try await setting.central("execute 1")
        #expect(setting.app.value("/app/s/a") == [1, 2, 3])
        _ = try await setting.central("preparewrite 2a19 0 01")
        _ = try await setting.central("preparewrite 2a19 5 01")
        #expect(await setting.outcome("execute 1") == "error att 0x06")
        for offset in 0..<30 { _ = try await setting.central("preparewrite 2a39 \(2 * offset) 01") }
        #expect(await setting.outcome("preparewrite 2a39 60 01") == "error att 0x09")
        #expect(await setting.outcome("execute 1") == "")
        await setting.hears("/app/s/c WriteValue 01 device=04 offset=58 link=LE mtu=517")
        _ = try await setting.central("preparewrite 2a3a 0 01")
        await setting.hears("/app/s/d WriteValue - device=04 link=LE prepare-authorize=true mtu=517")
    }

    @Test("an application's errors become ATT errors")
    func errors() async throws {
        let setting = try await Self.connected { try $0.characteristic("/app/s/a", "2a19", ["read", "write"]) }
        for (name, message, read, write) in [
            ("org.bluez.Error.Failed", "0x81", 0x81, 0x81), ("org.bluez.Error.Failed", "129", 0x81, 0x81),
            ("org.bluez.Error.Failed", "0xa0", 0x0E, 0x0E), ("org.bluez.Error.Failed", "", 0x0E, 0x0E),
            ("org.bluez.Error.Failed", "no", 0x80, 0x80), ("org.bluez.Error.NotSupported", "", 6, 6),
            ("org.bluez.Error.NotAuthorized", "", 8, 8), ("org.bluez.Error.InvalidValueLength", "", 0x0D, 0x0D),
            ("org.bluez.Error.InvalidOffset", "", 7, 7), ("org.bluez.Error.InProgress", "", 0xFE, 0xFE),
            ("org.bluez.Error.ImproperlyConfigured", "", 0x0E, 0x0E), ("org.bluez.Error.NotPermitted", "", 2, 3),
            ("org.bluez.Error.InvalidArguments", "", 0x0E, 0x0E),
            ("org.freedesktop.DBus.Error.UnknownMethod", "", 0x0E, 0x0E),
        ] {
            setting.app.refuse("/app/s/a", name, message)
            #expect(await setting.outcome("read 2a19") == "error att 0x" + String(format: "%02x", read), "\(name)")
            #expect(await setting.outcome("write 2a19 01") == "error att 0x" + String(format: "%02x", write), "\(name)")
        }
    }

    @Test("notifications reach all subscribers; StartNotify for each, StopNotify after the last")
    func notifications() async throws {
        let setting = try await Self.connected { try $0.characteristic("/app/s/a", "2a37", ["notify"]) }
        _ = try await setting.central("connect \(Self.adapter) 23", "central2")
        _ = try await setting.central("subscribe 2a37")
        _ = try await setting.central("subscribe 2a37")
        _ = try await setting.central("subscribe 2a37", "central2")
        try setting.app.notify("/app/s/a", Array(repeating: 1, count: 30))
        let ones = { String(repeating: "01", count: $0) }
        // The newest link comes first.
        _ = try await setting.events.next("what fits") { $0 == "central2 notified 2a37 " + ones(20) ? $0 : nil }
        _ = try await setting.events.next("all of it") { $0 == "central notified 2a37 " + ones(30) ? $0 : nil }
        _ = try await setting.central("unsubscribe 2a37")
        #expect(!setting.app.client.lines.contains { $0.contains("StopNotify") })
        _ = try await setting.central("disconnect", "central2")
        await setting.hears("/app/s/a StopNotify")
        #expect(setting.app.client.lines.count { $0.contains("StartNotify") } == 2)
        #expect(await setting.outcome("configure 2a37 2") == "error att 0xfd")
        #expect(await setting.outcome("configure 2a37 3") == "error att 0xfd")
    }

    @Test("indications wait for their confirmation, one after the other; Confirm also when the link ends")
    func indications() async throws {
        let setting = try await Self.connected { try $0.characteristic("/app/s/a", "2a37", ["indicate"]) }
        _ = try await setting.central("indications 2a37")
        try setting.app.notify("/app/s/a", [1])
        _ = try await setting.events.next("the first") { $0 == "central indicated 2a37 01" ? $0 : nil }
        await setting.hears("/app/s/a Confirm")
        _ = try await setting.central("confirm off")
        try setting.app.notify("/app/s/a", [2])
        try setting.app.notify("/app/s/a", [3])
        _ = try await setting.events.next("the second") { $0 == "central indicated 2a37 02" ? $0 : nil }
        #expect(setting.app.client.lines.count { $0.contains("Confirm") } == 1)
        // The third has been taken when this is answered.
        _ = try await setting.app.client.objects()
        _ = try await setting.central("disconnect")
        #expect(await setting.app.client.hears("<- /app/s/a Confirm", count: 3))
    }

    @Test("sockets: one for all subscribers, one for all writers; if refused, calls are used instead")
    func sockets() async throws {
        let setting = try await Self.connected { app in
            try app.characteristic("/app/s/a", "2a37", ["notify"], more: ["NotifyAcquired": .bool(false)])
            try app.characteristic(
                "/app/s/b", "2a38", ["write", "write-without-response"], more: ["WriteAcquired": .bool(false)])
        }
        _ = try await setting.central("connect \(Self.adapter)", "central2")
        _ = try await setting.central("subscribe 2a37")
        await setting.hears("/app/s/a AcquireNotify device=04 link=LE mtu=517")
        _ = try await setting.central("subscribe 2a37", "central2")
        setting.app.send([5], "/app/s/a")
        _ = try await setting.events.next("the second") { $0 == "central2 notified 2a37 05" ? $0 : nil }
        _ = try await setting.events.next("the first") { $0 == "central notified 2a37 05" ? $0 : nil }
        try setting.app.notify("/app/s/a", [6])
        _ = try await setting.events.next("a signal as well") { $0 == "central notified 2a37 06" ? $0 : nil }
        #expect(!setting.app.client.lines.contains { $0.contains("StartNotify") })
        _ = try await setting.central("write 2a38 0102")
        await setting.hears("/app/s/b AcquireWrite device=04 link=LE mtu=517")
        #expect(setting.app.receive("/app/s/b") == [1, 2])
        _ = try await setting.central("write 2a38 03 0", "central2")
        #expect(setting.app.receive("/app/s/b") == [3])
        _ = try await setting.central("unsubscribe 2a37")
        _ = try await setting.central("unsubscribe 2a37", "central2")
        setting.app.refuse("/app/s/a", "org.bluez.Error.NotSupported")
        _ = try await setting.central("subscribe 2a37")
        await setting.hears("/app/s/a StartNotify")
    }

    @Test("encryption is requested with 0x0F and provided by pairing; authentication with 0x05, and not provided")
    func security() async throws {
        let setting = try await Self.connected { app in
            try app.characteristic("/app/s/a", "2a19", ["encrypt-read", "encrypt-write"], [1])
            try app.characteristic("/app/s/b", "2a38", ["encrypt-authenticated-read"], [2])
            try app.characteristic("/app/s/c", "2a37", ["notify", "encrypt-notify"])
        }
        #expect(await setting.outcome("read 2a19") == "error att 0x0f")
        #expect(await setting.outcome("write 2a19 01") == "error att 0x0f")
        #expect(await setting.outcome("read 2a38") == "error att 0x05")
        #expect(await setting.outcome("subscribe 2a37") == "error att 0x0f")
        #expect(await setting.outcome("pair").hasPrefix("error"), "no agent is asked")
        let agent = try await BusClient(setting.simulator.busAddress)
        try await agent.beAgent()
        _ = try await setting.central("pair")
        #expect(await agent.hears("agent: RequestAuthorization"))
        #expect(try await setting.central("read 2a19") == "01")
        #expect(await setting.outcome("read 2a38") == "error att 0x05")
        _ = try await setting.central("subscribe 2a37")
        _ = try await setting.central("disconnect")
        _ = try await setting.central("connect \(Self.adapter)")
        try setting.app.notify("/app/s/c", [9])
        _ = try await setting.events.next("remembered") { $0 == "central notified 2a37 09" ? $0 : nil }
        #expect(!setting.app.client.lines.contains { $0.contains("StopNotify") })
    }

    @Test("the table is the application's, after bluetoothd's own; Service Changed names handles never used before")
    func table() async throws {
        // What BlueZ says of the central may come before the connection is reported.
        let setting = try await Self.registered { app in
            try app.service("/app/t", "180d", primary: false)
            try app.service("/app/u", "1815", includes: ["/app/t", "/app/later"])
            try app.characteristic("/app/u/a", "2a56", ["read", "write", "notify", "reliable-write"])
            try app.descriptor("/app/u/a/d", "2901", ["read"])
        }
        _ = try await setting.central("connect \(Self.adapter)/P")
        #expect(
            try await setting.central("services").hasSuffix(
                "characteristic:2a50@0014:read primary:180f@0015 secondary:180d@0016 primary:1815@0017 include:180d "
                    + "characteristic:2a56@001a:read,write,notify,extended-properties descriptor:2900@001b "
                    + "descriptor:2902@001c descriptor:2901@001d"))
        #expect(try await setting.central("readdescriptor 2a56 2900") == "0100")
        _ = try await setting.central("subscribe 2a05")
        try await setting.app.unregister()
        _ = try await setting.events.next("gone") { $0 == "central indicated 2a05 17001d00" ? $0 : nil }
        try await setting.app.register()
        _ = try await setting.events.next("back") { $0 == "central indicated 2a05 20002600" ? $0 : nil }
        #expect(
            await setting.app.client.hears("dev04: UUIDs=[2] ServicesResolved=true Name=Central Alias=Central"))
    }

    @Test("invalid applications are refused as by bluetoothd")
    func wrongApplications() async throws {
        let simulator = try await Simulator()
        let app = try await BusServer(simulator.busAddress)
        func fails(_ root: String, _ error: String, _ location: SourceLocation = #_sourceLocation) async {
            try? await app.register(root)
            #expect(
                app.client.lines.last == "RegisterApplication fails org.bluez.Error.\(error)",
                sourceLocation: location)
        }
        await fails("/empty", "Failed No object received")
        app.add("/a/s", "GattService1", ["Primary": .bool(true)])
        await fails("/a", "Failed Failed to create entry in database")
        try app.service("/b/s", "1801")
        await fails("/b", "Failed Failed to create entry in database")
        try app.service("/c/s", "nonsense")
        await fails("/c", "Failed Failed to create entry in database")
        try app.characteristic("/d/s/c", "2a19", ["read"])
        await fails("/d", "Failed No valid service object found")
        try app.service("/e/s", "180f")
        try app.characteristic("/e/s/c", "2a19", ["fly"])
        await fails("/e", "Failed No valid service object found")
        try app.service("/f/s", "180f")
        try await app.register("/f")
        await fails("/f", "AlreadyExists Already Exists")
        try? await app.unregister("/g")
        #expect(app.client.lines.last == "UnregisterApplication fails org.bluez.Error.DoesNotExist Does Not Exist")
    }

    @Test("advertisements: their content, what does not fit, how many there can be")
    func advertising() async throws {
        let simulator = try await Simulator()
        let app = try await BusServer(simulator.busAddress)
        let manager = "org.bluez.LEAdvertisingManager1", hci0 = "/org/bluez/hci0"
        func heard() async -> String {
            (try? await simulator.control("central advertisement \(Self.adapter)")) ?? "nothing"
        }
        func fails(_ properties: [String: Value], _ error: String, _ location: SourceLocation = #_sourceLocation) async
        {
            try? await app.advertise(properties)
            #expect(
                app.client.lines.last == "RegisterAdvertisement fails org.bluez.Error.\(error)",
                sourceLocation: location)
        }
        let peripheral = Value.string("peripheral")
        #expect(await heard() == "nothing")
        try await app.advertise([
            "Type": peripheral, "LocalName": .string("Test"), "ServiceUUIDs": .strings(["180d", "180f"]),
        ])
        #expect(await heard() == "connectable=1 size=9+6 flags=04 uuids=180d,180f name=Test")
        #expect(try await app.client.property(hci0, manager, "ActiveInstances") == .byte(1))
        #expect(try await app.client.property(hci0, manager, "SupportedInstances") == .byte(4))
        await fails(["Type": peripheral], "AlreadyExists Already Exists")
        try await app.withdraw()
        #expect(await heard() == "nothing")
        func manufacturer(_ count: Int) -> Value {
            .dictionary(
                key: "q", value: "v", [.init(.uint16(0xFFFF), .variant(.bytes(Array(repeating: 0, count: count))))])
        }
        try await app.advertise(["Type": peripheral, "Discoverable": .bool(true), "ManufacturerData": manufacturer(24)])
        #expect(await heard().hasPrefix("connectable=1 size=31+0 flags=06 manufacturer=ffff:0000"))
        try await app.withdraw()
        let full: [String: Value] = [
            "Type": peripheral, "Discoverable": .bool(true), "ManufacturerData": manufacturer(25),
        ]
        await fails(full, "Failed Failed to register advertisement")
        await fails(
            ["Type": peripheral, "ManufacturerData": manufacturer(28)], "Failed Failed to parse advertisement.")
        await fails(["Type": .string("wrong")], "Failed Failed to parse advertisement.")
        await fails(
            ["Type": peripheral, "ServiceUUIDs": .strings(["nonsense"])], "Failed Failed to parse advertisement.")
        try await app.advertise(["Type": peripheral, "LocalName": .string(String(repeating: "z", count: 40))])
        #expect(await heard() == "connectable=1 size=3+31 flags=04 shortname=" + String(repeating: "z", count: 29))
        try app.changed("/adv", "LEAdvertisement1", ["LocalName": .string("x")])
        for number in 1..<5 { try await app.advertise(["Type": peripheral], at: "/adv\(number)") }
        try? await app.advertise(["Type": peripheral], at: "/adv5")
        #expect(
            app.client.lines.last
                == "RegisterAdvertisement fails org.bluez.Error.NotPermitted Maximum advertisements reached")
    }

    @Test("a client's services and advertisements end with its connection")
    func clientGone() async throws {
        let setting = try await Self.connected { try $0.characteristic("/app/s/a", "2a19", ["read"], [1]) }
        setting.app.client.leave()
        try await eventually("the service is withdrawn") { await !setting.outcome("discover").contains("180f") }
        #expect(!(await setting.outcome("services").contains("180f")))
        #expect(
            await setting.outcome("advertisement \(Self.adapter)", "central2")
                == "error nothing heard from \(Self.adapter)")
    }

    @Test("the end of a link that a killed bluetoothd has left does not concern its successor")
    func abandonedSubscriber() async throws {
        let build = { (app: BusServer) in try app.characteristic("/app/s/a", "2a37", ["notify"]) }
        let setting = try await Self.connected(build)
        _ = try await setting.central("subscribe 2a37")
        try await setting.simulator.restartDaemon()
        // The same objects get the same handles.
        let app = try await BusServer(setting.simulator.busAddress)
        try app.service("/app/s", "180f")
        try build(app)
        try await app.register()
        try await app.advertise(["Type": .string("peripheral"), "LocalName": .string("Test")])
        _ = try await setting.central("connect \(Self.adapter)/P", "central2")
        _ = try await setting.central("subscribe 2a37", "central2")
        #expect(await app.client.hears("<- /app/s/a StartNotify"))
        _ = try await setting.events.next("end of the old link") { $0 == "central disconnected 0x13" ? $0 : nil }
        try app.notify("/app/s/a", [1])
        _ = try await setting.events.next("value") { $0 == "central2 notified 2a37 01" ? $0 : nil }
        #expect(!app.client.lines.contains { $0.contains("StopNotify") })
    }

    // MARK: Two adapters

    @Test("hci1 finds, connects to, reads, writes and subscribes to hci0's services")
    func twoAdapters() async throws {
        let simulator = try await Simulator()
        try await simulator.control("rig adapters 2")
        let app = try await BusServer(simulator.busAddress)
        let long = (0..<512).map { UInt8($0 & 255) }
        try app.service("/app/s", "1815")
        try app.characteristic("/app/s/a", "2a56", ["read", "write"], long)
        try app.characteristic("/app/s/b", "2a57", ["notify"])
        try app.characteristic("/app/s/c", "2a58", ["indicate"])
        try await app.register()
        try await app.advertise([
            "Type": .string("peripheral"), "LocalName": .string("Zero"), "ServiceUUIDs": .strings(["1815"]),
            "Discoverable": .bool(true),
        ])
        let client = try await BusClient(simulator.busAddress)
        let device = "/org/bluez/hci1/dev_00_B1_5E_00_00_01", short = "hci1/dev_00_B1_5E_00_00_01"
        try await eventually("the adapter is on") {
            try await client.property("/org/bluez/hci1", "org.bluez.Adapter1", "Powered") == .bool(true)
        }
        try await client.call("/org/bluez/hci1", "org.bluez.Adapter1", "StartDiscovery")
        #expect(await client.hears("+ \(short) Device1"))
        #expect(try await client.property(device, "org.bluez.Device1", "Name") == .string("Zero"))
        try await client.device("Connect", device)
        #expect(
            await client.waits { $0.contains { $0.hasPrefix("\(short): ") && $0.contains("ServicesResolved=true") } })
        #expect(client.lines.contains("+ hci0/dev_00_B1_5E_00_00_02 Device1"))
        let service = device + "/service0015"
        #expect(try await client.read(service + "/char0016") == long)
        try await client.characteristic(service + "/char0016", "WriteValue", .bytes([1, 2]), .noOptions)
        #expect(app.value("/app/s/a") == [1, 2])
        try await client.characteristic(service + "/char0018", "StartNotify")
        try app.notify("/app/s/b", [7])
        #expect(await client.hears("\(short)/service0015/char0018: Value=07"))
        try await client.characteristic(service + "/char001b", "StartNotify")
        try app.notify("/app/s/c", [8])
        #expect(await client.hears("\(short)/service0015/char001b: Value=08"))
        #expect(await app.client.hears("<- /app/s/c Confirm"))
        try await simulator.control("central connect \(Self.adapter)/P")
        try await simulator.control("rig adapters 1")
        #expect(await app.client.hears("<- /app/s/b StopNotify"))
        #expect(try await simulator.control("central connections") == "1")
    }

    // MARK: Hostile centrals

    @Test("a storm of invalid requests, with limits and without, does not stop application or daemon")
    func storm() async throws {
        let setting = try await Self.connected { app in
            try app.characteristic("/app/s/a", "2a19", ["read", "write", "notify"], [1])
            try app.characteristic("/app/s/b", "2a38", ["write", "write-without-response", "indicate"])
            try app.descriptor("/app/s/b/d", "2901", ["read", "write"])
        }
        _ = try await setting.central("connect \(Self.adapter)", "central2")
        let answer = try await setting.central("storm 2000 7")
        #expect(answer.hasPrefix("answers=2000 errors="), "\(answer)")
        setting.simulator.options.forwardsOutOfRangeWrites = true
        _ = try await setting.central("storm 1000 8")
        setting.simulator.sendOptions(.strings(["no", "dictionary"]))
        _ = try await setting.central("storm 100 9")
        setting.simulator.sendOptions(nil)
        _ = try await setting.central("write 2a19 2a", "central2")
        #expect(try await setting.central("read 2a19", "central2") == "2a")
    }

    @Test("subscribe and disappear, 1,000 times: as many ends as starts; prepared writes end with the link")
    func churn() async throws {
        let setting = try await Self.registered { try $0.characteristic("/app/s/a", "2a19", ["write", "notify"]) }
        _ = try await setting.central("churn \(Self.adapter)/P 2a19 1000")
        #expect(await setting.app.client.hears("<- /app/s/a StopNotify", count: 1000))
        #expect(setting.app.client.lines.count { $0 == "<- /app/s/a StartNotify" } == 1000)
        _ = try await setting.central("connect \(Self.adapter)")
        _ = try await setting.central("preparewrite 2a19 0 01")
        _ = try await setting.central("disconnect")
        _ = try await setting.central("connect \(Self.adapter)")
        #expect(await setting.outcome("execute 1") == "")
        #expect(!setting.app.client.lines.contains { $0.contains("WriteValue") })
    }
}
