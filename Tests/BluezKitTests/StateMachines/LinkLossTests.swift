import BluezDBus
import Dispatch
import Testing

@testable import BluezKit

@Suite struct LinkLossTests {
    private let timing = BlueZTiming.Link()
    private let authentication = "org.bluez.Reason.Authentication"
    private let start = DispatchTime(uptimeNanoseconds: 1_000_000_000_000)

    @Test("O-18 a loss that an app will hear of is held back, unless the peer or the distance has ended the link")
    func hold() {
        for (reason, isHeld) in [
            (nil, true), ("org.bluez.Reason.Local", true), ("org.bluez.Reason.Suspend", true), (authentication, true),
            ("org.bluez.Reason.Remote", false), ("org.bluez.Reason.Timeout", false),
        ] {
            var loss = LinkLoss()
            reason.map { loss.record(($0, "")) }
            #expect(
                loss.hold(isAwaited: true, isBonded: true) == (isHeld ? timing.heldLoss : nil),
                "\(reason ?? "no reason")")
            #expect(loss.hold(isAwaited: false, isBonded: true) == nil)
        }
    }

    @Test("CN-9 the loss of a link that could not be encrypted is held back until BlueZ has made its second one")
    func holdForSecondAttempt() {
        for reason in [nil, authentication] {
            var loss = LinkLoss()
            reason.map { loss.record(($0, "")) }
            loss.linkEnded(at: start)
            #expect(loss.hold(isAwaited: true, isBonded: true) != timing.secondAttempt)
            loss.attemptSucceeded(at: start)
            #expect(loss.hold(isAwaited: true, isBonded: true) == timing.secondAttempt)
            #expect(loss.hold(isAwaited: true, isBonded: false) == timing.heldLoss)
            #expect(loss.hold(isAwaited: false, isBonded: true) == nil)
            loss.record(("org.bluez.Reason.Remote", ""))
            #expect(loss.hold(isAwaited: true, isBonded: true) == nil, "then BlueZ makes no second one")
        }
        // With a failure, only if BlueZ says why.
        for (reason, isHeld) in [(nil, false), ("org.bluez.Reason.Local", false), (authentication, true)] {
            var loss = LinkLoss()
            reason.map { loss.record(($0, "")) }
            loss.attemptFailedWhileUp(at: start)
            loss.linkEnded(at: start)
            let hold = loss.hold(isAwaited: true, isBonded: true)
            #expect(hold == (isHeld ? timing.secondAttempt : timing.heldLoss), "\(reason ?? "no reason")")
            loss.linkEnded(at: start.later(by: timing.lostBondAnswer))
            #expect(loss.hold(isAwaited: true, isBonded: true) == timing.heldLoss)
            loss.recordOwn((authentication, "refused"))
            loss.linkEnded(at: start)
            #expect(loss.hold(isAwaited: true, isBonded: true) == timing.heldLoss)
        }
    }

    @Test("BlueZ's reason for the end of a link does not replace this process's own reason")
    func own() {
        var loss = LinkLoss()
        loss.recordOwn((authentication, "refused"))
        for reason in ["org.bluez.Reason.Local", "org.bluez.Reason.Remote"] { loss.record((reason, "")) }
        #expect(loss.takeReason(isBonded: false)?.message == "refused")
        loss.record(("org.bluez.Reason.Remote", "gone"))
        #expect(loss.takeReason(isBonded: false)?.message == "gone")
    }

    // A peripheral that refuses to pair looked like one that has gone away.
    @Test("CN-14 a link that ends instead of an answer is a failed pairing, or may be one if the reason is unknown")
    func failedPairing() {
        let authentication = "org.bluez.Reason.Authentication"
        for (reason, isPairing, expected, mayBe) in [
            (nil, false, nil, true), (nil, true, authentication, false),
            ("org.bluez.Reason.Local", false, authentication, false),
            ("org.bluez.Reason.Remote", false, "org.bluez.Reason.Remote", false),
            ("org.bluez.Reason.Remote", true, authentication, false),
            ("org.bluez.Reason.Timeout", false, "org.bluez.Reason.Timeout", false),
        ] as [(String?, Bool, String?, Bool)] {
            var loss = LinkLoss()
            if let reason { loss.record((reason, "")) }
            loss.endedUnanswered(isPairing: isPairing)
            #expect(loss.mayBeRefusal == mayBe)
            #expect(loss.takeReason(isBonded: false)?.name == expected)
            #expect(!loss.mayBeRefusal)
        }
        var own = LinkLoss()
        own.recordOwn((authentication, "refused"))
        own.endedUnanswered(isPairing: true)
        #expect(own.takeReason(isBonded: false)?.message == "refused")
    }

    @Test("a refused pairing is one where BlueZ fails its operation before it tells of the end (5.87)")
    func endedAnswered() {
        let authentication = "org.bluez.Reason.Authentication", local = "org.bluez.Reason.Local"
        let later = start.later(by: timing.lostBondAnswer)
        let soon = DispatchTime(uptimeNanoseconds: later.uptimeNanoseconds - 1)
        for (reason, failed, ended, expected) in [
            (local, start, soon, authentication), (local, start, later, local), (local, nil, soon, local),
            ("org.bluez.Reason.Remote", start, soon, "org.bluez.Reason.Remote"), (nil, start, soon, nil),
        ] as [(String?, DispatchTime?, DispatchTime, String?)] {
            var loss = LinkLoss()
            if let failed { loss.operationFailed(at: failed) }
            if let reason { loss.record((reason, "")) }
            loss.linkEnded(at: ended)
            loss.endedAnswered()
            #expect(!loss.mayBeRefusal)
            #expect(loss.takeReason(isBonded: false)?.name == expected)
        }
        // An operation of an earlier link.
        var next = LinkLoss()
        next.operationFailed(at: start)
        next.reset()
        next.record((local, ""))
        next.linkEnded(at: soon)
        next.endedAnswered()
        #expect(next.takeReason(isBonded: false)?.name == local)
    }

    @Test("the reason for the end of a link is reported once, and not for a later link")
    func reason() {
        var loss = LinkLoss()
        loss.record(("org.bluez.Reason.Remote", "gone"))
        #expect(loss.takeReason(isBonded: true)?.message == "gone")
        #expect(loss.takeReason(isBonded: true) == nil && loss.hold(isAwaited: true, isBonded: true) != nil)
        loss.record(("org.bluez.Reason.Remote", "gone"))
        loss.reset()
        #expect(loss.takeReason(isBonded: true) == nil && loss.hold(isAwaited: true, isBonded: true) != nil)
    }

    @Test("a link of a bonded peer that ends with the answer that it is there was not encrypted")
    func endedWithAnswer() {
        let later = start.later(by: timing.lostBondAnswer)
        let soon = DispatchTime(uptimeNanoseconds: later.uptimeNanoseconds - 1)
        for (succeeded, ended, isLost) in [(start, soon, true), (soon, start, true), (start, later, false)] {
            for isBonded in [false, true] {
                var loss = LinkLoss()
                loss.attemptSucceeded(at: succeeded)
                loss.linkEnded(at: ended)
                #expect(loss.takeReason(isBonded: isBonded)?.name == (isLost && isBonded ? authentication : nil))
                #expect(loss.takeReason(isBonded: isBonded) == nil)
            }
        }
        var loss = LinkLoss()
        loss.linkEnded(at: start)
        #expect(loss.takeReason(isBonded: true) == nil)
        loss.attemptSucceeded(at: start)
        loss.record(("org.bluez.Reason.Local", ""))
        loss.linkEnded(at: start)
        #expect(loss.takeReason(isBonded: true)?.name == "org.bluez.Reason.Local", "what BlueZ says goes before that")
        loss.attemptSucceeded(at: start)
        loss.reset()
        loss.linkEnded(at: start)
        #expect(loss.takeReason(isBonded: true) == nil)
    }

    @Test("neither a link that was used nor one whose attempt has failed was lost with the keys")
    func otherEnds() {
        var used = LinkLoss()
        used.attemptSucceeded(at: start)
        used.linkWorks()
        used.linkEnded(at: start)
        #expect(used.takeReason(isBonded: true) == nil)
        var weak = LinkLoss()
        weak.attemptFailedWhileUp(at: start)
        weak.linkEnded(at: start)
        #expect(weak.takeReason(isBonded: true) == nil)
    }

    @Test("the end of bluetoothd is blamed on lost keys only soon after such an attempt, and before the next link")
    func crash() {
        var loss = LinkLoss()
        #expect(!loss.mayHaveLostBond(at: start))
        loss.attemptFailedWhileUp(at: start)
        let end = start.later(by: timing.lostBondCrash)
        #expect(
            loss.mayHaveLostBond(at: start)
                && loss.mayHaveLostBond(
                    at: DispatchTime(
                        uptimeNanoseconds: end.uptimeNanoseconds - 1))
        )
        #expect(!loss.mayHaveLostBond(at: end))
        loss.reset()
        #expect(!loss.mayHaveLostBond(at: start))
    }
}
