import BluezDBus
import Foundation
import Testing

@testable import BluezKit

// With BluezManagerOptionAllowJustWorksPairing this process's agent agreed to whatever BlueZ asked: pairings on other
// adapters, and those that had nothing to do with the app, as nothing was published. Now it agrees to devices of the
// adapter that is used, while a manager with the option has services.
@Suite struct ForeignPairingTests {
    @Test("PB-10 the agent agrees to pairings on its adapter while services are published, and to no others")
    func scope() async throws {
        let victim = try await Victim(options: [BluezManagerOptionAllowJustWorksPairingKey: true])
        func isAllowed(_ path: ObjectPath) async -> Bool {
            await victim.refusal {
                try await victim.fake.call(
                    "/org/bluezkit/agent", "RequestAuthorization", [.path(path)], interface: "org.bluez.Agent1")
            } == nil
        }
        #expect(await isAllowed(FakeBlueZ.device))
        for path: ObjectPath in [
            "/org/bluez/hci7/dev_F0_00_00_00_00_01", "/nonsense", "/", "/org/bluez/hci0",
            "/org/bluez/hci0/dev_F0_00_00_00_00_01/service0001",
        ] {
            #expect(await isAllowed(path) == false, "\(path)")
        }
        // A number that somebody would have to compare is nothing that may pass unseen.
        #expect(
            await victim.refusal {
                try await victim.fake.call(
                    "/org/bluezkit/agent", "RequestConfirmation", [.path(FakeBlueZ.device), .uint32(1)],
                    interface: "org.bluez.Agent1")
            } == "org.bluez.Error.Rejected")
        victim.publisher.manager.removeAllServices()
        _ = try await victim.fake.calls.next("withdrawal") { $0.member == "UnregisterApplication" ? true : nil }
        #expect(await isAllowed(FakeBlueZ.device) == false)
    }
}
