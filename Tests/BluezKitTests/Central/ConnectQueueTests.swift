import BluezKitRestore
import BluezDBus
import Testing

@testable import BluezKit

/// Attempts to connect, as they reach BlueZ.
@Suite struct ConnectQueueTests {
    // holds: confined to the bus queue, but for what is safe
    private final class Stage: @unchecked Sendable {
        let script: ScriptedBus
        let manager: CentralManagerCore
        private var peripherals: [PeripheralCore] = []

        init(_ prepare: (inout BlueZTiming) -> Void = { _ in }) async throws {
            script = try await ScriptedBus {
                var timing = $0
                (timing.link.backOff, timing.link.longestBackOff) = (.milliseconds(1), .milliseconds(1))
                prepare(&timing)
                return timing
            }
            try await script.powerOn()
            manager = script.manager()
            // What the scheduler hears of devices, and who pairs, does not matter here.
            script.answerRoutinely([
                "RegisterAgent": [], "Get": [.variant(.bool(true))], "Introspect": [.string("<node/>")],
                "SetDiscoveryFilter": [], "StartDiscovery": [], "StopDiscovery": [],
            ])
        }

        func path(_ number: Int) -> String { ScriptedBus.path(DetachedCentral.identity(number)) }

        /// An app wants the device, which BlueZ knows and which is not connected.
        @discardableResult
        func want(_ number: Int) async throws -> PeripheralCore {
            let core = PeripheralCore(identity: DetachedCentral.identity(number), manager: manager)
            script.turn {
                peripherals.append(core)
                script.central.connect(core, connectionID: core.begin(), .test())
            }
            try await check(number)
            return core
        }

        /// BlueZ is asked about the device, and says that it is not connected.
        func check(_ number: Int) async throws {
            let properties = ScriptedBus.properties(DetachedCentral.identity(number))
            try await script.expect("GetAll", at: path(number)).answer(.properties(properties))
            try await script.settle()
        }

        /// BlueZ leaves so many calls unanswered that no other link may use their connection.
        func crowd() async throws {
            try script.turn {
                let connection = try #require(script.bus.connection)
                for _ in 0..<script.bus.timing.unanswered.lane {
                    BlueZProxy(bus: connection, path: "/org/bluez/hci0/x", interface: BlueZ.device).getAll { _ in }
                }
            }
            for _ in 0..<40 { try await script.expect("GetAll", at: "/org/bluez/hci0/x") }
        }

        func connected(_ number: Int, _ isConnected: Bool = true) throws {
            try script.change(path(number), BlueZ.device, [("Connected", .bool(isConnected))])
        }

        var isEmpty: Bool { script.turn { script.central.connects.isEmpty } }
    }

    @Test(
        "devices connect one at a time: the next attempt starts when the first link is up, not when Connect has succeeded"
    )
    func oneAtATime() async throws {
        let stage = try await Stage()
        try await stage.want(1)
        let first = try await stage.script.expect("Connect", at: stage.path(1))
        try await stage.want(2)
        try await stage.script.expectNoCall()
        first.answer()
        try await stage.script.expectNoCall()
        try stage.connected(1)
        try await stage.script.expect("Connect", at: stage.path(2)).answer()
        try stage.connected(2)
        try await stage.script.expectNoCall()
        #expect(stage.isEmpty)
    }

    @Test("a refused attempt leaves its turn to the next device, and gets another one after that")
    func refused() async throws {
        let stage = try await Stage()
        try await stage.want(1)
        let first = try await stage.script.expect("Connect", at: stage.path(1))
        try await stage.want(2)
        first.refuse("Failed", "le-connection-abort-by-local")
        let second = try await stage.script.expect("Connect", at: stage.path(2))
        // It was queued again meanwhile.
        try await stage.check(1)
        try await stage.script.expectNoCall()
        second.refuse("Failed", "le-connection-abort-by-local")
        try await stage.script.expect("Connect", at: stage.path(1))
    }

