import BluezDBus
import Dispatch
import Testing

@testable import BluezKit

@Suite struct CallBudgetTests {
    private let start = DispatchTime(uptimeNanoseconds: 1 << 50)
    private func at(_ seconds: Int) -> DispatchTime { start.later(by: .seconds(seconds)) }

    private func pause(_ budget: inout CallBudget, _ second: Int) -> Duration? { budget.pause(at: at(second)) }

    private func spend(at second: Int, _ budget: inout CallBudget) {
        for _ in 0..<8 { budget.lose(at: at(second)) }
    }

    @Test(
        "eight calls that are never answered within ten minutes are a pause; seven, or eight in a longer time, are not")
    func counts() {
        var budget = CallBudget()
        for minute in 0..<30 {
            budget.lose(at: at(minute * 90))
            #expect(pause(&budget, minute * 90) == nil)
        }
        var other = CallBudget()
        for second in 0..<7 { other.lose(at: at(second)) }
        #expect(pause(&other, 7) == nil)
        other.lose(at: at(8))
        #expect(pause(&other, 8) == .seconds(60))
        #expect(pause(&other, 67) == .seconds(1))
        #expect(pause(&other, 68) == nil)
    }

    @Test("pauses double up to an hour, and start over after an hour without one")
    func doubles() {
        var budget = CallBudget()
        var now = 0
        for length in [60, 120, 240, 480, 960, 1920, 3600, 3600] {
            spend(at: now, &budget)
            #expect(pause(&budget, now) == .seconds(length))
            now += length + 1
        }
        now += 3600
        let isFresh = budget.isFresh(at: at(now))
        #expect(isFresh)
        spend(at: now, &budget)
        #expect(pause(&budget, now) == .seconds(60))
        let isFreshAgain = budget.isFresh(at: at(now))
        #expect(!isFreshAgain)
    }

    @Test("a call that is answered late does not count")
    func recovers() {
        var budget = CallBudget()
        spend(at: 0, &budget)
        budget.recover()
        #expect(pause(&budget, 1) == nil)
    }
}
