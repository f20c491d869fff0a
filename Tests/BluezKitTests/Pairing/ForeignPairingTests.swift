import BluezDBus
import Foundation
import Testing

@testable import BluezKit

// With BluezManagerOptionAllowJustWorksPairing this process's agent accepted everything that BlueZ asked: pairing on
// other adapters, and pairing unrelated to the app, because nothing was published. Now it accepts devices of the
// adapter in use, while a manager with the option has services, or solicits those of who connects.
@Suite struct ForeignPairingTests {
    @Test("PB-10 the agent accepts pairing only on its adapter and while services are published or solicited")
    func scope() async throws {
        let victim = try await Victim(options: [BluezManagerOptionAllowJustWorksPairingKey: true])
        func isAllowed(_ path: ObjectPath) async -> Bool {
            await victim.refusal {
                try await victim.fake.call(
                    "/org/bluezkit/agent", "org.bluez.Agent1", "RequestAuthorization", [.path(path)])
            } == nil
        }
        #expect(await isAllowed(ScriptedBus.device))
        for path: ObjectPath in [
            "/org/bluez/hci7/dev_F0_00_00_00_00_01", "/nonsense", "/", "/org/bluez/hci0",
            "/org/bluez/hci0/dev_F0_00_00_00_00_01/service0001",
        ] {
            #expect(await isAllowed(path) == false, "\(path)")
        }
        // A number that the user would have to compare must not be accepted automatically.
        #expect(
            await victim.refusal {
                try await victim.fake.call(
                    "/org/bluezkit/agent", "org.bluez.Agent1", "RequestConfirmation",
                    [.path(ScriptedBus.device), .uint32(1)])
            } == "org.bluez.Error.Rejected")
        victim.publisher.manager.removeAllServices()
        try await victim.fake.skip(to: "UnregisterApplication")
        #expect(await isAllowed(ScriptedBus.device) == false)
        // A phone shows what is solicited only to who is paired, and pairs at once when its user chooses this computer.
        for (key, allows) in [
            (CBAdvertisementDataServiceUUIDsKey, false), (BluezAdvertisementSolicitedServiceUUIDsKey, true),
        ] {
            #expect(try await victim.publisher.advertise([key: [CBUUID(string: "1805")]]) == nil)
            #expect(await isAllowed(ScriptedBus.device) == allows)
            victim.publisher.manager.stopAdvertising()
            try await victim.fake.skip(to: "UnregisterAdvertisement")
            #expect(await isAllowed(ScriptedBus.device) == false)
        }
    }
}
