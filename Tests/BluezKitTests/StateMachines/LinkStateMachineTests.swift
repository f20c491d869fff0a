import Testing

@testable import BluezKit

@Suite struct LinkStateMachineTests {
    private func machine(_ events: LinkStateMachine.Event...) -> LinkStateMachine {
        var machine = LinkStateMachine()
        for event in events { _ = machine.handle(event) }
        return machine
    }

    @Test("a device that BlueZ knows is connected without a scan")
    func connectsKnown() {
        var link = LinkStateMachine()
        #expect(link.handle(.want(true)) == [.readDevice])
        #expect(link.handle(.deviceRead(connected: false)) == [.stopTimer, .queue])
        #expect(link.handle(.slot) == [.connect])
        #expect(link.handle(.connectedChanged(true)) == [.stopTimer, .linkUp])
        #expect(link.handle(.connectReply(nil)) == [])
        #expect(link.phase == .up)
    }

    @Test("a link that is up already is adopted")
    func adopts() {
        var link = machine(.want(true))
        #expect(link.handle(.deviceRead(connected: true)) == [.stopTimer, .linkUp])
    }

    @Test("LX-15 a failed attempt is repeated with increasing delays, without being reported")
    func retries() {
        var link = machine(.want(true), .deviceRead(connected: false), .slot)
        var delays: [Duration] = []
        for _ in 0..<8 {
            guard case .startBackOff(let delay) = link.handle(.connectReply(.transient)).first else {
                Issue.record("no retry")
                return
            }
            delays.append(delay)
            #expect(link.handle(.timerFired) == [.stopTimer, .readDevice])
            #expect(link.handle(.deviceRead(connected: false)) == [.stopTimer, .queue])
            #expect(link.handle(.slot) == [.connect])
        }
        #expect(delays.first == .milliseconds(250) && delays.last == .seconds(8) && delays == delays.sorted())
    }

    @Test("a device that is heard but unknown to BlueZ is attempted with increasing delays")
    func unknownAgainAndAgain() {
        var link = machine(.want(true), .deviceRead(connected: nil), .seen, .slot)
        // Once may be chance: BlueZ has forgotten it in this moment.
        #expect(link.handle(.connectReply(.unknownDevice)) == [.look(true)])
        #expect(link.handle(.seen) == [.look(false), .queue])
        #expect(link.handle(.slot) == [.connect])
        var delays: [Duration] = []
        for _ in 0..<6 {
            guard case .startBackOff(let delay) = link.handle(.connectReply(.unknownDevice)).first else {
                Issue.record("no pause")
                return
            }
            delays.append(delay)
            #expect(link.handle(.seen) == [])
            #expect(link.handle(.timerFired) == [.stopTimer, .readDevice])
            #expect(link.handle(.deviceRead(connected: nil)) == [.stopTimer, .look(true)])
            #expect(link.handle(.seen) == [.look(false), .queue])
            #expect(link.handle(.slot) == [.connect])
        }
        #expect(delays.last == .seconds(8) && delays == delays.sorted())
    }

    @Test("an orphaned link is ended; a connect request in the meantime gets a new link")
    func inherits() {
        var link = LinkStateMachine()
        #expect(link.inherit() == [.disconnect])
        #expect(link.handle(.want(true)) == [])
        #expect(link.handle(.disconnectReply) == [.stopTimer, .linkDown, .readDevice])
    }

    @Test("success without Connected is a failure")
    func settles() {
        var link = machine(.want(true), .deviceRead(connected: false), .slot)
        #expect(link.handle(.connectReply(nil)) == [.startTimer(.milliseconds(500))])
        // The signal may have been missed: BlueZ's answer to a query counts as well.
        #expect(link.handle(.timerFired) == [.startTimer(.milliseconds(4500)), .readDevice])
        var asked = link
        #expect(asked.handle(.deviceRead(connected: true)) == [.stopTimer, .linkUp])
        #expect(link.handle(.deviceRead(connected: false)) == [])
        #expect(link.handle(.timerFired) == [.startBackOff(.milliseconds(250))])
        // The next attempt is asked about as well.
        for event in [.timerFired, .deviceRead(connected: false), .slot, .connectReply(nil)] as [LinkStateMachine.Event]
        {
            _ = link.handle(event)
        }
        #expect(link.handle(.timerFired) == [.startTimer(.milliseconds(4500)), .readDevice])
    }

