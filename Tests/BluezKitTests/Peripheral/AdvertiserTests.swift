import BluezKitSimulator
import Testing

@testable import BluezKit

@Suite struct AdvertiserTests {
    // The start had failed, and its object had left the bus; but bluetoothd, which answers nothing if it does not learn
    // in time what to advertise, kept one of its few instances for it. Now that is given back.
    @Test("AD-3 AD-7 an advertisement whose start bluetoothd does not answer takes no room, and may start again")
    func unansweredStart() async throws {
        let world = try await SimulatedWorld(.calm, times: .virtual)  // 30 s pass at once
        let publisher = Publisher(world)
        try await publisher.powerOn()
        world.simulator.inject(SimulatorFault("RegisterAdvertisement", .ignore))
        #expect(try await publisher.advertise() is CBError)
        #expect(!publisher.manager.isAdvertising)
        #expect(await world.simulator.waitForCalls("UnregisterAdvertisement") != nil)
        #expect(try await publisher.advertise() == nil)
        #expect(publisher.manager.isAdvertising)
    }
}
