import Testing

@testable import BluezKit

@Suite struct PairingQuestionTests {
    @Test("a question without a handler is refused; just works is allowed, asked about or refused")
    func policies() {
        let nothing: PairingAbilities = []
        for question: PairingQuestion in [.passkey, .display(1), .comparison(1), .consent] {
            #expect(question.policy(nothing) == .refuse)
        }
        var pairing = BluezPairing()
        pairing.consent = { _, _ in }
        #expect(PairingQuestion.consent.policy(pairing.abilities) == .ask)
        pairing.allowsJustWorks = true
        #expect(PairingQuestion.consent.policy(pairing.abilities) == .accept)
        #expect(
            PairingQuestion.comparison(1).policy(pairing.abilities) == .refuse,
            "just works does not answer a comparison")
        pairing.comparePasskey = { _, _, _ in }
        #expect(PairingQuestion.comparison(1).policy(pairing.abilities) == .ask)
    }

    @Test("the agent's capability covers only what the handlers of all managers together support")
    func capabilities() {
        var enters = BluezPairing()
        enters.enterPasskey = { _, _ in }
        var displays = BluezPairing()
        displays.displayPasskey = { _, _ in }
        var compares = BluezPairing()
        compares.comparePasskey = { _, _, _ in }
        #expect(PairingAbilities.capability([]) == "NoInputNoOutput")
        #expect(PairingAbilities.capability([.justWorks]) == "NoInputNoOutput")
        #expect(PairingAbilities.capability([enters.abilities]) == "KeyboardOnly")
        #expect(PairingAbilities.capability([displays.abilities]) == "DisplayOnly")
        #expect(PairingAbilities.capability([compares.abilities, .justWorks]) == "DisplayYesNo")
        #expect(PairingAbilities.capability([enters.abilities, displays.abilities]) == "KeyboardDisplay")
        #expect(PairingAbilities.capability([enters.abilities, compares.abilities]) == "KeyboardDisplay")
    }

    @Test(
        "a passkey has six digits, whatever the bus says",
        arguments: [(0, "000000"), (42, "000042"), (4_294_967_295, "967295")])
    func digits(passkey: UInt32, text: String) { #expect(PairingQuestion.digits(passkey) == text) }
}