    @Test("an answer that arrives before the signal has the same effect", arguments: [0, 1, 2, 3])
    func answerAhead(attempt: Int) {
        var link = machine(.want(true), .deviceRead(connected: attempt == 0 ? nil : false))
        if attempt > 1 { _ = link.handle(.slot) }
        if attempt > 2 { _ = link.handle(.connectReply(.transient)) }
        #expect(link.handle(.deviceRead(connected: true)).last == .linkUp)
        #expect(link.handle(.connectedChanged(true)) == [])
    }

    @Test("a link that ends unexpectedly: nothing starts before the disconnection is reported")
    func holdsLoss() {
        var link = machine(.want(true), .deviceRead(connected: true))
        #expect(link.handle(.connectedChanged(false)) == [.linkDown, .hold])
        #expect(link.handle(.want(false)) == [] && link.handle(.want(true)) == [] && link.handle(.seen) == [])
        #expect(link.handle(.timerFired) == [.stopTimer, .tellLoss])
        var given = link
        #expect(link.handle(.lossTold(isWanted: true)) == [.readDevice] && link.phase == .checking)
        #expect(given.handle(.lossTold(isWanted: false)) == [] && given.phase == .idle)
    }

    @Test("LX-16 a new link while the disconnection is held back: that is reported, then the link is adopted or ended")
    func flickers() {
        var link = machine(.want(true), .deviceRead(connected: true), .connectedChanged(false))
        #expect(link.handle(.connectedChanged(true)) == [.stopTimer, .tellLoss])
        var given = link
        #expect(link.handle(.lossTold(isWanted: true)) == [.readDevice])
        #expect(link.handle(.deviceRead(connected: true)) == [.stopTimer, .linkUp])
        #expect(given.handle(.lossTold(isWanted: false)) == [.disconnect] && given.phase == .closing)
        // And ends again before that was done.
        given = machine(.want(true), .deviceRead(connected: true), .connectedChanged(false), .connectedChanged(true))
        _ = given.handle(.connectedChanged(false))
        #expect(given.handle(.lossTold(isWanted: false)) == [] && given.phase == .idle)
    }

    @Test("DL-7 a link from before this process is adopted and reported, in every phase")
    func adoptsFromEveryPhase() {
        let paths: [[LinkStateMachine.Event]] = [
            [], [.want(true)], [.want(true), .deviceRead(connected: nil)],
            [.want(true), .deviceRead(connected: false)],
            [.want(true), .deviceRead(connected: false), .slot],
            [.want(true), .deviceRead(connected: false), .slot, .connectReply(nil)],
            [.want(true), .deviceRead(connected: false), .slot, .connectReply(.transient)],
        ]
        for path in paths {
            var link = LinkStateMachine()
            for event in path { _ = link.handle(event) }
            let isLooking = link.phase == .looking
            let actions = link.handle(.adopt)
            #expect(actions.last == .linkUp && actions.contains(.look(false)) == isLooking)
            #expect(link.phase == .up && link.isWanted && !link.holdsSlot)
            #expect(link.handle(.adopt) == [])
            #expect(link.handle(.want(false)) == [.disconnect])
            #expect(link.handle(.disconnectReply) == [.startTimer(.seconds(5))], "it is linked")
        }
    }

