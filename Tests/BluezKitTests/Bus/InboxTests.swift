import BluezDBus
import Dispatch
import Glibc
import Testing

@testable import BluezKit

@Suite struct InboxTests {
    /// A manager whose events are numbers.
    // holds: the inbox is used by one thread at a time, the rest is constant or safe
    private final class Recorder: Recipient, @unchecked Sendable {
        let inbox: Inbox<Recorder>
        let log: EventLog<String>
        private let onEvent: (@Sendable (Int) -> Void)?

        init(
            _ queue: any CallbackPlace, _ log: EventLog<String>, onEvent: (@Sendable (Int) -> Void)? = nil,
            makeThread: @escaping Inbox<Recorder>.MakeThread = startThread
        ) {
            (inbox, self.log, self.onEvent) = (Inbox(queue, makeThread: makeThread), log, onEvent)
        }

        deinit {
            inbox.end()
            log.append("released")
        }

        func flush(mayDeliver: () -> Bool) -> (() -> Void)? { inbox.flush(to: self, mayDeliver: mayDeliver) }

        /// Numbers from 100 on.
        static func outlivesManager(_ event: Int) -> Bool { event >= 100 }

        func deliver(_ events: [Int]) {
            for event in events {
                log.append("\(event)")
                onEvent?(event)
            }
        }

        /// One turn of the bus queue.
        func post(_ events: Int...) {
            for event in events { _ = inbox.add(event) }
            _ = flush { false }
        }
    }

    private let queue = DispatchQueue(label: "test.app")
    private let log = EventLog<String>()

    private func wait(for text: String) async throws { try await log.next(text) { $0 == text ? true : nil } }

    @Test("events wait for the end of the turn, and the first of each turn is known")
    func turns() async throws {
        let recorder = Recorder(queue, log)
        for turn in 0..<3 {
            #expect(recorder.inbox.add(turn * 2) == true)
            #expect(recorder.inbox.add(turn * 2 + 1) == false)
            queue.sync {}
            #expect(log.all.count == turn * 2)
            _ = recorder.flush { false }
            try await wait(for: "\(turn * 2 + 1)")
        }
        #expect(log.all == (0..<6).map(String.init))
    }

    @Test("events of many turns come in order and one at a time, on a serial and on a concurrent queue")
    func order() async throws {
        for queue in [queue, DispatchQueue(label: "test.concurrent", attributes: .concurrent)] {
            log.forget()
            let mark = QueueMark()
            mark.mark(queue)
            let (running, faults) = (ProtectedBox(0), ProtectedBox(0))
            let recorder = Recorder(queue, log) { _ in
                let others = running.withLock { running in
                    defer { running += 1 }
                    return running
                }
                if others > 0 || !mark.isHere { faults.withLock { $0 += 1 } }
                running.withLock { $0 -= 1 }
            }
            for number in 0..<2000 { recorder.post(number) }
            try await wait(for: "1999")
            #expect(log.all.filter { $0 != "released" } == (0..<2000).map(String.init))
            #expect(faults.withLock { $0 } == 0)
        }
    }

    @Test("if no thread can be started, blocks deliver the events until one can")
    func noThread() async throws {
        let (allowed, refused) = (ProtectedBox(false), ProtectedBox(0))
        let recorder = Recorder(
            queue, log,
            makeThread: { name, body in
                if allowed.withLock({ $0 }) { return startThread(named: name, body) }
                refused.withLock { $0 += 1 }
                return false
            })
        for number in 0..<3 {
            recorder.post(number)
            try await wait(for: "\(number)")
            queue.sync {}  // the block has ended
        }
        #expect(refused.withLock { $0 } == 2)
        allowed.withLock { $0 = true }
        for number in 3..<100 { recorder.post(number) }
        try await wait(for: "99")
        #expect(log.all == (0..<100).map(String.init) && refused.withLock { $0 } == 2)
    }

    @Test("a queue that does not run holds up only the delivery, before the first event and later")
    func busyQueue() async throws {
        let recorder = Recorder(queue, log)
        for round in 0..<3 {
            queue.suspend()
            for number in 0..<100 { recorder.post(round * 100 + number) }
            #expect(log.all.count == round * 100)
            queue.resume()
            try await wait(for: "\(round * 100 + 99)")
        }
        #expect(log.all == (0..<300).map(String.init))
    }

    @Test("an event posted during a callback is delivered after those posted before it")
    func duringCallback() async throws {
        let bus = DispatchQueue(label: "test.bus")
        let box = ProtectedBox<Recorder?>(nil)
        let recorder = Recorder(queue, log) { event in
            guard event % 10 == 1 else { return }
            let recorder = box.withLock { $0 }
            bus.sync { recorder?.post(event + 1) }
        }
        box.withLock { $0 = recorder }
        for number in [1, 11] {
            bus.sync { recorder.post(number, number + 3) }
            try await wait(for: "\(number + 1)")
        }
        #expect(log.all == ["1", "4", "2", "11", "14", "12"])
        box.withLock { $0 = nil }
    }

