import BluezDBus
import Foundation
import Testing

@testable import BluezKit

/// BlueZ's questions, asked by a test on a bus of its own.
@Suite struct PairingServiceTests {
    private static let device: ObjectPath = "/org/bluez/hci0/dev_F0_00_00_00_00_01"
    private static let other: ObjectPath = "/org/bluez/hci0/dev_F0_00_00_00_00_02"

    /// A peripheral of an app that answers when the test does.
    // holds: touched on the bus queue, but for what is safe
    private final class App: PairingPeer, @unchecked Sendable {
        var abilities: PairingAbilities = []
        let name: String
        let log: EventLog<String>
        private let session: Session
        private let ticket = ProtectedBox(0)

        init(_ name: String, _ log: EventLog<String>, _ session: Session) {
            (self.name, self.log, self.session) = (name, log, session)
        }

        func ask(_ question: PairingQuestion, ticket: Int) {
            self.ticket.withLock { $0 = ticket }
            log.append("\(name) asked \(question)")
        }

        func questionEnded() { log.append("\(name) ended") }

        func decide(_ accepts: Bool) { answer(accepts, nil) }
        func enter(_ passkey: UInt32?) { answer(passkey != nil, passkey) }

        private func answer(_ accepts: Bool, _ passkey: UInt32?) {
            let ticket = ticket.withLock { $0 }
            session.run { [session] in session.pairing.answer(ticket, accepts: accepts, passkey: passkey) }
        }
    }

    // holds: confined to the bus queue
    private final class Role: PairingRole, @unchecked Sendable {
        var needsAgent = true
        var abilities: [PairingAbilities] = []
        var apps: [ObjectPath: [App]] = [:]
        var unasked: Set<ObjectPath> = []
        private(set) var accepted: [ObjectPath] = []
        let log: EventLog<String>

        init(_ log: EventLog<String>) { self.log = log }

        func pairingPeers(at path: ObjectPath) -> [any PairingPeer]? { apps[path] }
        func mayPairUnasked(at path: ObjectPath) -> Bool { unasked.contains(path) }
        func pairingAccepted(at path: ObjectPath) { accepted.append(path) }
        func pairingRefused(at path: ObjectPath) { log.append("refused \(path.lastElement)") }
    }

    /// The service on a bus, and bluetoothd, which is the test.
    // holds: what changes is in boxes, or confined to the bus queue
    private final class Stage: @unchecked Sendable {
        let script: ScriptedBus
        let role: Role
        let app: App
        let log = EventLog<String>()
        var service: PairingService { script.session.pairing }

        init() async throws {
            script = try await ScriptedBus {
                var timing = $0
                timing.pairing.agentRetry = .milliseconds(1)
                return timing
            }
            (role, app) = (Role(log), App("app", log, script.session))
            script.turn {
                role.apps = [device: [app]]
                service.add(role)
            }
            try await script.powerOn()
        }

        func newApp(_ name: String) -> App { App(name, log, script.session) }

        func turn<Result>(_ body: () -> Result) -> Result { script.turn(body) }

        /// Has the agent registered, and waits until that is done.
        func register() async throws {
            turn { service.updateAgent() }
            try await takeAgent()
        }

        /// BlueZ takes the agent, and says whether devices can bond.
        func takeAgent(_ capability: String = "NoInputNoOutput", isPairable: Bool = true) async throws {
            let call = try await script.expect("RegisterAgent", at: "/org/bluez")
            #expect(call.arguments.last?.stringValue == capability)
            call.answer()
            try await script.expect("Get", "Pairable", at: ScriptedBus.hci0).answer(.variant(.bool(isPairable)))
        }

        /// A question of BlueZ, and its answer in one line.
        func ask(_ member: String, _ arguments: Value..., from peer: Peer? = nil) async -> String {
            defer { turn {} }  // what follows from the answer has been done
            do {
                let values = try await script.call(
                    "/org/bluezkit/agent", "org.bluez.Agent1", member, arguments, from: peer)
                return values.isEmpty ? "yes" : "yes \(values.compactMap(\.intValue))"
            } catch {
                return (error as? BusError)?.name ?? "\(error)"
            }
        }

        func wait(for text: String) async throws { try await log.next(text) { $0 == text ? true : nil } }
    }

    private static let rejected = "org.bluez.Error.Rejected"

    /// Asks, but answers nothing.
    private static let asks: PairingAbilities = [.consents, .entersPasskey, .displaysPasskey, .comparesPasskeys]

    // MARK: The agent

