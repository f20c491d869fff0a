import Testing

@testable import BluezKit

@Suite struct AdvertiserStateMachineTests {
    @Test("AD-3 AD-4 O-35 one start is confirmed; later ones are refused, and the first continues")
    func starts() {
        var machine = AdvertiserStateMachine()
        #expect(machine.start() == [.register(1)])
        #expect(machine.start() == [])
        #expect(machine.replied(1, true) == [.confirm, .refuse])
        #expect(machine.start() == [.refuse])
        #expect(machine.phase == .on)
        #expect(machine.stop() == [.unregister(1)])
        #expect(machine.stop() == [])
        #expect(machine.start() == [.register(2)])
    }

    @Test("a start that was stopped is undone when BlueZ has answered, and does not disturb the next one")
    func takenBack() {
        var machine = AdvertiserStateMachine()
        _ = machine.start()
        #expect(machine.stop() == [])
        #expect(machine.start() == [.register(2)])
        #expect(machine.replied(1, true) == [.unregister(1)])
        #expect(machine.replied(2, true) == [.confirm])
        #expect(machine.replied(1, false) == [])
    }

    @Test("a refusal answers all pending starts, and the next start is a new attempt")
    func refusal() {
        var machine = AdvertiserStateMachine()
        _ = machine.start()
        _ = machine.start()
        #expect(machine.replied(1, false) == [.fail, .fail])
        #expect(machine.start() == [.register(2)])
        machine.lost()
        #expect(machine.replied(2, true) == [.unregister(2)])
        #expect(machine.phase == .off)
    }
}
