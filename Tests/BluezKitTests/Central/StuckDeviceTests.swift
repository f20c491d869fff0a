import BluezDBus
import Testing

@testable import BluezKit

// A device that a user had blocked was no longer when BlueZ had been made to forget it as a repair. And a device that
// BlueZ had forgotten was removed once more if another program had found it again before BlueZ's answer
// came, because the removal of what no app used any longer was not noted.
@Suite struct StuckDeviceTests {
    private typealias Stage = GATTClientTests.Stage

    /// The link has ended during a read that BlueZ does not answer, and no app uses the device any longer.
    /// - Parameter settings: What the user sets while the link is there.
    private func stuck(_ settings: [(String, Value)] = []) async throws -> Stage {
        let stage = try await Stage()
        let (heart, _) = try await stage.discover()
        if !settings.isEmpty { try stage.script.change(stage.path, BlueZ.device, settings) }
        stage.script.stopAnswering("Get")
        stage.app.peripheral.readValue(for: heart)
        try await stage.script.expect("ReadValue", at: stage.heart)
        try stage.script.emit(
            stage.path, BlueZ.device, "Disconnected", .string("org.bluez.Reason.Remote"), .string("gone"))
        try stage.script.change(stage.path, BlueZ.device, [("Connected", .bool(false))])
        try await stage.script.expect("Get", "Connected", at: stage.path).answer(.variant(.bool(false)))
        return stage
    }

    @Test("a device that BlueZ was made to forget is left alone if another program has found it again at once")
    func isForgottenOnce() async throws {
        let stage = try await stuck()
        let removal = try await stage.script.expect("RemoveDevice", at: ScriptedBus.hci0)
        #expect(stage.script.turn { stage.script.central.store.known(stage.app.device.identity) } == nil)
        try stage.script.remove(stage.path, BlueZ.device)
        try stage.script.add(stage.path, BlueZ.device, ScriptedBus.properties(stage.app.device.identity))
        removal.answer()
        try await stage.script.expect("Get", "Paired", at: stage.path).answer(.variant(.bool(false)))
        try await stage.script.expectNoCall()
    }

    @Test("a device that the user has blocked meanwhile stays blocked: BlueZ is not made to forget it")
    func staysBlocked() async throws {
        let stage = try await stuck([("Blocked", .bool(true))])
        try await stage.script.expectNoCall()
    }
}