    @Test("the agent is registered while a role needs it, and again only with another capability")
    func registration() async throws {
        let stage = try await Stage()
        stage.turn {
            stage.role.needsAgent = false
            stage.service.updateAgent()
            stage.role.needsAgent = true
        }
        try await stage.script.expectNoCall()
        try await stage.register()
        stage.turn {
            stage.service.updateAgent()
            stage.role.abilities = [Self.asks]
            stage.service.updateAgent()
        }
        let old = try await stage.script.expect("UnregisterAgent")
        try await stage.takeAgent("KeyboardDisplay")
        old.answer()
        try await stage.script.expectNoCall()
    }

    @Test("an agent that BlueZ has released is registered again when it is needed")
    func released() async throws {
        let stage = try await Stage()
        try await stage.register()
        #expect(await stage.ask("Release") == "yes")
        // BlueZ does not know the old one any more.
        try await stage.register()
        try await stage.script.expectNoCall()
    }

    @Test("an agent that BlueZ refuses is not checked, and not registered again")
    func refused() async throws {
        let stage = try await Stage()
        stage.turn { stage.service.updateAgent() }
        try await stage.script.expect("RegisterAgent").refuse("AlreadyExists")
        stage.turn { stage.service.updateAgent() }
        try await stage.script.expectNoCall()
    }

    @Test("while bonding stays off, the agent is registered again, up to a limit")
    func notPairable() async throws {
        let stage = try await Stage()
        stage.turn { stage.service.updateAgent() }
        let retries = stage.turn { stage.script.bus.timing.pairing.agentRetries }
        for _ in 1..<retries {
            try await stage.takeAgent(isPairable: false)
            try await stage.script.expect("UnregisterAgent").answer()
        }
        try await stage.takeAgent(isPairable: false)
        try await stage.script.expectNoCall()
    }

    @Test("once bonding is on after a repeated registration, the agent is not registered again")
    func pairableAgain() async throws {
        let stage = try await Stage()
        stage.turn { stage.service.updateAgent() }
        try await stage.takeAgent(isPairable: false)
        try await stage.script.expect("UnregisterAgent").refuse("DoesNotExist")
        try await stage.takeAgent()
        try await stage.script.expectNoCall()
    }

    @Test("a question that BlueZ waits for is answered before it is asked whether devices can bond")
    func questionBeforeCheck() async throws {
        let stage = try await Stage()
        stage.turn { stage.app.abilities = Self.asks }
        stage.turn { stage.service.updateAgent() }
        let registration = try await stage.script.expect("RegisterAgent")
        async let answer = stage.ask("RequestAuthorization", .path(Self.device))
        try await stage.wait(for: "app asked consent")
        registration.answer()
        try await stage.script.expectNoCall()
        stage.app.decide(true)
        #expect(await answer == "yes")
        try await stage.script.expect("Get", "Pairable").answer(.variant(.bool(true)))
        try await stage.script.expectNoCall()
    }

    @Test("BlueZ keeps the agent that it has asked while it was asked whether devices can bond")
    func questionDuringCheck() async throws {
        let stage = try await Stage()
        stage.turn { stage.app.abilities = Self.asks }
        stage.turn { stage.service.updateAgent() }
        try await stage.script.expect("RegisterAgent").answer()
        let check = try await stage.script.expect("Get", "Pairable")
        async let answer = stage.ask("RequestPasskey", .path(Self.device))
        try await stage.wait(for: "app asked passkey")
        check.answer(.variant(.bool(false)))
        try await stage.script.expectNoCall()
        stage.app.decide(false)
        #expect(await answer == Self.rejected)
        try await stage.script.expect("Get", "Pairable").answer(.variant(.bool(true)))
        try await stage.script.expectNoCall()
    }

    // bluetoothd calls itself without end if it drops an agent that it has asked for a passkey.
    @Test("BlueZ keeps the agent that it waits for: another capability is registered when it has its answer")
    func questionBeforeCapability() async throws {
        let stage = try await Stage()
        stage.turn { stage.app.abilities = [.entersPasskey] }
        try await stage.register()
        async let answer = stage.ask("RequestPasskey", .path(Self.device))
        try await stage.wait(for: "app asked passkey")
        stage.turn {
            stage.role.abilities = [Self.asks]
            stage.service.updateAgent()
        }
        try await stage.script.expectNoCall()
        stage.app.decide(false)
        #expect(await answer == Self.rejected)
        try await stage.script.expect("UnregisterAgent").answer()
        try await stage.takeAgent("KeyboardDisplay")
    }

