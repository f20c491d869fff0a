import Testing

@testable import BluezKit

@Suite struct AgentStateMachineTests {
    private typealias Machine = AgentStateMachine
    private let timing = BlueZTiming.Pairing()
    private let plain = Machine.Registration(owner: ":1.1", capability: "NoInputNoOutput")
    private let able = Machine.Registration(owner: ":1.1", capability: "KeyboardDisplay")
    private let restarted = Machine.Registration(owner: ":1.2", capability: "NoInputNoOutput")

    @Test("an agent is registered once for each bluetoothd and capability; the same one gives up the old one first")
    func registration() {
        var machine = Machine()
        #expect(machine.need(plain) == [.register(plain)] && machine.need(plain) == [])
        #expect(machine.need(able) == [.replace, .register(able)])
        #expect(machine.need(restarted) == [.register(restarted)], "the new bluetoothd knows none")
        machine.released()
        #expect(machine.need(restarted) == [.register(restarted)], "BlueZ does not know the old one any more")
    }

    @Test("after a registration and a pause BlueZ is asked once whether devices can bond")
    func check() {
        var machine = Machine()
        _ = machine.need(plain)
        #expect(machine.handle(.registered, of: plain) == [.startTimer(timing.agentRetry)])
        #expect(machine.handle(.timerFired(isAsking: false), of: plain) == [.askPairable])
        for answer in [true, nil] { #expect(machine.handle(.pairable(answer), of: plain) == []) }
    }

    @Test("a question that BlueZ waits for is not ended by another registration")
    func question() {
        var machine = Machine()
        _ = machine.need(plain)
        for _ in 0..<5 {
            #expect(machine.handle(.timerFired(isAsking: true), of: plain) == [.startTimer(timing.agentRetry)])
        }
        #expect(machine.handle(.timerFired(isAsking: false), of: plain) == [.askPairable])
    }

    @Test("while bonding is off, the agent is registered again a limited number of times")
    func again() {
        var machine = Machine()
        _ = machine.need(plain)
        for _ in 1..<timing.agentRetries {
            #expect(machine.handle(.pairable(false), of: plain) == [.unregister])
            #expect(machine.handle(.unregistered, of: plain) == [.register(plain)])
        }
        #expect(machine.handle(.pairable(false), of: plain) == [.warn])
        // Another capability has its own tries.
        _ = machine.need(able)
        #expect(machine.handle(.pairable(false), of: able) == [.unregister])
    }

    @Test("events of an earlier registration, or after the agent was released, have no effect")
    func late() {
        let events: [Machine.Event] = [
            .registered, .timerFired(isAsking: true), .timerFired(isAsking: false), .pairable(false), .unregistered,
        ]
        var replaced = Machine()
        _ = replaced.need(plain)
        _ = replaced.need(able)
        var released = Machine()
        _ = released.need(plain)
        released.released()
        for event in events {
            #expect(replaced.handle(event, of: plain) == [] && released.handle(event, of: plain) == [])
        }
        #expect(replaced.registration == able && released.registration == nil)
        #expect(replaced.handle(.pairable(false), of: able) == [.unregister], "no try was counted")
    }
}
