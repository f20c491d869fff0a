import BluezKit
import Foundation
import Glibc
import Testing

@testable import BluezKitGLib

@Suite struct ContextPlaceTests {
    // The bus thread had noted a source and not attached it yet when the app's thread released its manager: that freed
    // the source, and then it was attached. Now a source is attached before another thread can see it.
    @Test("work that another thread cancels while it is handed over never runs, and each piece is cancelled once")
    func cancelAnywhere() async throws {
        // No thread runs this context.
        let place = ContextPlace(nil, priority: 0)
        let (made, cancelled, isDone) = (Protected(0), Protected(0), Protected(false))
        // Beside a build on all processors each waits for its turn, of some milliseconds.
        let end = ContinuousClock.now + .seconds(world_deadline)
        Thread.detachNewThread {
            while !isDone.withLock({ $0 }) {
                if place.cancel() { cancelled.withLock { $0 += 1 } } else { sched_yield() }
            }
        }
        Thread.detachNewThread {
            for number in 1...20_000 where number <= 1_000 || ContinuousClock.now < end {
                made.withLock { $0 = number }
                place.perform { Issue.record("cancelled work has run") }
                // As an inbox does: none is handed over while another one waits.
                while cancelled.withLock({ $0 }) < number { sched_yield() }
            }
            isDone.withLock { $0 = true }
        }
        try await eventually("all are cancelled", within: 4 * world_deadline) { isDone.withLock { $0 } }
        #expect(cancelled.withLock { $0 } == made.withLock { $0 })
        #expect(!place.cancel())
    }
}