    @Test("an attempt that takes too long while others wait is called off, and the turn passes when BlueZ has answered")
    func calledOff() async throws {
        let stage = try await Stage { $0.connect.unheardAttempt = .milliseconds(1) }
        try await stage.want(1)
        let attempt = try await stage.script.expect("Connect", at: stage.path(1))
        try await stage.want(2)
        let end = try await stage.script.expect("Disconnect", at: stage.path(1))
        try await stage.script.expectNoCall()
        attempt.refuse("Failed", "br-connection-canceled")
        try await stage.script.expectNoCall()
        end.answer()
        // It is still wanted, and waits behind the other one.
        let asked = try await stage.script.expect("GetAll", at: stage.path(1))
        let second = try await stage.script.expect("Connect", at: stage.path(2))
        second.answer()
        try stage.connected(2)
        asked.answer(.properties(ScriptedBus.properties(DetachedCentral.identity(1))))
        try await stage.script.expect("Connect", at: stage.path(1))
    }

    // The pause of a device that leaves requests unanswered began in the middle of its attempt, and held the turn of
    // all others.
    @Test(
        "a device that is to be left alone when BlueZ has been asked to connect: its attempt ends, and the turn passes")
    func leftAlone() async throws {
        let stage = try await Stage { ($0.link.settling, $0.link.settled) = (.milliseconds(1), .milliseconds(1)) }
        try await stage.want(1)
        let attempt = try await stage.script.expect("Connect", at: stage.path(1))
        try await stage.want(2)
        stage.script.turn {
            let (unanswered, identity) = (stage.script.central.unanswered, DetachedCentral.identity(1))
            while unanswered.pause(of: identity) == nil { unanswered.record(OperationCall(), about: identity, on: nil) }
        }
        attempt.answer()
        try await stage.check(1)
        try await stage.script.expect("Connect", at: stage.path(2))
    }

    // Each pending connect held the connection to the bus that was current when the app asked for it.
    @Test("a device that waits for its turn, or to try again, keeps no connection to the bus in use")
    func lanes() async throws {
        let stage = try await Stage { ($0.link.backOff, $0.link.longestBackOff) = (.seconds(60), .seconds(60)) }
        func hasLane(_ core: PeripheralCore) -> Bool {
            stage.script.turn { core.device?.connection?.client.calls.lane != nil }
        }
        let first = try await stage.want(1)
        let attempt = try await stage.script.expect("Connect", at: stage.path(1))
        let second = try await stage.want(2)
        #expect(hasLane(first) && !hasLane(second))
        attempt.refuse("Failed", "le-connection-abort-by-local")
        try await stage.script.expect("Connect", at: stage.path(2)).answer()
        try stage.connected(2)
        try await stage.script.settle()
        #expect(!hasLane(first) && hasLane(second))
    }

    @Test("calls that wait for long make questions about devices, and attempts, use another connection to the bus")
    func crowded() async throws {
        let stage = try await Stage { $0.unanswered.late = .zero }
        let main = try #require(stage.script.turn { stage.script.bus.connection?.uniqueName })
        try await stage.crowd()
        try await eventually("another connection is there") {
            stage.script.turn { stage.script.bus.callLane().map { $0 !== stage.script.bus.firstLane } == true }
        }
        let core = PeripheralCore(identity: DetachedCentral.identity(1), manager: stage.manager)
        stage.script.turn { stage.script.central.connect(core, connectionID: core.begin(), .test()) }
        let question = try await stage.script.expect("GetAll", at: stage.path(1))
        question.answer(.properties(ScriptedBus.properties(core.identity)))
        let attempt = try await stage.script.expect("Connect", at: stage.path(1))
        #expect(question.sender != main && attempt.sender == question.sender)
    }

