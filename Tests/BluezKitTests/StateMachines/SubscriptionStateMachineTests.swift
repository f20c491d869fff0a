import Testing

@testable import BluezKit

@Suite struct SubscriptionStateMachineTests {
    typealias Machine = SubscriptionStateMachine<String>

    private func receive(_ machine: inout Machine, _ value: [UInt8]) -> [Machine.Action] {
        value.withUnsafeBytes { machine.received($0) }
    }

    private func readReplied(_ machine: inout Machine, _ value: [UInt8]) -> [Machine.Action] {
        value.withUnsafeBytes { machine.readReplied($0) }
    }

    private func subscribed(_ subscribers: String...) -> Machine {
        var machine = Machine()
        for subscriber in subscribers {
            _ = machine.set(true, for: subscriber)
            _ = machine.startReplied(true)
        }
        return machine
    }

    @Test("NT-9 O-23 values that arrive before the answer are held back until the confirmation")
    func holdsBack() {
        var machine = Machine()
        #expect(machine.set(true, for: "a") == [.startNotify])
        #expect(receive(&machine, [1]) == [])
        #expect(receive(&machine, [2]) == [])
        #expect(machine.startReplied(true) == [.confirm("a", isNotifying: true), .deliver([1]), .deliver([2])])
        #expect(receive(&machine, [3]) == [.deliver([3])])
    }

    @Test("a refused subscription fails and delivers nothing")
    func refused() {
        var machine = Machine()
        _ = machine.set(true, for: "a")
        _ = receive(&machine, [1])
        #expect(machine.startReplied(false) == [.fail("a")])
        #expect(receive(&machine, [2]) == [])
        #expect(machine.isIdle)
    }

    @Test("NT-8 BlueZ is called only for the first subscriber and after the last one")
    func counts() {
        var machine = subscribed("a")
        #expect(machine.set(true, for: "b") == [.confirm("b", isNotifying: true)])
        #expect(machine.set(false, for: "a") == [.confirm("a", isNotifying: false)])
        #expect(machine.set(false, for: "b") == [.stopNotify])
        #expect(machine.stopReplied() == [.confirm("b", isNotifying: false)])
        #expect(receive(&machine, [1]) == [])
    }

    @Test("NT-6 requesting the current state is confirmed without a call")
    func same() {
        var machine = subscribed("a")
        #expect(machine.set(true, for: "a") == [.confirm("a", isNotifying: true)])
        var off = Machine()
        #expect(off.set(false, for: "a") == [.confirm("a", isNotifying: false)])
        #expect(machine.set(false, for: "stranger") == [.confirm("stranger", isNotifying: false)])
        #expect(machine.phase == .on)
    }

    @Test("RW-3 O-24 the echo of a read is not a notification; other values are delivered, in order")
    func readEcho() {
        var machine = subscribed("a")
        machine.readStarted()
        #expect(receive(&machine, [7]) == [])
        #expect(readReplied(&machine, [7]) == [])
        machine.readStarted()
        #expect(receive(&machine, [1]) == [])
        #expect(receive(&machine, [2]) == [.deliver([1])])
        #expect(receive(&machine, [9]) == [.deliver([2])])
        #expect(readReplied(&machine, [9]) == [])
        machine.readStarted()
        #expect(receive(&machine, [5]) == [])
        #expect(machine.readReplied(nil) == [.deliver([5])])
    }

    @Test("when the last subscriber is released, BlueZ's subscription ends")
    func drops() {
        var machine = subscribed("a", "b")
        let dropped = ["a", "a", "b"].map { subscriber in machine.drop { $0 == subscriber } }
        #expect(dropped == [false, false, true])
        #expect(machine.isIdle)
    }

    @Test("a subscriber that is released while BlueZ is called: the subscription is ended")
    func dropsWhileAsking() {
        var starting = Machine()
        _ = starting.set(true, for: "a")
        #expect(receive(&starting, [1]) == [])
        #expect(!starting.drop { $0 == "a" })
        #expect(starting.startReplied(true) == [.stopNotify])
        #expect(starting.isIdle)
        var refused = Machine()
        _ = refused.set(true, for: "a")
        #expect(!refused.drop { $0 == "a" })
        #expect(refused.startReplied(false) == [])
        #expect(refused.isIdle)
        var stopping = subscribed("a")
        #expect(stopping.set(false, for: "a") == [.stopNotify])
        #expect(!stopping.drop { $0 == "a" })
        #expect(stopping.stopReplied() == [])
        #expect(stopping.isIdle)
    }

    @Test("a subscriber that subscribes again replaces its earlier request")
    func replaces() {
        struct Named: Hashable {
            let name: String
            let object: Int
            static func == (a: Named, b: Named) -> Bool { a.name == b.name }
            func hash(into hasher: inout Hasher) { hasher.combine(name) }
        }
        var machine = SubscriptionStateMachine<Named>()
        _ = machine.set(true, for: Named(name: "a", object: 1))
        _ = machine.startReplied(true)
        _ = machine.set(true, for: Named(name: "a", object: 2))
        #expect(machine.subscribers.map(\.object) == [2])
    }
}
