import Testing

@testable import BluezKit

@Suite struct UpdatesInFlightTests {
    private let characteristic = LocalAttributeID(call: 1, index: 0)

    @Test("UP-2 UP-3 the window of each characteristic has its limit, and readiness is due once it was refused")
    func window() {
        let (updates, other) = (UpdatesInFlight(), LocalAttributeID(call: 1, index: 1))
        for _ in 0..<UpdateWindow.limit { #expect(updates.admit(characteristic)) }
        #expect(!updates.admit(characteristic) && updates.admit(other))
        #expect(updates.count == UpdateWindow.limit + 1)
        let generation = updates.generation
        #expect(!updates.release(other, of: generation))
        let ready = (0..<UpdateWindow.limit).filter { _ in updates.release(characteristic, of: generation) }
        #expect(ready == [UpdateWindow.limit / 2 - 1] && updates.count == 0)
    }

    @Test("UP-3 an update from before Bluetooth went makes no room, and no readiness, in what follows")
    func reset() {
        let updates = UpdatesInFlight()
        #expect(updates.admit(characteristic))
        let before = updates.generation
        updates.reset()
        #expect(updates.count == 0)
        for _ in 0...UpdateWindow.limit { _ = updates.admit(characteristic) }
        for _ in 0..<UpdateWindow.limit { #expect(!updates.release(characteristic, of: before)) }
        #expect(updates.count == UpdateWindow.limit && !updates.admit(characteristic))
    }

    @Test("an update counts until it has left by all its ways")
    func delivery() {
        let role = DetachedRole()
        let core = role.core()
        #expect(core.updatesInFlight.admit(characteristic))
        role.turn {
            let delivery = Delivery(of: characteristic, by: core, ways: 3)
            for _ in 0..<2 { delivery.finish() }
            #expect(core.updatesInFlight.count == 1)
            delivery.finish()
            #expect(core.updatesInFlight.count == 0)
        }
    }

    @Test("UP-3 an update that was on its way when Bluetooth went does not count in the next window")
    func lateDelivery() {
        let role = DetachedRole()
        let core = role.core()
        #expect(core.updatesInFlight.admit(characteristic))
        role.turn {
            let delivery = Delivery(of: characteristic, by: core, ways: 1)
            core.dropUpdates()
            #expect(core.updatesInFlight.admit(characteristic))
            delivery.finish()
            #expect(core.updatesInFlight.count == 1)
        }
    }
}
