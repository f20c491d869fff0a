import Testing

@testable import BluezKit

@Suite struct AdapterStateMachineTests {
    private func machine(_ events: AdapterStateMachine.Event..., isOnly: Bool = false) -> AdapterStateMachine {
        var machine = AdapterStateMachine()
        machine.isOnly = isOnly
        for event in events { _ = machine.handle(event) }
        return machine
    }

    @Test("the usual adapter takes one query")
    func oneQuestion() {
        var machine = AdapterStateMachine()
        #expect(machine.handle(.owner(present: true)) == [.askPowered("hci0")])
        #expect(machine.handle(.powered("hci0", true)) == [.stopGrace, .use("hci0"), .setState(.poweredOn)])
    }

    @Test("the first adapter that is powered is used, whatever its number")
    func firstPowered() {
        var machine = machine(.owner(present: true))
        #expect(machine.handle(.powered("hci0", false)) == [.list])
        #expect(machine.handle(.listed(["hci0", "hci10", "hci2"])) == [.askPowered("hci10"), .askPowered("hci2")])
        #expect(machine.handle(.powered("hci10", false)) == [])
        #expect(machine.handle(.powered("hci2", true)).contains(.use("hci2")))
        #expect(machine.state == .poweredOn)
    }

    @Test("ST-6 after a restart the adapters are listed again if the one that was used is gone")
    func listsAgain() {
        var machine = machine(
            .owner(present: true), .powered("hci0", false), .listed(["hci0", "hci1"]), .powered("hci1", true),
            .owner(present: false))
        #expect(machine.handle(.owner(present: true)).contains(.askPowered("hci1")))
        #expect(machine.handle(.powered("hci1", nil)) == [.list])
    }

    @Test("if no adapter is powered, the first one is used, and is off")
    func noneIsPowered() {
        var machine = machine(.owner(present: true), .powered("hci0", false))
        #expect(machine.handle(.listed(["hci0"])) == [.stopGrace, .use("hci0"), .setState(.poweredOff)])
        #expect(machine.handle(.powered("hci0", true)) == [.setState(.poweredOn)])
    }

    @Test("ST-6 the adapter that the app has chosen is not waited for under its old name")
    func choice() {
        var machine = machine(
            .owner(present: true), .powered("hci0", nil), .listed(["hci0", "hci1"]), .powered("hci0", nil),
            .powered("hci1", true), .owner(present: false), .owner(present: true), isOnly: true)
        #expect(machine.first == "hci1" && machine.state == .resetting)
        #expect(machine.handle(.powered("hci0", true)).contains(.use("hci0")))
    }

    @Test("ST-6 no adapter: a grace period, then unsupported; an adapter that is plugged in later is used")
    func noAdapter() {
        var machine = machine(.owner(present: true))
        #expect(machine.handle(.powered("hci0", nil)) == [.list])
        #expect(machine.handle(.listed([])) == [.startGrace(.short)])
        #expect(machine.handle(.graceOver) == [.setState(.unsupported)])
        #expect(machine.handle(.powered("hci0", true)) == [.stopGrace, .use("hci0"), .setState(.poweredOn)])
    }

