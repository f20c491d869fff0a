import BluezKitRestore
import BluezDBus
import Testing

@testable import BluezKit

/// The discovery that runs for an attempt to connect a bonded peripheral, with Linux 6.15 and later.
@Suite struct AttemptDiscoveryTests: ScriptedLink {
    let script: ScriptedBus
    let core: PeripheralCore

    init() async throws {
        (script, core) = try await Self.make(discovers: false) {
            var timing = $0
            (timing.link.backOff, timing.link.longestBackOff) = (.seconds(3600), .seconds(3600))
            (timing.connect.bondsNeedDiscovery, timing.connect.bondedPause) = (true, .milliseconds(1))
            timing.connect.discoveryPause = .seconds(3600)
            return timing
        }
    }

    /// An app connects the peripheral, which is away, and a discovery runs.
    private func connectDiscovering() async throws -> ScriptedBus.Call {
        let attempt = try await self.attempt(isBonded: true)
        try await script.expect("StartDiscovery").answer()
        return attempt
    }

    private func expectEnd() async throws {
        try await script.expect("StopDiscovery").answer()
        try await script.expectNoCall()
    }

    @Test("CN-2 a discovery runs while a bonded peripheral is attempted, until its link is up")
    func linkUp() async throws {
        let attempt = try await connectDiscovering()
        try connected(true)
        try await expectEnd()
        attempt.answer()
        try await script.expectNoCall()
    }

    @Test("CN-2 the discovery for an attempt ends when the attempt fails")
    func failed() async throws {
        try await connectDiscovering().refuse("Failed", "le-connection-abort-by-local")
        try await expectEnd()
    }

    @Test("CN-9 the discovery for an attempt has ended when the link is lost before BlueZ answers")
    func lostBond() async throws {
        let attempt = try await connectDiscovering()
        try connected(true)
        try connected(false)
        try await script.expect("StopDiscovery").answer()
        attempt.refuse("Failed", "le-connection-abort-by-local")
        try await script.settle()
        #expect(script.central.discovery.description.contains("wished: nil"))
    }

    @Test(
        "CN-7 the discovery for an attempt ends when the app cancels, whether BlueZ answers or not",
        arguments: [false, true])
    func cancelled(isAnswered: Bool) async throws {
        let attempt = try await connectDiscovering()
        script.turn { script.central.cancel(core) }
        if isAnswered { attempt.refuse("Failed", "br-connection-canceled") }
        let calls = [try await script.next(), try await script.next()]
        #expect(Set(calls.map(\.member)) == ["Disconnect", "StopDiscovery"])
        calls.forEach { $0.answer() }
        try await script.expectNoCall()
    }

    @Test("CN-14 the discovery for an attempt ends if the bond was removed during it")
    func unbonded() async throws {
        let attempt = try await connectDiscovering()
        try script.change(path, BlueZ.device, [("Bonded", .bool(false)), ("Paired", .bool(false))])
        try await script.settle()
        attempt.refuse("Failed", "le-connection-abort-by-local")
        try await expectEnd()
    }

    @Test("CN-2 no discovery runs for an attempt to connect to a peripheral that is not bonded")
    func notBonded() async throws {
        _ = try await attempt(isBonded: false)
        for _ in 0..<10 { try await script.expectNoCall() }
    }
}
