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

@Suite struct SubscriberBookTests {
    private typealias Book = SubscriberBook<String>

    @Test("UP-7 each central is listed once, and removed individually, with the last subscription, or with its link")
    func lists() {
        var book = Book()
        #expect(book.subscribed("A") == [.subscribed("A")])
        #expect(book.subscribed("B") == [.subscribed("B")])
        #expect(book.subscribers == ["A", "B"])
        #expect(book.unsubscribed("A") == [.unsubscribed("A")])
        #expect(book.unsubscribed("A") == [])
        #expect(book.disconnected("B", isBonded: false) == [.unsubscribed("B")])
        #expect(book.connected("B") == [])
        _ = book.subscribed("A")
        _ = book.subscribed("C")
        #expect(book.allUnsubscribed() == [.unsubscribed("A"), .unsubscribed("C")])
        #expect(book.subscribers.isEmpty)
    }

    @Test("a central that subscribes again had unsubscribed unnoticed")
    func missedEnd() {
        var book = Book()
        _ = book.subscribed("A")
        #expect(book.subscribed("A") == [.unsubscribed("A"), .subscribed("A")])
        #expect(book.subscribers == ["A"])
    }

    @Test("a bonded central is subscribed again with its next link")
    func bonded() {
        var book = Book()
        _ = book.subscribed("A")
        #expect(book.disconnected("A", isBonded: true) == [.unsubscribed("A")])
        #expect(book.away == ["A"])
        #expect(book.connected("A") == [.subscribed("A")])
        #expect(book.away.isEmpty)
        #expect(book.connected("A") == [])
        // A central that was not subscribed is not remembered.
        #expect(book.disconnected("B", isBonded: true) == [])
        #expect(book.connected("B") == [])
    }
}

@Suite struct UpdateWindowTests {
    @Test("UP-2 UP-3 O-37 false when full, and readiness once after each such period")
    func window() {
        var window = UpdateWindow()
        for _ in 0..<UpdateWindow.limit { #expect(window.admit() == true) }
        #expect(window.admit() == false)
        #expect(window.admit() == false)
        #expect(window.inFlight == UpdateWindow.limit)
        var told = 0
        for _ in 0..<UpdateWindow.limit where window.release() { told += 1 }
        #expect(told == 1)
        #expect(window.inFlight == 0)
        #expect(window.release() == false)
        #expect(window.inFlight == 0)
    }

    @Test("UP-3 no readiness without a refusal before, nor after Bluetooth was off")
    func unasked() {
        var windows = UpdateWindows<String>()
        for _ in 0..<UpdateWindow.limit { _ = windows.admit("A") }
        for _ in 0..<UpdateWindow.limit { #expect(windows.release("A") == false) }
        for _ in 0...UpdateWindow.limit { _ = windows.admit("A") }
        windows.reset()
        #expect(windows.admit("A") == true)
        #expect(windows.release("A") == false)
    }

    @Test("UP-2 UP-3 a characteristic whose window is full does not delay others, and becomes ready on its own")
    func several() {
        var windows = UpdateWindows<String>()
        for _ in 0..<UpdateWindow.limit { #expect(windows.admit("A") == true) }
        #expect(windows.admit("A") == false)
        #expect(windows.admit("B") == true)
        #expect(windows.inFlight == UpdateWindow.limit + 1)
        #expect(windows.release("B") == false)
        var told = 0
        for _ in 0..<UpdateWindow.limit where windows.release("A") { told += 1 }
        #expect(told == 1)
        #expect(windows.inFlight == 0)
        #expect(windows.release("A") == false)
        #expect(windows.release("C") == false)
    }
}
