import BluezDBus
import Testing

@testable import BluezKit

// When a keeper was lost while an app was asked to pair, the app heard of the new state alone: no one told that the
// question had ended, and its dialog stayed. What it decided there was an answer to the next keeper, whose tickets are
// the same. Now the app's side remembers what it was asked: the app hears of the end, and a late decision is none.
@Suite struct LostKeeperQuestionTests {
    @Test(
        "CN-14 D10 a keeper is lost while an app is asked: it hears once that the question has ended, before the state",
        arguments: [false, true])
    func closesDialog(keeperHasTold: Bool) async throws {
        let (app, told) = (DetachedApp(), EventLog<String>())
        var pairing = BluezPairing()
        pairing.consent = { _, _ in told.append("asked") }
        pairing.ended = { [weak manager = app.manager] _ in
            told.append(manager?.state == .poweredOn ? "ended" : "ended too late")
        }
        app.manager.pairing = pairing
        app.turn {
            app.enter(.poweredOn)
            app.core.ask(.consent, ticket: 1)
            if keeperHasTold { app.core.questionEnded() }
            app.manager.core.post(CentralSide().lost)
        }
        try await app.settle()
        #expect(told.all == ["asked", "ended"])
    }

    @Test("CN-14 what an app decides about a question of a lost keeper is no answer to one of the next keeper")
    func lateDecision() async throws {
        let stage = try await GATTClientTests.Stage()
        let (app, script, device) = (stage.app, stage.script, try #require(ObjectPath(stage.path)))
        let decisions = EventLog<BluezPairing.Decision>()
        var pairing = BluezPairing()
        pairing.consent = { decisions.append($1) }
        app.manager.pairing = pairing
        try await app.settle()
        // Of these the core in this process, which takes the place of the next keeper's, does not know.
        app.turn {
            app.core.ask(.consent, ticket: 1)
            app.manager.core.post(CentralSide().lost)
        }
        let early: BluezPairing.Decision = try await decisions.next("question") { $0 }
        try await app.settle()
        let again = app.manager.peripheral(app.device.identity)
        async let refusal = script.askConsent(about: device)
        let decide: BluezPairing.Decision = try await decisions.next("next question") { $0 }
        early(true)
        try await app.settle()
        decide(false)
        #expect(await refusal == "org.bluez.Error.Rejected")
        withExtendedLifetime(again) {}
    }
}
