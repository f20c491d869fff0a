import BluezDBus
import Testing

@testable import BluezKit

/// A suite in which the test is bluetoothd, and an app connects one peripheral.
protocol ScriptedLink {
    var script: ScriptedBus { get }
    var core: PeripheralCore { get }
}

extension ScriptedLink {
    static var identity: DeviceIdentity { DetachedCentral.identity(1) }
    var path: String { ScriptedBus.path(Self.identity) }

    /// - Parameter discovers: Whether the calls that begin and end a discovery are answered without the test.
    static func make(
        discovers: Bool = true, _ prepare: (BlueZTiming) -> BlueZTiming = { $0 }
    ) async throws -> (ScriptedBus, PeripheralCore) {
        let script = try await ScriptedBus(prepare)
        try await script.powerOn()
        script.answerRoutinely([
            "RegisterAgent": [], "UnregisterAgent": [], "Get": [.variant(.bool(false))],
            "Introspect": [.string("<node/>")],
            "SetDiscoveryFilter": [],
        ])
        if discovers { script.answerRoutinely(["StartDiscovery": [], "StopDiscovery": []]) }
        return (script, PeripheralCore(identity: identity, manager: script.manager()))
    }

    /// The app connects the peripheral, which is away.
    func attempt(isBonded: Bool) async throws -> ScriptedBus.Call {
        script.turn { script.central.connect(core, connectionID: core.begin(), .test()) }
        try await answerRead(connected: false, isBonded: isBonded)
        return try await script.expect("Connect", at: path)
    }

    func answerRead(connected: Bool, isBonded: Bool = false) async throws {
        let properties =
            ScriptedBus.properties(Self.identity, connected: connected)
            + [("Bonded", .bool(isBonded)), ("Paired", .bool(isBonded))]
        try await script.expect("GetAll", at: path).answer(.properties(properties))
    }

    func connected(_ isConnected: Bool) throws {
        try script.change(path, BlueZ.device, [("Connected", .bool(isConnected))])
    }

    func wait(until condition: @escaping (PeripheralCore) -> Bool) async throws {
        let deadline = ContinuousClock.now + .seconds(world_deadline)
        while !script.turn({ condition(core) }) {
            try #require(ContinuousClock.now < deadline)
            try await script.settle()
        }
    }
}