    // MARK: Questions

    @Test("a question without a handler is refused, and the role is informed; just works needs no question")
    func policies() async throws {
        let stage = try await Stage()
        try await stage.register()
        let questions: [(String, [Value])] = [
            ("RequestAuthorization", []), ("RequestPasskey", []), ("RequestConfirmation", [.uint32(1)]),
            ("DisplayPasskey", [.uint32(1), .uint16(0)]),
        ]
        for (member, arguments) in questions {
            #expect(await ask(stage, member, arguments) == Self.rejected, "\(member)")
        }
        #expect(stage.log.all == [String](repeating: "refused dev_F0_00_00_00_00_01", count: 4))
        stage.log.forget()
        stage.turn { stage.app.abilities = .justWorks }
        #expect(await ask(stage, "RequestAuthorization", []) == "yes")
        #expect(await ask(stage, "RequestConfirmation", [.uint32(1)]) == Self.rejected)
    }

    private func ask(_ stage: Stage, _ member: String, _ arguments: [Value]) async -> String {
        switch arguments.count {
        case 0: await stage.ask(member, .path(Self.device))
        case 1: await stage.ask(member, .path(Self.device), arguments[0])
        default: await stage.ask(member, .path(Self.device), arguments[0], arguments[1])
        }
    }

    @Test("the app's first decision is the answer")
    func decisions() async throws {
        let stage = try await Stage()
        try await stage.register()
        stage.turn { stage.app.abilities = Self.asks }
        for accepts in [true, false] {
            stage.log.forget()
            async let answer = stage.ask("RequestConfirmation", .path(Self.device), .uint32(42))
            try await stage.wait(for: "app asked comparison(42)")
            stage.app.decide(accepts)
            stage.app.decide(!accepts)
            #expect(await answer == (accepts ? "yes" : Self.rejected))
            stage.turn {}
            let end = accepts ? [] : ["app ended", "refused dev_F0_00_00_00_00_01"]
            #expect(stage.log.all == ["app asked comparison(42)"] + end)
            stage.turn { stage.service.endQuestion() }
        }
    }

    @Test(
        "an entered passkey of six digits is passed on, anything else is a refusal",
        arguments: [(0, "yes [0]"), (999_999, "yes [999999]"), (1_000_000, rejected), (nil, rejected)]
            as [(UInt32?, String)])
    func passkeys(passkey: UInt32?, expected: String) async throws {
        let stage = try await Stage()
        try await stage.register()
        stage.turn { stage.app.abilities = Self.asks }
        async let answer = stage.ask("RequestPasskey", .path(Self.device))
        try await stage.wait(for: "app asked passkey")
        stage.app.enter(passkey)
        #expect(await answer == expected)
    }

    @Test("a number to show is answered at once, and shown until the pairing ends: no decision and no Cancel ends it")
    func display() async throws {
        let stage = try await Stage()
        try await stage.register()
        stage.turn { stage.app.abilities = Self.asks }
        #expect(await stage.ask("DisplayPasskey", .path(Self.device), .uint32(42), .uint16(0)) == "yes")
        stage.app.decide(false)
        stage.turn {}
        #expect(await stage.ask("Cancel") == "yes")
        #expect(stage.log.all == ["app asked display(42)"])
        stage.turn { stage.service.endQuestion(about: Self.device) }
        #expect(stage.log.all == ["app asked display(42)", "app ended"])
    }

    // There was one question at a time. A number of a second device, which BlueZ has displayed whatever it waits for,
    // ended the first one: no one could answer that, and its operation waited until the peer gave up. BlueZ's Cancel,
    // which is about the first, then took the number away. Now each device has a question of its own.
    @Test("CN-14 a question leaves that about another device open: each has its own answer")
    func severalDevices() async throws {
        let stage = try await Stage()
        try await stage.register()
        let second = stage.newApp("second")
        stage.turn {
            (stage.app.abilities, second.abilities) = (Self.asks, Self.asks)
            stage.role.apps[Self.other] = [second]
        }
        async let answer = stage.ask("RequestConfirmation", .path(Self.device), .uint32(1))
        try await stage.wait(for: "app asked comparison(1)")
        #expect(await stage.ask("DisplayPasskey", .path(Self.other), .uint32(2), .uint16(0)) == "yes")
        stage.app.decide(true)
        #expect(await answer == "yes")
        #expect(stage.log.all == ["app asked comparison(1)", "second asked display(2)"])
    }

