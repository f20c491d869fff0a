import Testing

@testable import BluezKit

@Suite struct ScanWatchTests {
    @Test("a silent scan is started anew, then the adapter is power-cycled, and then it is left alone")
    func staged() {
        var watch = ScanWatch()
        #expect(watch.scan(true) == [.startTimer(watch.window)])
        #expect(watch.scan(true) == [], "a change of the scan is none of its beginning")
        #expect(watch.timerFired() == [.restart, .startTimer(watch.window)])
        #expect(watch.timerFired() == [.powerCycle, .startTimer(watch.window)])
        for _ in 0..<10 { #expect(watch.timerFired() == [.startTimer(watch.window)]) }
        #expect(watch.scan(false) == [.stopTimer])
        #expect(watch.timerFired() == [])
    }

    @Test("whatever is heard begins a new minute of patience")
    func heard() {
        var watch = ScanWatch()
        _ = watch.scan(true)
        for _ in 0..<3 {
            watch.hear()
            #expect(watch.timerFired().last == .startTimer(watch.window))
            #expect(watch.timerFired() == [.restart, .startTimer(watch.window)])
        }
    }

    @Test("in doubt every device is listened to; one that is heard ends the doubt")
    func doubt() {
        var watch = ScanWatch()
        _ = watch.scan(true)
        #expect(!watch.isInDoubt)
        _ = watch.timerFired()
        #expect(watch.isInDoubt)
        watch.hear()
        #expect(watch.timerFired() == [.trust, .startTimer(watch.window)])
        #expect(!watch.isInDoubt)
    }

    @Test("a doubt that was not justified is not had again soon, where a filter explains the silence")
    func patience() {
        var watch = ScanWatch()
        _ = watch.scan(true)
        _ = watch.timerFired()
        watch.patience = 10
        watch.hear()
        _ = watch.timerFired()
        for minute in 1...9 {
            if minute == 5 { watch.hear() }  // no reason to have it sooner
            #expect(watch.timerFired() == [.startTimer(watch.window)])
        }
        #expect(
            watch.timerFired() == [.startTimer(watch.window)], "the one in which something was heard does not count")
        #expect(watch.timerFired() == [.restart, .startTimer(watch.window)])
    }

    @Test("a power cycle is not repeated for a scan that begins after it, until something was heard")
    func onlyOnce() {
        var watch = ScanWatch()
        func untilSilent() -> [ScanWatch.Action] {
            watch.reset()
            _ = watch.scan(true)
            return [watch.timerFired(), watch.timerFired()].flatMap { $0.dropLast() }
        }
        #expect(untilSilent() == [.restart, .powerCycle])
        watch.hasPowerCycled = true
        #expect(untilSilent() == [.restart])
        watch.hear()
        #expect(untilSilent() == [.restart, .powerCycle])
    }
}