    @Test("a caller that may deliver brings what there is, and what comes meanwhile; where it may not, a thread does")
    func deliversInCaller() async throws {
        let mark = QueueMark()
        mark.mark(queue)
        let threads = ProtectedBox<[pthread_t?]>([])
        let recorder = Recorder(queue, log) { _ in threads.withLock { $0.append(mark.isHere ? pthread_self() : nil) } }
        /// One turn. Returns what the caller is to do.
        func turn(_ event: Int, mayDeliver: Bool) -> (() -> Void)? {
            _ = recorder.inbox.add(event)
            return recorder.flush { mayDeliver }
        }
        #expect(turn(0, mayDeliver: true) == nil)  // it is not known yet whether the queue runs
        try await wait(for: "0")
        queue.sync {}
        threads.withLock { $0 = [] }
        let delivery = try #require(turn(1, mayDeliver: true))
        #expect(turn(2, mayDeliver: true) == nil)
        #expect(turn(3, mayDeliver: false) == nil)
        #expect(log.all == ["0"])
        let caller = pthread_self()
        delivery()
        #expect(log.all == ["0", "1", "2", "3"])
        #expect(threads.withLock { $0 } == [caller, caller, caller])
        // The first of these makes the thread, the others wake it.
        for event in 4...6 {
            #expect(turn(event, mayDeliver: false) == nil)
            try await wait(for: "\(event)")
        }
        queue.sync {}
        #expect(threads.withLock { $0.count == 6 && !$0.contains(nil) })
    }

    @Test("the recipient is kept while events wait for it, and released when it has them")
    func keepsRecipient() async throws {
        var recorder: Recorder? = Recorder(queue, log)
        queue.suspend()
        recorder?.post(1)
        recorder = nil
        #expect(log.all.isEmpty)
        queue.resume()
        try await wait(for: "released")
        #expect(log.all == ["1", "released"])
        // Delivered by the thread this time.
        log.forget()
        recorder = Recorder(queue, log)
        recorder?.post(1)
        try await wait(for: "1")
        queue.suspend()
        recorder?.post(2)
        recorder = nil
        #expect(log.all == ["1"])
        queue.resume()
        try await wait(for: "released")
        #expect(log.all == ["1", "2", "released"])
    }

    @Test("an inbox keeps nothing for a turn without events")
    func emptyTurn() {
        var recorder: Recorder? = Recorder(queue, log)
        queue.suspend()
        _ = recorder?.flush { false }
        recorder = nil
        #expect(log.all == ["released"])
        queue.resume()
    }

    /// Says when the queue that has it is released, and with it everything that holds the queue.
    private final class Sentinel: Sendable {
        private let log: EventLog<String>
        init(_ log: EventLog<String>) { self.log = log }
        deinit { log.append("queue released") }
    }

    private func watchedQueue() -> DispatchQueue {
        let queue = DispatchQueue(label: "test.watched")
        queue.setSpecific(key: DispatchSpecificKey<Sentinel>(), value: Sentinel(log))
        return queue
    }

    @Test("the delivery thread ends with the manager, before its first event, at work and at rest")
    func threadEnds() async throws {
        for count in [0, 1, 50] {
            log.forget()
            var recorder: Recorder? = Recorder(watchedQueue(), log)
            for number in 0..<count { recorder?.post(number) }
            recorder = nil
            try await wait(for: "queue released")
            #expect(log.all == (0..<count).map(String.init) + ["released", "queue released"])
        }
        // At rest: it waits to be woken.
        log.forget()
        var recorder: Recorder? = Recorder(watchedQueue(), log)
        recorder?.post(1)
        try await wait(for: "1")
        recorder = nil
        try await wait(for: "queue released")
    }

    // A place that did not run kept the events, and through them the manager's core and the place itself.
    @Test(
        "events of a released manager are dropped, but for those that mean something without it",
        arguments: [false, true])
    func abandoned(_ hasAnswer: Bool) async throws {
        queue.suspend()
        var recorder: Recorder? = Recorder(queue, log)
        recorder?.post(1, 2)
        if hasAnswer { recorder?.post(100) }
        recorder?.inbox.abandon()
        recorder?.post(3)
        recorder = nil
        #expect(log.all == (hasAnswer ? [] : ["released"]))
        queue.resume()
        try await wait(for: "released")
        #expect(log.all == (hasAnswer ? ["100", "released"] : ["released"]))
    }

    @Test("an answer that comes after the release of the manager is delivered, also where its block was cancelled")
    func answered() async throws {
        let place = CancellingPlace()
        let recorder = Recorder(place, log)
        recorder.post(1)
        recorder.inbox.abandon()
        #expect(place.works.withLock { $0.isEmpty })
        recorder.post(2, 101)
        for work in place.works.withLock({ $0 }) { work() }
        #expect(log.all == ["101"])
    }

    @Test("a block that is handed over while the manager is released is cancelled")
    func abandonedMeanwhile() {
        let place = CancellingPlace()
        let recorder = Recorder(place, log)
        place.onPerform.withLock { $0 = { [weak recorder] in recorder?.inbox.abandon() } }
        recorder.post(1)
        #expect(place.works.withLock { $0.isEmpty })
    }

    /// Runs nothing on its own.
    private final class CancellingPlace: CallbackPlace {
        let works = ProtectedBox<[@Sendable () -> Void]>([])
        /// Before work is added.
        let onPerform = ProtectedBox<(@Sendable () -> Void)?>(nil)
        func perform(_ work: @escaping @Sendable () -> Void) {
            onPerform.withLock { $0 }?()
            works.withLock { $0.append(work) }
        }
        func cancel() -> Bool { works.withLock { $0.popLast() != nil } }
        var queueOfAnyThread: DispatchQueue? { nil }
    }
}
