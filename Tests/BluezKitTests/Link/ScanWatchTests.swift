import Testing

@testable import BluezKit

@Suite struct ScanWatchTests {
    @Test("a silent scan is started anew, then the adapter is power-cycled, and then it is left alone")
    func staged() {
        var watch = ScanWatch()
        #expect(watch.scan(true) == [.startTimer(ScanWatch.window)])
        #expect(watch.scan(true) == [], "a change of the scan is none of its beginning")
        #expect(watch.timerFired() == [.restart, .startTimer(ScanWatch.window)])
        #expect(watch.timerFired() == [.powerCycle, .startTimer(ScanWatch.window)])
        for _ in 0..<10 { #expect(watch.timerFired() == [.startTimer(ScanWatch.window)]) }
        #expect(watch.scan(false) == [.stopTimer])
        #expect(watch.timerFired() == [])
    }

    @Test("whatever is heard begins a new minute of patience")
    func heard() {
        var watch = ScanWatch()
        _ = watch.scan(true)
        for _ in 0..<3 {
            watch.hear()
            #expect(watch.timerFired() == [.startTimer(ScanWatch.window)])
            #expect(watch.timerFired() == [.restart, .startTimer(ScanWatch.window)])
        }
    }
}
