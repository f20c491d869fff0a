import Testing

@testable import BluezKit

@Suite struct ApplicationStateMachineTests {
    private typealias Machine = ApplicationStateMachine<String>

    @Test("PB-1 a service is registered, confirmed, and withdrawn")
    func lifeOfOne() {
        var machine = Machine()
        #expect(machine.add("A") == [.register(["A"])])
        #expect(machine.registerReplied(true) == [.confirm("A")])
        #expect(machine.phase == .registered)
        #expect(machine.remove("A") == [.withdraw])
        #expect(machine.withdrawReplied() == [])
        #expect(machine.phase == .idle)
    }

    @Test(
        "PB-5 a service that includes another is registered with it, the included one first, and confirmed separately")
    func includes() {
        var machine = Machine()
        _ = machine.add("included")
        _ = machine.registerReplied(true)
        #expect(machine.add("including") == [.withdraw])
        #expect(machine.withdrawReplied() == [.register(["included", "including"])])
        #expect(machine.registerReplied(true) == [.confirm("including")])
        #expect(machine.remove("including") == [.withdraw])
        #expect(machine.withdrawReplied() == [.register(["included"])])
        #expect(machine.registerReplied(true) == [])
    }

    @Test("a service that BlueZ refuses fails alone: those registered before are registered again")
    func refusal() {
        var machine = Machine()
        _ = machine.add("A")
        _ = machine.registerReplied(true)
        _ = machine.add("B")
        _ = machine.withdrawReplied()
        #expect(machine.registerReplied(false) == [.fail("B"), .register(["A"])])
        // Refused as well: it gives up instead of trying forever.
        #expect(machine.registerReplied(false) == [.fail("A")])
        #expect(machine.phase == .idle)
        #expect(machine.wanted.isEmpty)
    }

    @Test("changes during a registration are applied afterwards")
    func changesMeanwhile() {
        var machine = Machine()
        _ = machine.add("A")
        #expect(machine.adopt(["B"]) == [])
        #expect(machine.registerReplied(true) == [.confirm("A"), .withdraw])
        #expect(machine.remove("B") == [])
        #expect(machine.withdrawReplied() == [.register(["A"])])
        #expect(machine.remove("A") == [])
        #expect(machine.registerReplied(true) == [.withdraw])
        #expect(machine.withdrawReplied() == [])
    }

    @Test("answers after the loss of BlueZ are ignored")
    func loss() {
        var machine = Machine()
        _ = machine.add("A")
        machine.lost()
        #expect(machine.registerReplied(true) == [])
        #expect(machine.withdrawReplied() == [])
    }
}
