import BluezDBus
import Testing

@testable import BluezKit

@Suite struct AdapterControllerTests {
    private static let hci1 = "/org/bluez/hci1"
    private static let hci2 = "/org/bluez/hci2"
    private let isOn = ScriptedBus.adapter(isPowered: true)
    private let isOff = ScriptedBus.adapter(isPowered: false)

    private func xml(_ names: String...) -> Value {
        .string("<node>" + names.map { "<node name=\"\($0)\"/>" }.joined() + "</node>")
    }

    private func next(_ script: ScriptedBus) async throws -> CBManagerState {
        try await script.states.next("state") { $0 }
    }

    @Test("D5 one query starts the adapter controller, and the state is unknown before its answer")
    func start() async throws {
        let script = try await ScriptedBus()
        script.open()
        let question = try await script.expect("GetAll", at: ScriptedBus.hci0)
        try await script.expectNoCall()
        #expect(script.states.all.isEmpty)
        question.answer(isOn)
        #expect(try await next(script) == .poweredOn)
        try await script.expectNoCall()
    }

    @Test(
        "if the usual adapter does not exist, the others are listed, and the first that says it is powered is used")
    func others() async throws {
        let script = try await ScriptedBus()
        script.open()
        try await script.expect("GetAll", at: ScriptedBus.hci0).refuse(ScriptedBus.noObject)
        try await script.expect("Introspect", at: "/org/bluez").answer(xml("hci2", "hci1", "test"))
        let first = try await script.expect("GetAll", at: Self.hci1)
        let second = try await script.expect("GetAll", at: Self.hci2)
        second.answer(isOn)
        #expect(try await next(script) == .poweredOn)
        #expect(script.turn { script.session.adapter.name } == "hci2")
        // It is too late to be the first one.
        first.answer(isOn)
        try await script.expectNoCall()
        #expect(script.turn { script.session.adapter.name } == "hci2" && script.states.all == [.poweredOn])
    }

    @Test("if no adapter is powered, the first one is used, in whatever order they answer")
    func noneIsOn() async throws {
        let script = try await ScriptedBus()
        script.open()
        try await script.expect("GetAll", at: ScriptedBus.hci0).refuse(ScriptedBus.noObject)
        try await script.expect("Introspect").answer(xml("hci2", "hci1"))
        let first = try await script.expect("GetAll", at: Self.hci1)
        try await script.expect("GetAll", at: Self.hci2).answer(isOff)
        try await script.settle()
        #expect(script.states.all.isEmpty, "the other one may be on")
        first.answer(isOff)
        #expect(try await next(script) == .poweredOff)
        #expect(script.turn { script.session.adapter.name } == "hci1")
    }

    @Test("a signal that overtakes the answer counts, and the older answer corrects it as it is from later")
    func signalFirst() async throws {
        let script = try await ScriptedBus()
        script.open()
        let question = try await script.expect("GetAll")
        try script.change(ScriptedBus.hci0, BlueZ.adapter, [("Powered", .bool(true))])
        #expect(try await next(script) == .poweredOn)
        question.answer(isOff)
        #expect(try await next(script) == .poweredOff)
    }

    @Test("a bus that refuses the question makes the app unauthorized; one that is too busy is asked again")
    func refusals() async throws {
        let denied = try await ScriptedBus()
        denied.open()
        try await denied.expect("GetAll").refuse("org.freedesktop.DBus.Error.AccessDenied")
        #expect(try await next(denied) == .unauthorized)
        try await denied.expectNoCall()

        let busy = try await ScriptedBus {
            var timing = $0
            timing.adapter.poweredRetry = .milliseconds(1)
            return timing
        }
        busy.open()
        for _ in 0..<3 { try await busy.expect("GetAll", at: ScriptedBus.hci0).refuse(ScriptedBus.busy) }
        try await busy.expect("GetAll", at: ScriptedBus.hci0).answer(isOn)
        #expect(try await next(busy) == .poweredOn)
    }