    @Test("Cancel withdraws the question that BlueZ waits for, and not a number that another device's user needs")
    func cancelsWhatIsOpen() async throws {
        let stage = try await Stage()
        try await stage.register()
        let second = stage.newApp("second")
        stage.turn {
            (stage.app.abilities, second.abilities) = (Self.asks, Self.asks)
            stage.role.apps[Self.other] = [second]
        }
        async let answer = stage.ask("RequestConfirmation", .path(Self.device), .uint32(1))
        try await stage.wait(for: "app asked comparison(1)")
        #expect(await stage.ask("DisplayPasskey", .path(Self.other), .uint32(2), .uint16(0)) == "yes")
        for _ in 0..<2 { #expect(await stage.ask("Cancel") == "yes") }
        #expect(await answer == Self.rejected)
        #expect(stage.log.all == ["app asked comparison(1)", "second asked display(2)", "app ended"])
    }

    @Test("a second question about a device takes the place of the first, for which BlueZ does not wait any longer")
    func replacedQuestion() async throws {
        let stage = try await Stage()
        try await stage.register()
        stage.turn { stage.app.abilities = Self.asks }
        async let first = stage.ask("RequestAuthorization", .path(Self.device))
        try await stage.wait(for: "app asked consent")
        async let second = stage.ask("RequestConfirmation", .path(Self.device), .uint32(5))
        #expect(await first == Self.rejected)
        try await stage.wait(for: "app asked comparison(5)")
        stage.app.decide(true)
        #expect(await second == "yes")
        #expect(stage.log.all == ["app asked consent", "app ended", "app asked comparison(5)"])
    }

    @Test("a question that BlueZ withdraws ends, and is answered")
    func cancelled() async throws {
        let stage = try await Stage()
        try await stage.register()
        stage.turn { stage.app.abilities = Self.asks }
        async let answer = stage.ask("RequestAuthorization", .path(Self.device))
        try await stage.wait(for: "app asked consent")
        #expect(await stage.ask("Cancel") == "yes")
        #expect(await answer == Self.rejected)
        stage.app.decide(true)
        stage.turn {}
        #expect(stage.log.all == ["app asked consent", "app ended"], "the role has refused nothing")
    }

    @Test("a question ends with the link of its device, not with that of another one")
    func endsWithLink() async throws {
        let stage = try await Stage()
        try await stage.register()
        stage.turn { stage.app.abilities = Self.asks }
        #expect(await stage.ask("DisplayPasskey", .path(Self.device), .uint32(1), .uint16(0)) == "yes")
        stage.turn { stage.service.endQuestion(about: Self.other) }
        #expect(!stage.log.all.contains("app ended"))
        stage.turn { stage.service.endQuestion(about: Self.device) }
        stage.turn { stage.service.endQuestion(about: Self.device) }
        #expect(stage.log.all.filter { $0 == "app ended" }.count == 1)
    }

    @Test("if several apps have the device, the first one that accepts decides, then the first one that asks")
    func severalApps() async throws {
        let stage = try await Stage()
        try await stage.register()
        let (second, third) = (stage.newApp("second"), stage.newApp("third"))
        stage.turn {
            stage.role.apps[Self.device] = [stage.app, second, third]
            second.abilities = Self.asks
            third.abilities = Self.asks
        }
        async let answer = stage.ask("RequestAuthorization", .path(Self.device))
        try await stage.wait(for: "second asked consent")
        second.decide(true)
        #expect(await answer == "yes")
        stage.turn { third.abilities = .justWorks }
        #expect(await stage.ask("RequestAuthorization", .path(Self.device)) == "yes")
        #expect(stage.log.all == ["second asked consent"])
    }

    @Test("a device that no app uses may pair only where a role permits it, and only without a question")
    func foreignDevices() async throws {
        let stage = try await Stage()
        try await stage.register()
        #expect(await stage.ask("RequestAuthorization", .path(Self.other)) == Self.rejected)
        stage.turn { stage.role.unasked = [Self.other] }
        #expect(await stage.ask("RequestAuthorization", .path(Self.other)) == "yes")
        #expect(await stage.ask("RequestConfirmation", .path(Self.other), .uint32(1)) == Self.rejected)
        #expect(await stage.ask("RequestPasskey", .path(Self.other)) == Self.rejected)
        #expect(stage.log.all.isEmpty, "it is not this app's pairing")
    }

    @Test("questions of classic Bluetooth, and those of other programs, are refused")
    func foreignQuestions() async throws {
        let stage = try await Stage()
        try await stage.register()
        stage.turn { stage.app.abilities = .justWorks }
        #expect(await stage.ask("RequestPinCode", .path(Self.device)) == Self.rejected)
        #expect(await stage.ask("DisplayPinCode", .path(Self.device), .string("0000")) == Self.rejected)
        #expect(await stage.ask("AuthorizeService", .path(Self.device), .string("110b")) == Self.rejected)
        let stranger = try await Peer.named(stage.script.address)
        let answer = await stage.ask("RequestAuthorization", .path(Self.device), from: stranger)
        #expect(answer == "org.freedesktop.DBus.Error.AccessDenied")
        #expect(stage.log.all.isEmpty)
    }

    @Test("a loss of the bus ends what BlueZ has asked, and the agent is registered again on the next one")
    func busLost() async throws {
        let stage = try await Stage()
        try await stage.register()
        stage.turn { stage.app.abilities = Self.asks }
        async let answer = stage.ask("RequestAuthorization", .path(Self.device))
        try await stage.wait(for: "app asked consent")
        stage.turn { stage.service.busLost() }
        #expect(stage.log.all == ["app asked consent", "app ended"], "its dialog would stay")
        stage.app.decide(true)
        try await stage.register()
        stage.turn { stage.script.bus.connection?.close() }
        #expect(await answer != "yes")
    }

    // MARK: Two adapters

    // Of two adapters in one process only the first one's peripherals could pair: BlueZ asks the first agent about the
    // devices of all, and that agent's session refused what it did not know. Now it hands the question to the session
    // that has the device.

    /// The session of another adapter, whose app has a device there, and asks.
    // holds: what changes is in boxes, or touched on the bus queue
    private final class Neighbour: @unchecked Sendable {
        static let device: ObjectPath = "/org/bluez/hci1/dev_F0_00_00_00_00_03"
        let session: Session
        let role: Role
        let app: App

        init(_ stage: Stage) async throws {
            session = Session.shared(Session.Key(address: stage.script.address, adapter: .name("hci1")))
            (role, app) = (Role(stage.log), App("neighbour", stage.log, session))
            let timing = stage.turn { stage.script.bus.timing }
            turn {
                session.blueZ.timing = timing
                app.abilities = asks
                role.apps = [Self.device: [app]]
                session.pairing.add(role)
                session.blueZ.open()
            }
            let path = "/org/bluez/hci1"
            try await stage.script.expect("GetAll", at: path).answer(ScriptedBus.adapter(isPowered: true))
            try await eventually("the other adapter is on") { turn { session.adapter.state == .poweredOn } }
            turn { session.pairing.updateAgent() }
            try await stage.script.expect("RegisterAgent", at: "/org/bluez").answer()
            try await stage.script.expect("Get", "Pairable", at: path).answer(.variant(.bool(true)))
        }

        /// That of its connection to the bus.
        var name: String { turn { session.bus?.uniqueName ?? "" } }

        @discardableResult
        func turn<Result>(_ body: () -> Result) -> Result {
            session.queue.sync {
                defer { session.blueZ.flush() }
                return body()
            }
        }
    }

    @Test("a device of another adapter: the app of its session is asked, and what it says is the answer")
    func otherAdapter() async throws {
        let stage = try await Stage()
        try await stage.register()
        let other = try await Neighbour(stage)
        async let passkey = stage.ask("RequestPasskey", .path(Neighbour.device))
        try await stage.wait(for: "neighbour asked passkey")
        other.app.enter(123_456)
        #expect(await passkey == "yes [123456]")
        #expect(other.turn { other.role.accepted } == [Neighbour.device])
        async let consent = stage.ask("RequestAuthorization", .path(Neighbour.device))
        try await stage.wait(for: "neighbour asked consent")
        other.app.decide(false)
        #expect(await consent == Self.rejected)
        other.turn {}
        #expect(await stage.ask("DisplayPasskey", .path(Neighbour.device), .uint32(42), .uint16(0)) == "yes")
        try await stage.wait(for: "neighbour asked display(42)")
        other.turn { other.app.abilities = .justWorks }
        #expect(await stage.ask("RequestAuthorization", .path(Neighbour.device)) == "yes")
        #expect(await stage.ask("RequestPasskey", .path(Neighbour.device)) == Self.rejected)
        other.turn {}
        #expect(
            stage.log.all == [
                "neighbour asked passkey", "neighbour ended", "neighbour asked consent", "neighbour ended",
                "refused dev_F0_00_00_00_00_03", "neighbour asked display(42)", "refused dev_F0_00_00_00_00_03",
            ])
        #expect(stage.turn { stage.role.accepted.isEmpty })
    }

