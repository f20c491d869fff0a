import Dispatch
import Testing

@testable import BluezDBus

@Suite struct DeadlineTimerTests {
    // A call that was made in the moment between a deadline and its handler set the timer again, and the overdue call
    // waited for the next deadline, up to 10 s longer.
    @Test("a deadline that has passed is not put off by a later one")
    func overdue() async throws {
        let queue = DispatchQueue(label: "test.deadline")
        let fired = EventLog<Bool>()
        let timer = queue.sync {
            var timer = DeadlineTimer(queue: queue)
            timer.onDue = { fired.append(true) }
            timer.mustFire(by: .now())
            timer.mustFire(by: .now() + .seconds(3600))
            return timer
        }
        try await fired.next("the handler") { $0 }
        timer.stop()
    }

    @Test("after a deadline the timer is set again, also for a later one")
    func again() async throws {
        let queue = DispatchQueue(label: "test.deadline")
        let fired = EventLog<Bool>()
        let timer = ProtectedBox(DeadlineTimer(queue: queue))
        queue.sync {
            timer.withLock { timer in
                timer.onDue = { fired.append(true) }
                timer.mustFire(by: .now())
            }
        }
        try await fired.next("the first") { $0 }
        queue.sync {
            timer.withLock { timer in
                timer.hasFired()
                timer.mustFire(by: .now() + .milliseconds(1))
            }
        }
        try await fired.next("the second") { $0 }
        timer.withLock { $0.stop() }
    }
}
