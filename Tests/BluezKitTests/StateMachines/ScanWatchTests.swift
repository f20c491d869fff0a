import Testing

@testable import BluezKit

@Suite struct ScanWatchTests {
    @Test("a silent scan is restarted, then the adapter is power-cycled, and then nothing more is done")
    func staged() {
        var watch = ScanWatch()
        #expect(watch.scan(true) == [.startTimer(watch.window)])
        #expect(watch.scan(true) == [], "a change of the scan is not its start")
        #expect(watch.timerFired() == [.restart, .startTimer(watch.window)])
        #expect(watch.timerFired() == [.powerCycle, .startTimer(watch.window)])
        for _ in 0..<10 { #expect(watch.timerFired() == [.startTimer(watch.window)]) }
        #expect(watch.scan(false) == [.stopTimer])
        #expect(watch.timerFired() == [])
    }

    @Test("any advertisement restarts the period of one minute")
    func heard() {
        var watch = ScanWatch()
        _ = watch.scan(true)
        for _ in 0..<3 {
            watch.hear()
            #expect(watch.timerFired().last == .startTimer(watch.window))
            #expect(watch.timerFired() == [.restart, .startTimer(watch.window)])
        }
    }

    @Test("a discovery that has heard nothing since its start is started again, once until something is heard")
    func first() {
        var watch = ScanWatch()
        #expect(watch.began() == [], "one that is not wanted any longer")
        _ = watch.scan(true)
        #expect(watch.began() == [.startFirstTimer(watch.firstWindow)])
        #expect(watch.firstTimerFired() == [.startAgain])
        #expect(watch.began() == [] && watch.firstTimerFired() == [] && !watch.isUnfiltered)
        watch.hear()
        #expect(watch.firstTimerFired() == [])
        #expect(watch.began() == [.startFirstTimer(watch.firstWindow)], "what the one before has heard does not count")
        #expect(watch.firstTimerFired() == [.startAgain])
        #expect(watch.scan(false) == [.stopTimer] && watch.firstTimerFired() == [])
    }

    @Test("while the filter is suspect the scan is unfiltered; a device that is heard ends this")
    func doubt() {
        var watch = ScanWatch()
        _ = watch.scan(true)
        #expect(!watch.isUnfiltered)
        _ = watch.timerFired()
        #expect(watch.isUnfiltered)
        watch.hear()
        #expect(watch.timerFired() == [.restoreFilter, .startTimer(watch.window)])
        #expect(!watch.isUnfiltered)
    }

    @Test("after an unjustified restart the filter is trusted for a while, because it explains the silence")
    func windowsBeforeUnfiltered() {
        var watch = ScanWatch()
        _ = watch.scan(true)
        _ = watch.timerFired()
        watch.windowsBeforeUnfiltered = 10
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

    @Test("a power cycle is not repeated for a later scan until something was heard")
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
