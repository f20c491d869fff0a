import BluezDBus
import Foundation
import Testing

@testable import BluezKit

@Suite struct BlueZBusTests {
    private let bus = BlueZBus(address: BusAddress("unix:path=/nonexistent"))
    private let log = EventLog<String>()

    @Test("RW-1 a request is made in the thread that asks for it, but never before those that were made earlier")
    func order() async throws {
        let thread = ProtectedBox<Thread?>(nil)
        let isSame = await withCheckedContinuation { continuation in
            Thread.detachNewThread { [bus] in
                bus.runHere { thread.withLock { $0 = .current } }
                continuation.resume(returning: thread.withLock { $0 === Thread.current })
            }
        }
        #expect(isSame)
        // The queue is busy, and one request waits.
        let isFree = DispatchSemaphore(value: 0)
        bus.queue.async { isFree.wait() }
        bus.run { [log] in log.append("first") }
        bus.runHere { [log] in log.append("second") }
        #expect(log.all.isEmpty)
        isFree.signal()
        try await log.next("the second") { $0 == "second" ? true : nil }
        #expect(log.all == ["first", "second"])
    }

    @Test("a request from the bus queue itself waits until what runs there is done")
    func nested() async throws {
        bus.run { [bus, log] in
            bus.runHere { log.append("inner") }
            log.append("outer")
        }
        try await log.next("the inner one") { $0 == "inner" ? true : nil }
        #expect(log.all == ["outer", "inner"])
    }
}