    @Test("D10 a bluetoothd that comes back is asked again, and its links are not trusted for a moment")
    func restart() async throws {
        let script = try await ScriptedBus()
        try await script.powerOn()
        #expect(!script.turn { script.session.adapter.mayReportStaleLinks })
        let generation = script.turn { script.session.adapter.generation }
        try await script.own(false)
        #expect(try await script.states.next("reset") { $0 } == .resetting)
        try await script.own(true)
        try await script.expect("GetAll", at: ScriptedBus.hci0).answer(isOn)
        #expect(try await next(script) == .poweredOn)
        #expect(script.turn { script.session.adapter.mayReportStaleLinks })
        #expect(script.turn { script.session.adapter.generation } == generation + 1)
    }

    @Test("D10 the links of each bluetoothd that comes back are not trusted, and not only those of the first")
    func restartsAgain() async throws {
        let script = try await ScriptedBus()
        try await script.powerOn()
        func restart() async throws {
            try await script.own(false)
            #expect(try await script.states.next("reset") { $0 } == .resetting)
            try await script.own(true)
            try await script.expect("GetAll", at: ScriptedBus.hci0).answer(isOn)
            #expect(try await next(script) == .poweredOn)
        }
        try await restart()
        let first = ContinuousClock.now
        try await script.settle()
        let second = ContinuousClock.now
        try await restart()
        // So long that the second restart counts, and the first does not.
        let isMistrusted = script.turn {
            script.bus.timing.adapter.staleLinks = (.now - second) + (second - first) / 2
            return script.session.adapter.mayReportStaleLinks
        }
        #expect(isMistrusted)
    }

    @Test("a power cycle switches on again when the adapter has gone off, and is a reset for the app")
    func powerCycle() async throws {
        let script = try await ScriptedBus()
        try await script.powerOn()
        script.turn { script.session.adapter.powerCycle() }
        let off = try await script.expect("Set", "Powered", at: ScriptedBus.hci0)
        #expect(off.arguments.last?.boolValue == false)
        try script.change(ScriptedBus.hci0, BlueZ.adapter, [("Powered", .bool(false))])
        #expect(try await next(script) == .resetting)
        try await script.expectNoCall()
        off.answer()
        let on = try await script.expect("Set", "Powered", at: ScriptedBus.hci0)
        #expect(on.arguments.last?.boolValue == true)
        try script.change(ScriptedBus.hci0, BlueZ.adapter, [("Powered", .bool(true))])
        #expect(try await next(script) == .poweredOn)
    }

    @Test("a refused power cycle leaves the adapter on if switching off failed, and off if switching on failed")
    func powerCycleRefused() async throws {
        let script = try await ScriptedBus()
        try await script.powerOn()
        script.turn { script.session.adapter.powerCycle() }
        try await script.expect("Set", "Powered").refuse()
        try await script.expectNoCall()
        #expect(script.states.all == [.poweredOn])
        script.turn { script.session.adapter.powerCycle() }
        let off = try await script.expect("Set", "Powered")
        try script.change(ScriptedBus.hci0, BlueZ.adapter, [("Powered", .bool(false))])
        off.answer()
        try await script.expect("Set", "Powered").refuse()
        #expect(try await next(script) == .resetting)
        #expect(try await next(script) == .poweredOff)
    }

    @Test("a power cycle during which bluetoothd ends is finished by its successor, and switched on once")
    func powerCycleAcrossRestart() async throws {
        let script = try await ScriptedBus()
        try await script.powerOn()
        script.turn { script.session.adapter.powerCycle() }
        try await script.expect("Set", "Powered")
        try await script.own(false)
        #expect(try await next(script) == .resetting)
        try await script.own(true)
        try await script.expect("GetAll", at: ScriptedBus.hci0).answer(isOff)
        try await script.expect("Introspect").answer(xml("hci0"))
        let on = try await script.expect("Set", "Powered", at: ScriptedBus.hci0)
        #expect(on.arguments.last?.boolValue == true)
        on.answer()
        try script.change(ScriptedBus.hci0, BlueZ.adapter, [("Powered", .bool(true))])
        #expect(try await next(script) == .poweredOn)
        try await script.expectNoCall()
    }