    @Test("BlueZ withdraws a question about a device of another adapter: it ends there, and nothing else does")
    func otherAdapterCancelled() async throws {
        let stage = try await Stage()
        try await stage.register()
        let other = try await Neighbour(stage)
        stage.turn { stage.app.abilities = Self.asks }
        #expect(await stage.ask("DisplayPasskey", .path(Self.device), .uint32(1), .uint16(0)) == "yes")
        async let answer = stage.ask("RequestAuthorization", .path(Neighbour.device))
        try await stage.wait(for: "neighbour asked consent")
        #expect(await stage.ask("Cancel") == "yes")
        #expect(await answer == Self.rejected)
        try await stage.wait(for: "neighbour ended")
        other.app.decide(true)
        other.turn {}
        #expect(stage.log.all == ["app asked display(1)", "neighbour asked consent", "neighbour ended"])
        #expect(other.turn { other.role.accepted.isEmpty })
    }

    @Test("a device of another adapter that no session has is refused, as one of an adapter without a session")
    func unknownDevices() async throws {
        let stage = try await Stage()
        try await stage.register()
        let other = try await Neighbour(stage)
        for path: ObjectPath in ["/org/bluez/hci1/dev_F0_00_00_00_00_04", "/org/bluez/hci7/dev_F0_00_00_00_00_03"] {
            #expect(await stage.ask("RequestAuthorization", .path(path)) == Self.rejected, "\(path)")
        }
        other.turn { other.role.unasked = ["/org/bluez/hci1/dev_F0_00_00_00_00_04"] }
        #expect(await stage.ask("RequestAuthorization", .path("/org/bluez/hci1/dev_F0_00_00_00_00_04")) == "yes")
        #expect(stage.log.all.isEmpty)
    }

