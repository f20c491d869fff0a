import Testing

@testable import BluezKitGLib

@Suite struct TimerDeadlineTests {
    /// What the clocks of this computer say.
    private struct Clocks {
        var wall = 1000.0
        var monotonic: Int64 = 5_000_000

        mutating func pass(_ seconds: Double) {
            wall += seconds
            monotonic += Int64(seconds * 1e6)
        }
    }

    private var clocks = Clocks()
    private var deadline = TimerDeadline()

    private mutating func update(_ date: Double) -> Int64? {
        deadline.update(date: date, now: clocks.wall, monotonic: clocks.monotonic)
        return deadline.time
    }

    private mutating func run(_ date: Double) -> Int64? {
        deadline.didRun(date: date, now: clocks.wall, monotonic: clocks.monotonic)
        return deadline.time
    }

    @Test("a date becomes a deadline, also one in the past, and a missing date gives no deadline")
    mutating func dates() {
        #expect(update(0) == nil)
        #expect(update(1002) == 7_000_000)
        #expect(update(1) == 5_000_000)
        #expect(update(0) == nil)
        #expect(update(-63_114_076_800) == 5_000_000)
        #expect(update(.greatestFiniteMagnitude) == 31_536_005_000_000)
        #expect(update(.infinity) == 31_536_005_000_000)
    }

    @Test("a wall clock that is set makes no timer early or late")
    mutating func clockIsSet() {
        #expect(update(1010) == 15_000_000)
        clocks.pass(1)
        for step in [3600.0, -7200] {
            clocks.wall += step
            #expect(update(1010) == 15_000_000)
        }
        // The next timer is seen by the new clock.
        #expect(update(clocks.wall + 1) == 7_000_000)
    }

    @Test(
        "a timer that fired gets its next date; one that did not is tried again at pauses that grow to a second"
    )
    mutating func retries() {
        _ = update(1001)
        clocks.pass(1)
        #expect(run(1003) == 8_000_000)
        clocks.pass(2)
        var pause: Int64 = 1000
        for _ in 0..<15 {
            #expect(run(1003) == clocks.monotonic + min(pause, 1_000_000))
            pause *= 2
        }
        #expect(run(1004) == 9_000_000)
        clocks.pass(1)
        #expect(run(1004) == clocks.monotonic + 1000)
        #expect(run(0) == nil)
    }
}