    @Test("ST-6 an adapter that was chosen by its address is followed to its next name at once")
    func followsAddress() async throws {
        let own = "00:B1:5E:00:00:02"
        let script = try await ScriptedBus(adapter: AdapterChoice(own))
        func isOn(_ address: String) -> Value { ScriptedBus.adapter(isPowered: true, address: address) }
        script.open()
        try await script.expect("GetAll", at: ScriptedBus.hci0).answer(isOn("00:B1:5E:00:00:01"))
        try await script.expect("Introspect").answer(xml("hci0", "hci1"))
        try await script.expect("GetAll", at: ScriptedBus.hci0).answer(isOn("00:B1:5E:00:00:01"))
        try await script.expect("GetAll", at: Self.hci1).answer(isOn(own))
        #expect(try await next(script) == .poweredOn)
        #expect(script.turn { script.session.adapter.name } == "hci1")
        // The other one goes off and on.
        for isPowered in [false, true] {
            try script.change(ScriptedBus.hci0, BlueZ.adapter, [("Powered", .bool(isPowered))])
        }
        try await script.settle()
        #expect(script.states.all == [.poweredOn])

        try await script.own(false)
        #expect(try await next(script) == .resetting)
        try await script.own(true)
        try await script.expect("GetAll", at: Self.hci1).answer(isOn("00:B1:5E:00:00:01"))
        try await script.expect("Introspect").answer(xml("hci0", "hci1"))
        try await script.expect("GetAll", at: ScriptedBus.hci0).answer(isOn(own))
        #expect(try await next(script) == .poweredOn)
        #expect(script.turn { script.session.adapter.name } == "hci0")
    }

    // After a bluetoothd that had hung hci0 was asked, whichever was in use: where hci0 was off, or not the one that
    // was chosen, nothing more was asked, and the state stayed .resetting. Now the one that was in use is asked.
    @Test("D10 a bluetoothd that answers again is asked for the adapter that was in use")
    func asksForItsOwnAfterHang() async throws {
        let script = try await ScriptedBus()
        script.open()
        try await script.expect("GetAll", at: ScriptedBus.hci0).answer(isOff)
        try await script.expect("Introspect").answer(xml("hci0", "hci1"))
        try await script.expect("GetAll", at: Self.hci1).answer(isOn)
        #expect(try await next(script) == .poweredOn)
        let device: ObjectPath = "/org/bluez/hci1/dev_00_11_22_33_44_55"
        script.turn {
            script.session.adapter.daemonHangs(links: [device])
            script.session.adapter.reset()
            script.bus.reopen()
        }
        #expect(try await next(script) == .resetting)
        try await script.expect("Disconnect", at: device.rawValue).answer()
        try await script.expect("GetAll", at: Self.hci1).answer(isOn)
        #expect(try await next(script) == .poweredOn)
    }

    // MARK: Which BlueZ it is

    @Test("the version is known when the state is, and is asked for again when bluetoothd was replaced by another one")
    func version() async throws {
        let script = try await ScriptedBus()
        func version() -> BlueZVersion? { script.turn { script.session.adapter.daemon.version } }
        script.open()
        try await script.expect("GetAll").answer(ScriptedBus.adapter(isPowered: true))
        #expect(try await next(script) == .poweredOn)
        #expect(version() == BlueZVersion(5, 66))
        try await script.own(false)
        #expect(try await next(script) == .resetting)
        #expect(version() == nil)
        try await script.own(true)
        // The adapter appears later than its daemon.
        try await script.expect("GetAll").refuse(ScriptedBus.noObject)
        try await script.expect("Introspect").answer(xml())
        try script.add(
            ScriptedBus.hci0, BlueZ.adapter,
            [("Modalias", .string("usb:v1D6Bp0246d0557")), ("Powered", .bool(true))])
        #expect(try await next(script) == .poweredOn)
        #expect(version() == BlueZVersion(5, 87))
    }
}
