import BluezDBus
import Testing

@testable import BluezKit

// The rig on a slow day: the peripheral had lost its keys, the app heard of it and removed the bond, and that called
// off the second attempt that bluetoothd makes on its own, in the moment in which it succeeded. Linux lost that link,
// which stayed on the air, and the peripheral could not be found until Bluetooth was switched off.
/// When the loss of a link that could not be encrypted is reported.
@Suite struct SecondAttemptTests: ScriptedLink {
    let script: ScriptedBus
    let core: PeripheralCore

    init() async throws { (script, core) = try await Self.make() }

    /// The attempt of an app, whose link is up and not resolved.
    private func connect(
        isBonded: Bool = true, heldLoss: Duration = .zero, secondAttempt: Duration = .seconds(3600)
    ) async throws -> ScriptedBus.Call {
        script.turn {
            script.bus.timing.link.heldLoss = heldLoss
            script.bus.timing.link.secondAttempt = secondAttempt
            script.bus.timing.link.lostBondAnswer = .seconds(3600)
        }
        let attempt = try await self.attempt(isBonded: isBonded)
        try connected(true)
        try await wait { $0.request?.wasUp == true }
        return attempt
    }

    private func expectHeld() async throws {
        for _ in 0..<20 { try await script.settle() }
        #expect(script.turn { core.request != nil })
    }

    @Test("CN-9 a lost bond is reported when BlueZ has made the link a second time")
    func secondLink() async throws {
        try await connect().answer()
        try connected(false)
        try await expectHeld()
        try connected(true)
        try await wait { $0.request == nil }
    }

    @Test(
        "CN-9 a lost bond is reported if BlueZ makes no second link in time, whichever of end and answer comes first",
        arguments: [false, true])
    func away(isAnsweredLast: Bool) async throws {
        let attempt = try await connect(heldLoss: .seconds(3600), secondAttempt: .milliseconds(1))
        if !isAnsweredLast { attempt.answer() }
        try connected(false)
        if isAnsweredLast { attempt.answer() }
        try await wait { $0.request == nil }
    }

    @Test("CN-9 the loss of a link without a bond is reported without waiting for a second link")
    func notBonded() async throws {
        try await connect(isBonded: false).answer()
        try connected(false)
        try await wait { $0.request == nil }
    }
}
