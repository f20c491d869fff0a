import Testing

@testable import BluezKit

@Suite struct RestorationStateMachineTests {
    private typealias Machine = RestorationStateMachine<Int>

    private func machine(_ events: Machine.Event...) -> Machine {
        var machine = Machine()
        for event in events { _ = machine.handle(event) }
        return machine
    }

    @Test("each preserved peripheral is asked about, and the app hears when the last one has answered")
    func answers() {
        var machine = Machine()
        #expect(machine.handle(.stateChanged(isOn: true)) == [.prepare, .ask] && !machine.isDone)
        #expect(machine.handle(.asks(1)) == [] && machine.handle(.asks(2)) == [])
        #expect(machine.handle(.allAsked) == [.startTimer])
        #expect(machine.handle(.answered(2)) == [] && !machine.isDone)
        #expect(machine.handle(.answered(1)) == [.finish] && machine.isDone)
    }

    @Test("where Bluetooth is not on, or nothing has to be asked, the app hears at once")
    func nothingToAsk() {
        var machine = Machine()
        #expect(machine.handle(.stateChanged(isOn: false)) == [.prepare, .finish] && machine.isDone)
        machine = self.machine(.stateChanged(isOn: true))
        #expect(machine.handle(.allAsked) == [.finish] && machine.isDone)
    }

    @Test("an answer that comes while others are still to be asked does not end it")
    func earlyAnswer() {
        var machine = machine(.stateChanged(isOn: true), .asks(1))
        #expect(machine.handle(.answered(1)) == [] && machine.handle(.asks(2)) == [])
        #expect(machine.handle(.allAsked) == [.startTimer])
        #expect(machine.handle(.answered(2)) == [.finish])
        machine = self.machine(.stateChanged(isOn: true), .asks(1), .answered(1))
        #expect(machine.handle(.allAsked) == [.finish])
    }

    @Test("what ends it first ends it once: answers, the time, or another state", arguments: 0..<6)
    func once(_ order: Int) {
        let events: [Machine.Event] = [.answered(1), .timerFired, .stateChanged(isOn: false)]
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]
        var machine = machine(.stateChanged(isOn: true), .asks(1), .allAsked)
        let actions = orders[order].map { machine.handle(events[$0]) }
        #expect(actions == [[.finish], [], []] && machine.isDone)
        #expect(machine.handle(.stateChanged(isOn: true)) == [] && machine.handle(.answered(1)) == [])
    }

    @Test("an answer that was not asked for, or comes twice, does not count for another one")
    func strangeAnswers() {
        var machine = machine(.stateChanged(isOn: true), .asks(1), .asks(2), .allAsked)
        for id in [3, 1, 1, 3] { #expect(machine.handle(.answered(id)) == []) }
        #expect(machine.handle(.answered(2)) == [.finish])
    }
}