    @Test("a cancelled attempt that still makes its link: the link is ended")
    func calledOffTooLate() {
        for isAnswered in [false, true] {
            var link = machine(.want(true), .deviceRead(connected: false), .slot, .want(false))
            if !isAnswered { #expect(link.handle(.connectedChanged(true)) == [.disconnectAgain]) }
            if isAnswered { _ = link.handle(.connectReply(.transient)) }
            if isAnswered { #expect(link.handle(.connectedChanged(true)) == [.disconnectAgain]) }
            #expect(link.handle(.disconnectReply) == [.startTimer(.seconds(5))])
            #expect(link.handle(.connectedChanged(false)) == [.stopTimer, .linkDown])
        }
    }

    @Test("a Connected = false that is no news is not the end of an attempt that is called off")
    func noNews() {
        var link = machine(.want(true), .deviceRead(connected: false), .slot, .want(false))
        #expect(link.handle(.connectedChanged(false)) == [])
        #expect(link.handle(.disconnectReply) == [.stopTimer, .linkDown])
        // Nor of one that a dead process has left.
        link = machine()
        #expect(link.inherit() == [.disconnect])
        #expect(link.handle(.connectedChanged(false)) == [])
        #expect(link.handle(.disconnectReply) == [.stopTimer, .linkDown])
    }

    @Test("a device that BlueZ does not know is searched for")
    func looks() {
        var link = machine(.want(true))
        #expect(link.handle(.deviceRead(connected: nil)) == [.stopTimer, .look(true)])
        #expect(link.handle(.seen) == [.look(false), .queue])
        #expect(link.handle(.slot) == [.connect])
        #expect(link.handle(.connectReply(.unknownDevice)) == [.look(true)])
        #expect(link.handle(.want(false)) == [.look(false)])
    }

    @Test("the end of a slot ends the attempt, and another slot is requested")
    func slotOver() {
        var link = machine(.want(true), .deviceRead(connected: false), .slot)
        #expect(link.handle(.slotOver) == [.stopTimer, .disconnect])
        // No other device connects before BlueZ has answered.
        #expect(link.holdsSlot)
        #expect(link.handle(.connectReply(.transient)) == [])
        #expect(link.handle(.disconnectReply) == [.stopTimer, .linkDown, .readDevice])
        #expect(link.handle(.deviceRead(connected: false)) == [.stopTimer, .queue])
    }

    @Test("a device that waits for a slot adopts a link that another program makes, and can be cancelled")
    func queued() {
        var link = machine(.want(true), .deviceRead(connected: false))
        #expect(link.handle(.seen) == [] && link.phase == .queued)
        #expect(link.handle(.connectedChanged(true)) == [.linkUp])
        link = machine(.want(true), .deviceRead(connected: false))
        #expect(link.handle(.want(false)) == [] && link.phase == .idle)
    }

    @Test("a cancelled attempt is withdrawn, and a link that it still makes is not reported")
    func cancelsAttempt() {
        var link = machine(.want(true), .deviceRead(connected: false), .slot)
        #expect(link.handle(.want(false)) == [.stopTimer, .disconnect])
        #expect(link.handle(.connectReply(.transient)) == [])
        #expect(link.handle(.disconnectReply) == [.stopTimer, .linkDown])
        #expect(link.phase == .idle)
    }

    @Test("Disconnect's reply before Connected = false does not end the link; the signal does")
    func replyBeforeSignal() {
        var link = machine(.want(true), .deviceRead(connected: true))
        #expect(link.handle(.want(false)) == [.disconnect])
        #expect(link.handle(.disconnectReply) == [.startTimer(.seconds(5))])
        #expect(link.handle(.connectedChanged(false)) == [.stopTimer, .linkDown])
    }

    @Test("a connect during a disconnect waits for its end")
    func connectsAgain() {
        var link = machine(.want(true), .deviceRead(connected: true), .want(false))
        #expect(link.handle(.want(true)) == [])
        #expect(link.handle(.connectedChanged(false)) == [.stopTimer, .linkDown, .readDevice])
    }

    @Test("a final error ends the connect request")
    func givesUp() {
        var link = machine(.want(true), .deviceRead(connected: false), .slot)
        #expect(link.handle(.connectReply(.final)) == [.giveUp])
        #expect(link.phase == .idle)
    }

    @Test("an attempt without an answer is called off when BlueZ says that there is no link, and not before")
    func unanswered() {
        var link = machine(.want(true), .deviceRead(connected: false), .slot)
        // Of an earlier question.
        #expect(link.handle(.deviceRead(connected: false)) == [])
        #expect(link.handle(.connectUnanswered) == [.readDevice])
        #expect(link.handle(.deviceRead(connected: false)) == [.stopTimer, .disconnect])
        link = machine(.want(true), .deviceRead(connected: false), .slot, .connectUnanswered)
        #expect(link.handle(.deviceRead(connected: true)) == [.stopTimer, .linkUp])
    }

    // Slow: there are 3.2 million sequences of five among 20 events.
    /// Every sequence of five events: whatever comes, the machine keeps its promises.
    @Test("every interleaving: a link is reported only if requested, ends once, and an unrequested one is closed")
    func everyInterleaving() {
        let alphabet: [LinkStateMachine.Event] = [
            .want(true), .want(false), .deviceRead(connected: nil), .deviceRead(connected: false),
            .deviceRead(connected: true), .seen, .connectReply(nil), .connectReply(.transient),
            .slot, .slotOver, .connectReply(.unknownDevice), .connectReply(.final), .connectReply(.inProgress),
            .connectUnanswered, .connectedChanged(true), .connectedChanged(false), .disconnectReply, .timerFired,
            .adopt, .kept,
        ]
        struct State {
            var link = LinkStateMachine()
            var ups = 0
            var downs = 0
            var looks = false
            var isUnanswered = false
        }
        // `#expect` takes as long as the rest, millions of times.
        func check(_ holds: Bool, line: Int = #line) { if !holds { Issue.record("line \(line)") } }
        var frontier = [State()]
        for depth in 0..<5 {
            var next: [State] = []
            next.reserveCapacity(depth == 4 ? 0 : frontier.count * alphabet.count)
            for state in frontier {
                for event in alphabet {
                    var state = state
                    let before = state.link.phase
                    var actions = state.link.handle(event)
                    if event == .connectUnanswered { state.isUnanswered = true }
                    if actions.contains(.tellLoss) {
                        // Reported at once; some of the managers do not connect again.
                        check(before == .lost && state.downs == state.ups)
                        actions += state.link.handle(.lossTold(isWanted: state.link.isWanted && depth % 2 == 0))
                    }
                    for action in actions {
                        switch action {
                        case .linkUp:
                            state.ups += 1
                            check(state.link.isWanted)
                        case .linkDown:
                            state.downs += 1
                            check(before == .up || before == .closing)
                        case .connect: check(state.link.isWanted && state.link.phase == .attempting)
                        case .disconnect:
                            check(!state.link.isWanted || event == .slotOver || state.isUnanswered)
                            check(state.link.phase == .closing)
                        case .disconnectAgain: check(before == .closing && state.link.phase == .closing)
                        case .hold: check(state.link.phase == .lost)
                        case .look(let looks): state.looks = looks
                        default: break
                        }
                    }
                    check(state.looks == (state.link.phase == .looking))
                    check(state.link.phase != .up || state.ups > 0)
                    if depth < 4 { next.append(state) }
                }
            }
            frontier = next
        }
    }

    @Test("a link that another program is ending is looked at again after a pause, as often as it takes")
    func linkIsEnding() {
        let pause = LinkStateMachine.Action.startTimer(BlueZTiming.Link().leaseRetry)
        var link = machine(.want(true))
        for _ in 0..<3 {
            #expect(link.handle(.linkIsEnding) == [pause] && link.phase == .checking)
            #expect(link.handle(.timerFired) == [.stopTimer, .readDevice])
        }
        #expect(link.handle(.deviceRead(connected: false)) == [.stopTimer, .queue])
        #expect(link.handle(.timerFired) == [])
    }

    @Test("an event that ends the pause early also stops its timer, which would otherwise fire in another phase")
    func linkIsEndingInterrupted() {
        for (event, actions, phase): (LinkStateMachine.Event, [LinkStateMachine.Action], LinkStateMachine.Phase) in [
            (.want(false), [.stopTimer], .idle), (.connectedChanged(true), [.stopTimer, .linkUp], .up),
            (.deviceRead(connected: nil), [.stopTimer, .look(true)], .looking), (.adopt, [.stopTimer, .linkUp], .up),
            (.deviceRead(connected: false), [.stopTimer, .queue], .queued),
        ] {
            var link = machine(.want(true), .linkIsEnding)
            #expect(link.handle(event) == actions && link.phase == phase)
        }
    }

    @Test("only the check of a link is delayed by another program's disconnect")
    func linkIsEndingElsewhere() {
        for events: [LinkStateMachine.Event] in [
            [], [.want(true), .deviceRead(connected: false)], [.want(true), .deviceRead(connected: true)],
            [.want(true), .deviceRead(connected: false), .slot, .connectReply(nil), .timerFired],
        ] {
            var link = LinkStateMachine()
            for event in events { _ = link.handle(event) }
            let phase = link.phase
            #expect(link.handle(.linkIsEnding) == [] && link.phase == phase)
        }
    }
}