    @Test("a question about a device of another adapter ends with that one's link, and with the asked session's bus")
    func otherAdapterEnds() async throws {
        let stage = try await Stage()
        try await stage.register()
        let other = try await Neighbour(stage)
        async let answer = stage.ask("RequestAuthorization", .path(Neighbour.device))
        try await stage.wait(for: "neighbour asked consent")
        other.turn { other.session.pairing.endQuestion(about: Neighbour.device) }
        #expect(await answer == Self.rejected)
        async let lost = stage.ask("RequestAuthorization", .path(Neighbour.device))
        try await stage.wait(for: "neighbour asked consent")
        stage.turn { stage.service.busLost() }
        try await stage.wait(for: "neighbour ended")
        stage.turn { stage.script.bus.connection?.close() }
        #expect(await lost != "yes")
    }

    @Test("a session that ends is asked no more, and takes back what it was asked itself")
    func sessionEnds() async throws {
        let stage = try await Stage()
        try await stage.register()
        stage.turn { stage.app.abilities = Self.asks }
        var other: Neighbour? = try await Neighbour(stage)
        let name = try #require(other?.name)
        let question = Task {
            try await stage.script.daemon.call(
                name, "/org/bluezkit/agent", "org.bluez.Agent1", "RequestAuthorization", [.path(Self.device)])
        }
        try await stage.wait(for: "app asked consent")
        other = nil
        try await stage.wait(for: "app ended")
        // Before the connection ends: bluetoothd may not survive a question without an answer.
        let error = await thrown { _ = try await question.value } as? BusError
        #expect(error?.name == Self.rejected)
        try await stage.wait(for: "refused dev_F0_00_00_00_00_01")
        #expect(await stage.ask("RequestAuthorization", .path(Neighbour.device)) == Self.rejected)
        #expect(stage.log.all == ["app asked consent", "app ended", "refused dev_F0_00_00_00_00_01"])
    }

    @Test("no app of a keeper answers for another one: its sessions hand nothing on", arguments: [true, false])
    func keeper(isFirst: Bool) async throws {
        let stage = try await Stage()
        try await stage.register()
        let other = try await Neighbour(stage)
        let (core, start) = CentralSide.core(
            .init(), in: isFirst ? stage.script.session : other.session, preserved: nil,
            place: DispatchQueue(label: "test"), isHosted: true, receive: { _ in })
        start()
        other.turn {}
        #expect(await stage.ask("RequestAuthorization", .path(Neighbour.device)) == Self.rejected)
        #expect(stage.log.all.isEmpty)
        core.release()
    }
}
