import BluezDBus
import Testing

@testable import BluezKit

// A question ended with each message that had `Paired` or `Bonded` in it. BlueZ signals `Paired` although nothing has
// changed: of a pairing without a bond, whose link ends before the services are resolved, when those of the next link
// are (src/device.c, `pending_paired`), amid the next pairing. Now only a change ends one.
@Suite struct QuestionEndTests {
    @Test(
        "CN-14 a question ends when BlueZ has paired or bonded the device, not when it says again that it has not",
        arguments: ["Paired", "Bonded"])
    func endsWithChange(of property: String) async throws {
        let stage = try await GATTClientTests.Stage()
        let told = EventLog<String>()
        var pairing = BluezPairing()
        pairing.consent = { _, _ in told.append("asked") }
        pairing.ended = { _ in told.append("ended") }
        stage.app.manager.pairing = pairing
        try await stage.app.settle()
        let (script, device) = (stage.script, try #require(ObjectPath(stage.path)))
        async let refusal = script.askConsent(about: device)
        try await told.next("question") { $0 == "asked" ? true : nil }
        for property in ["Paired", "Bonded"] {
            try script.change(stage.path, BlueZ.device, [(property, .bool(false))])
        }
        try await script.settle()
        try await stage.app.settle()
        #expect(told.all == ["asked"])
        try script.change(stage.path, BlueZ.device, [(property, .bool(true))])
        try await told.next("end") { $0 == "ended" ? true : nil }
        #expect(await refusal == "org.bluez.Error.Rejected", "no one can answer it any more")
    }
}
