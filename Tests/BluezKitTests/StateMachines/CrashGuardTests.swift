import BluezDBus
import Dispatch
import Testing

@testable import BluezKit

@Suite struct CrashGuardTests {
    private var guarded = CrashGuard()
    private let start = DispatchTime.now()

    /// bluetoothd ends `seconds` after it was asked for a scan with services; nil: it was not asked.
    private mutating func end(after seconds: Double?) -> Bool {
        if seconds != nil { guarded.askedForFilter(at: start) }
        return guarded.daemonEnded(at: start.later(by: .seconds(seconds ?? 0)))
    }

    @Test("services are left out when bluetoothd has ended twice in a row soon after it was asked for them")
    mutating func twice() {
        let first = end(after: 1), second = end(after: 9)
        #expect(!first && second && guarded.avoidsFilters)
        let third = end(after: nil)
        #expect(!third && guarded.avoidsFilters, "it is said once, and stays so")
    }

    @Test(
        "an end of bluetoothd long after a scan with services, or without one, is not counted as a crash of it",
        arguments: [11, nil])
    mutating func unrelated(_ seconds: Double?) {
        let ends = [end(after: 1), end(after: seconds), end(after: 1)]
        #expect(ends == [false, false, false] && !guarded.avoidsFilters)
        let last = end(after: 1)
        #expect(last)
    }

    @Test("scans that follow one another do not make every restart count as a crash")
    mutating func scans() {
        for restart in 1...3 {
            for second in 0..<60 { guarded.askedForFilter(at: start.later(by: .seconds(restart * 100 + second))) }
            let ended = guarded.daemonEnded(at: start.later(by: .seconds(restart * 100 + 60)))
            #expect(!ended)
        }
    }

    @Test("a lost bus tells nothing of bluetoothd: the next one is judged by what it is asked")
    mutating func busLost() {
        _ = end(after: 1)
        guarded.askedForFilter(at: start)
        guarded.forget()
        guarded.askedForFilter(at: start.later(by: .seconds(100)))
        let second = guarded.daemonEnded(at: start.later(by: .seconds(101)))
        #expect(second)
    }

    @Test("requests to an earlier bluetoothd do not count for a crash of the next")
    mutating func forgotten() {
        _ = end(after: 1)
        let second = guarded.daemonEnded(at: start.later(by: .seconds(2)))
        #expect(!second)
    }
}