    @Test("ST-6 O-44 the daemon exits: resetting; it comes back: powered on")
    func daemonRestart() {
        var machine = machine(.owner(present: true), .powered("hci0", true))
        #expect(machine.handle(.owner(present: false)) == [.setState(.resetting), .use(nil), .startGrace(.short)])
        #expect(
            machine.handle(.owner(present: true)) == [
                .ignoreStaleLinks, .stopGrace, .startGrace(.short), .askPowered("hci0"),
            ])
        #expect(machine.handle(.powered("hci0", true)) == [.stopGrace, .use("hci0"), .setState(.poweredOn)])
    }

    @Test("D10 a daemon that hung still has its adapters: there is no grace period")
    func noGraceAfterHang() {
        var machine = machine(.owner(present: true), .powered("hci0", true))
        #expect(machine.handle(.hung).contains(.stopGrace))
        #expect(machine.handle(.owner(present: true)) == [.ignoreStaleLinks, .askPowered("hci0")])
        #expect(machine.handle(.powered("hci0", true)) == [.stopGrace, .use("hci0"), .setState(.poweredOn)])
    }

    @Test("D10 after a restart the previous adapter has a grace period to come back, then another one is used")
    func comesBackToItsAdapter() {
        func restarted() -> AdapterStateMachine {
            var machine = AdapterStateMachine()
            for event: AdapterStateMachine.Event in [
                .owner(present: true), .powered("hci0", nil), .listed(["hci1"]), .powered("hci1", true),
                .owner(present: false), .graceOver, .owner(present: true), .powered("hci0", true),
            ] { _ = machine.handle(event) }
            return machine
        }
        var machine = restarted()
        #expect(machine.used == nil && machine.state == .resetting)
        #expect(machine.handle(.powered("hci1", true)).contains(.use("hci1")))
        machine = restarted()
        #expect(machine.handle(.graceOver).contains(.use("hci0")) && machine.state == .poweredOn)
    }

    @Test("ST-6 a lost adapter has 20 s to come back before unsupported; another adapter is used after 3 s")
    func longGrace() {
        for loss: AdapterStateMachine.Event in [.owner(present: false), .busLost, .powered("hci0", nil)] {
            var machine = machine(.owner(present: true), .powered("hci0", true), loss)
            #expect(machine.handle(.graceOver) == [.startGrace(.long)] && machine.state == .resetting)
            #expect(machine.handle(.graceOver) == [.setState(.unsupported)])
            // The next loss has as much time.
            _ = machine.handle(.owner(present: true))
            _ = machine.handle(.powered("hci0", true))
            _ = machine.handle(loss)
            #expect(machine.handle(.graceOver) == [.startGrace(.long)])
        }
        // A daemon that starts late starts afresh: its adapters appear one by one.
        var machine = machine(.owner(present: true), .powered("hci0", true), .owner(present: false), .graceOver)
        #expect(
            machine.handle(.owner(present: true)) == [
                .ignoreStaleLinks, .stopGrace, .startGrace(.short), .askPowered("hci0"),
            ])
        #expect(machine.handle(.powered("hci0", nil)) == [.list])
        #expect(machine.handle(.graceOver) == [.startGrace(.long)])
    }

    @Test("ST-6 the adapter is unplugged: resetting; another takes over; or it comes back")
    func unplugged() {
        var machine = machine(.owner(present: true), .powered("hci0", true))
        #expect(
            machine.handle(.powered("hci0", nil)) == [
                .setState(.resetting), .use(nil), .startGrace(.short), .list,
            ])
        #expect(machine.handle(.listed([])) == [.startGrace(.short)])
        #expect(machine.handle(.powered("hci0", false)).contains(.setState(.poweredOff)))
        #expect(machine.handle(.powered("hci0", true)) == [.setState(.poweredOn)])
    }

    @Test("during a power cycle the state is resetting; if it fails the state is powered off")
    func powerCycle() {
        var machine = machine(.owner(present: true), .powered("hci0", true))
        machine.isPowerCycling = true
        #expect(machine.handle(.powered("hci0", false)) == [.setState(.resetting)])
        #expect(machine.handle(.powered("hci0", true)) == [.setState(.poweredOn)])
        #expect(machine.handle(.powered("hci0", false)) == [.setState(.poweredOff)], "by another program")
        _ = machine.handle(.powered("hci0", true))
        machine.isPowerCycling = true
        #expect(machine.handle(.powerCycleFailed) == [], "it did not go off")
        machine.isPowerCycling = true
        _ = machine.handle(.powered("hci0", false))
        #expect(machine.handle(.powerCycleFailed) == [.setState(.poweredOff)], "it did not go on again")
    }

    @Test("a power cycle during which BlueZ hangs, exits or the bus is lost: the adapter is switched on again, once")
    func powerCycleIsLost() {
        for loss: AdapterStateMachine.Event in [.hung, .busLost, .owner(present: false)] {
            for isOff in [true, false] {
                var machine = machine(.owner(present: true), .powered("hci0", true))
                machine.isPowerCycling = true
                if isOff { _ = machine.handle(.powered("hci0", false)) }
                _ = machine.handle(loss)
                #expect(machine.handle(.powerCycleFailed) == [], "the call has failed, and not the adapter")
                _ = machine.handle(.owner(present: true))
                #expect(machine.handle(.powered("hci0", false)).contains(.switchOn("hci0")))
                _ = machine.handle(.listed(["hci0"]))
                #expect(machine.state == .resetting)
                #expect(machine.handle(.powered("hci0", true)).contains(.setState(.poweredOn)))
                #expect(machine.handle(.powered("hci0", false)) == [.setState(.poweredOff)], "by another program")
            }
        }
        // BlueZ resumes, and only then handles the power-off. Another daemon never does.
        for (loss, goesOff) in [(AdapterStateMachine.Event.hung, true), (.owner(present: false), false)] {
            var machine = machine(.owner(present: true), .powered("hci0", true))
            machine.isPowerCycling = true
            for event in [loss, .owner(present: true), .powered("hci0", true)] { _ = machine.handle(event) }
            #expect(machine.state == .poweredOn)
            #expect(machine.handle(.powered("hci0", false)).contains(.switchOn("hci0")) == goesOff)
            #expect(machine.state == (goesOff ? .resetting : .poweredOff))
        }
    }

    @Test("ST-3 equal states of the adapter are not repeated")
    func noRepetition() {
        var machine = machine(.owner(present: true), .powered("hci0", true))
        #expect(machine.handle(.powered("hci0", true)) == [])
        #expect(machine.handle(.owner(present: true)) == [])
    }

    @Test("no daemon at launch is unsupported, a bus that refuses access is unauthorized")
    func noDaemon() {
        var machine = AdapterStateMachine()
        #expect(machine.handle(.owner(present: false)) == [])
        #expect(machine.handle(.noDaemon) == [.setState(.unsupported)])
        var denied = AdapterStateMachine()
        #expect(denied.handle(.denied) == [.setState(.unauthorized)])
    }

    @Test("links are not trusted after bluetoothd comes back, and are if it was there from the start")
    func mistrust() {
        var machine = AdapterStateMachine()
        #expect(!machine.handle(.owner(present: true)).contains(.ignoreStaleLinks))
        for loss: AdapterStateMachine.Event in [.owner(present: false), .busLost, .hung] {
            _ = machine.handle(.powered("hci0", true))
            _ = machine.handle(loss)
            #expect(machine.handle(.owner(present: true)).first == .ignoreStaleLinks)
            #expect(machine.handle(.owner(present: true)) == [.ignoreStaleLinks], "another one has followed it")
        }
        machine = AdapterStateMachine()
        _ = machine.handle(.noDaemon)
        #expect(machine.state == .unsupported && machine.handle(.owner(present: true)).first == .ignoreStaleLinks)
    }
}
