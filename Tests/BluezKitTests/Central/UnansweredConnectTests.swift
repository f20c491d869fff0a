import BluezDBus
import Testing

@testable import BluezKit

/// A `Connect` that BlueZ does not answer: it has lost it, or has made the link without a word.
@Suite struct UnansweredConnectTests {
    private let script: ScriptedBus
    private let core: PeripheralCore
    private static let identity = DetachedCentral.identity(1)
    private let path = ScriptedBus.path(identity)

    init() async throws {
        script = try await ScriptedBus {
            var timing = $0
            (timing.link.lostConnect, timing.link.lateEnd) = (.milliseconds(1), .seconds(3600))
            timing.link.heldLoss = .zero
            return timing
        }
        try await script.powerOn()
        core = PeripheralCore(identity: Self.identity, manager: script.manager())
        script.answerRoutinely([
            "RegisterAgent": [], "UnregisterAgent": [], "Get": [.variant(.bool(false))],
            "Introspect": [.string("<node/>")],
            "SetDiscoveryFilter": [], "StartDiscovery": [], "StopDiscovery": [],
        ])
    }

    private func connect() async throws -> ScriptedBus.Call {
        script.turn { script.central.connect(core, connectionID: core.begin(), .test()) }
        try await answerRead(connected: false)
        return try await script.expect("Connect", at: path)
    }

    private func answerRead(connected: Bool) async throws {
        try await script.expect("GetAll", at: path).answer(
            .properties(ScriptedBus.properties(Self.identity, connected: connected)))
    }

    private func connected(_ isConnected: Bool) throws {
        try script.change(path, BlueZ.device, [("Connected", .bool(isConnected))])
    }

    private func wait(until condition: @escaping (PeripheralCore) -> Bool) async throws {
        let deadline = ContinuousClock.now + .seconds(world_deadline)
        while !script.turn({ condition(core) }) {
            try #require(ContinuousClock.now < deadline)
            try await script.settle()
        }
    }

    /// The attempt of an app right after the end of a link, where BlueZ may lose it.
    private func connectAgain() async throws -> ScriptedBus.Call {
        let attempt = try await connect()
        try connected(true)
        try await wait { $0.isUp }
        attempt.answer()
        try connected(false)
        try await wait { $0.request == nil }
        return try await connect()
    }

    @Test("CN-2 a link that BlueZ does not signal is found when its services are resolved")
    func resolved() async throws {
        _ = try await connect()
        try script.change(path, BlueZ.device, [("ServicesResolved", .bool(true))])
        try await wait { $0.isUp }
        try await script.expectNoCall()
    }

    @Test("CN-2 an attempt that BlueZ may have lost is not called off if it has made the link")
    func madeSilently() async throws {
        let attempt = try await connectAgain()
        try await answerRead(connected: true)
        try await wait { $0.isUp }
        attempt.answer()
        try await script.expectNoCall()
        #expect(script.turn { core.isUp })
    }

    @Test("CN-2 an attempt that BlueZ has lost is called off when it says that there is no link")
    func lost() async throws {
        _ = try await connectAgain()
        try await answerRead(connected: false)
        try await script.expect("Disconnect", at: path).answer()
    }

    @Test("CN-2 the end of another program's link is noted, also while a scan has nothing to report of the device")
    func foreignEnd() async throws {
        let app = DetachedApp(on: script.address)
        app.manager.scanForPeripherals(withServices: nil)
        let (path, found) = (ScriptedBus.path(app.device.identity), ScriptedBus.properties(app.device.identity))
        try script.add(path, BlueZ.device, found + [("RSSI", .int16(-50))])
        try script.change(path, BlueZ.device, [("Connected", .bool(true))])
        try script.change(path, BlueZ.device, [("Connected", .bool(false))])
        try await script.settle()
        let objectPath = try #require(ObjectPath(path))
        #expect(script.turn { script.central.store.hadLink(objectPath) })
    }
}
