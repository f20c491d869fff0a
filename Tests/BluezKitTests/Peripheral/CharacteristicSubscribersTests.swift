import BluezDBus
import Testing

@testable import BluezKit

@Suite struct CharacteristicSubscribersTests {
    private let role = DetachedRole()
    private let characteristic = LocalAttributeID(call: 1, index: 0)
    private let one: ObjectPath = "/org/bluez/hci0/dev_F0_00_00_00_00_01"
    private let two: ObjectPath = "/org/bluez/hci0/dev_F0_00_00_00_00_02"

    /// One update that counts.
    private func delivery(_ core: PeripheralManagerCore) -> Delivery {
        #expect(core.updatesInFlight.admit(characteristic))
        return Delivery(of: characteristic, by: core, ways: 1)
    }

    @Test("centrals are listed in the order in which they subscribed, and followed")
    func subscribing() {
        let core = role.core()
        let subscribers = CharacteristicSubscribers(of: characteristic, core)
        role.turn {
            for path in [two, one] { subscribers.subscribed(path) }
            #expect(subscribers.paths == [two.rawValue, one.rawValue])
            #expect(role.role.remoteCentrals.count == 2)
            subscribers.disconnected(RemoteCentral(two))
            #expect(subscribers.paths == [one.rawValue] && !subscribers.awaits(RemoteCentral(two)))
            subscribers.allUnsubscribed()
            #expect(subscribers.paths == [])
            role.role.remoteCentrals.removeAll()
            #expect(role.role.remoteCentrals.count == 0)
        }
    }

    @Test("UP-9 an indication has left when as many have confirmed as it was sent to, the oldest first")
    func confirming() {
        let core = role.core()
        let subscribers = CharacteristicSubscribers(of: characteristic, core)
        role.turn {
            for path in [one, two] { subscribers.subscribed(path) }
            for _ in 0..<2 { subscribers.awaitConfirmation(of: delivery(core)) }
            let counts = (0..<5).map { _ in
                subscribers.confirmed()
                return core.updatesInFlight.count
            }
            #expect(counts == [2, 1, 1, 0, 0])
        }
    }

    @Test("UP-9 a central that unsubscribes confirms nothing any more: all that waited has left")
    func leaving() {
        let core = role.core()
        let subscribers = CharacteristicSubscribers(of: characteristic, core)
        role.turn {
            for path in [one, two] { subscribers.subscribed(path) }
            for _ in 0..<3 { subscribers.awaitConfirmation(of: delivery(core)) }
            subscribers.disconnected(RemoteCentral(one))
            #expect(core.updatesInFlight.count == 0)
        }
    }

    @Test("UP-9 an indication that is not confirmed in time has left; one that was, or was forgotten, counts once")
    func late() async throws {
        let core = role.core()
        let subscribers = CharacteristicSubscribers(of: characteristic, core)
        role.turn {
            role.bus.timing.server.confirmation = .milliseconds(20)
            subscribers.subscribed(one)
            for _ in 0..<2 { subscribers.awaitConfirmation(of: delivery(core)) }
            subscribers.confirmed()
            #expect(core.updatesInFlight.count == 1)
        }
        try await eventually("no update is under way") { core.updatesInFlight.count == 0 }
    }

    @Test("subscribers are removed without a callback when Bluetooth goes off")
    func forgetting() {
        let core = role.core()
        let subscribers = CharacteristicSubscribers(of: characteristic, core)
        role.turn {
            subscribers.subscribed(one)
            subscribers.awaitConfirmation(of: delivery(core))
            subscribers.forget()
            #expect(subscribers.paths == [])
            // Its end is that of all updates.
            #expect(core.updatesInFlight.count == 1)
            subscribers.confirmed()
            #expect(core.updatesInFlight.count == 1)
        }
    }
}