    @Test("if the bus accepts no further connection, new links wait for one, and the log says so")
    func noLane() async throws {
        let stage = try await Stage {
            ($0.unanswered.late, $0.daemon.busyRetry) = (.zero, .milliseconds(1))
        }
        let main = try #require(stage.script.turn { stage.script.bus.connection?.uniqueName })
        let text = stage.script.address.rawValue
        let socket = try #require(text.split(separator: ",").first?.split(separator: "=").last.map(String.init))
        try FileManager.default.moveItem(atPath: socket, toPath: socket + ".away")
        try await stage.crowd()
        let core = PeripheralCore(identity: DetachedCentral.identity(1), manager: stage.manager)
        stage.script.turn { stage.script.central.connect(core, connectionID: core.begin(), .test()) }
        try await LogCapture.shared.expect("no other connection to the bus", text)
        try await stage.script.expectNoCall()
        try FileManager.default.moveItem(atPath: socket + ".away", toPath: socket)
        var call = try await stage.script.next("the question, or the attempt")
        if call.member == "GetAll" {
            call.answer(.properties(ScriptedBus.properties(core.identity)))
            call = try await stage.script.next("the attempt")
        }
        #expect(call.member == "Connect" && call.path == stage.path(1) && call.sender != main)
    }

    @Test("a question about a device that BlueZ never answers counts: the device is left alone")
    func silent() async throws {
        let stage = try await Stage { $0.unanswered.late = .zero }
        let core = PeripheralCore(identity: DetachedCentral.identity(1), manager: stage.manager)
        for _ in 1...8 {
            stage.script.turn { stage.script.central.connect(core, connectionID: core.begin(), .test()) }
            try await stage.script.expect("GetAll", at: stage.path(1))
            try await stage.script.settle()  // what else was asked is answered, and does not count
            stage.script.turn { stage.script.central.cancel(core) }
        }
        stage.script.turn { #expect(stage.script.central.unanswered.pause(of: core.identity) != nil) }
        stage.script.turn { stage.script.central.connect(core, connectionID: core.begin(), .test()) }
        try await stage.script.expectNoCall()
    }

    @Test("a cancelled attempt is called off, and the next device waits for BlueZ's answer to that")
    func cancelled() async throws {
        let stage = try await Stage()
        let core = try await stage.want(1)
        let attempt = try await stage.script.expect("Connect", at: stage.path(1))
        try await stage.want(2)
        stage.script.turn { stage.script.central.cancel(core) }
        let end = try await stage.script.expect("Disconnect", at: stage.path(1))
        end.answer()
        try await stage.script.expect("Connect", at: stage.path(2))
        // It is of no interest any longer.
        attempt.refuse("Failed", "br-connection-canceled")
        try await stage.script.expectNoCall()
    }

    @Test("a device that has not got its turn yet is cancelled without a word to BlueZ")
    func cancelledInQueue() async throws {
        let stage = try await Stage()
        try await stage.want(1)
        let first = try await stage.script.expect("Connect", at: stage.path(1))
        let core = try await stage.want(2)
        stage.script.turn { stage.script.central.cancel(core) }
        try await stage.script.expectNoCall()
        first.answer()
        try stage.connected(1)
        try await stage.script.expectNoCall()
        #expect(stage.isEmpty)
    }

    @Test("no device waits to connect while Bluetooth is off, and BlueZ's late answers start nothing")
    func bluetoothOff() async throws {
        let stage = try await Stage()
        try await stage.want(1)
        let first = try await stage.script.expect("Connect", at: stage.path(1))
        try await stage.want(2)
        try stage.script.change(ScriptedBus.hci0, BlueZ.adapter, [("Powered", .bool(false))])
        try await stage.script.states.next("off") { $0 == .poweredOff ? true : nil }
        #expect(stage.isEmpty)
        let end = try await stage.script.expect("Disconnect", at: stage.path(1))
        first.refuse("NotReady")
        end.refuse("NotConnected")
        try stage.script.change(ScriptedBus.hci0, BlueZ.adapter, [("Powered", .bool(true))])
        try await stage.script.states.next("on") { $0 == .poweredOn ? true : nil }
        try await stage.script.expectNoCall()
        #expect(stage.isEmpty)
    }
}
