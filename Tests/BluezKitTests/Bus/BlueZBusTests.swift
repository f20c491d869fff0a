import BluezDBus
import Foundation
import Testing

@testable import BluezKit

@Suite struct BlueZBusTests {
    private let bus = BlueZBus(address: BusAddress("unix:path=/nonexistent"))
    private let log = EventLog<String>()

    // A program without a bus printed the same line with each attempt, six times in twelve seconds; and one that ended
    // in good order, just after its simulator, ended with that line.
    @Test("a missing bus is logged once, and only while a manager needs it")
    func noBus() async throws {
        final class Observer: BlueZBusObserver {
            let losses = EventLog<Int>()
            let needsBus: Bool
            init(needsBus: Bool) { self.needsBus = needsBus }
            func busOpened() {}
            func busLost() { losses.append(1) }
            func receive(_ message: Message) {}
            func callIsSlow() {}
        }
        _ = LogCapture.shared
        for needsBus in [true, false] {
            let path = "/nonexistent/\(UUID().uuidString)"
            let bus = BlueZBus(address: BusAddress("unix:path=\(path)"))
            bus.timing.daemon.reconnect = .milliseconds(1)
            bus.timing.daemon.longestReconnect = .milliseconds(1)
            let observer = Observer(needsBus: needsBus)
            bus.observer = observer
            bus.queue.sync { bus.open() }
            for _ in 0..<(needsBus ? 6 : 1) { try await observer.losses.next("a failed attempt") { $0 } }
            // What follows from the last loss comes later than this.
            await withCheckedContinuation { continuation in
                bus.queue.asyncAfter(deadline: .now() + .milliseconds(20)) { continuation.resume() }
            }
            #expect(LogCapture.shared.count(path) == (needsBus ? 1 : 0))
            withExtendedLifetime(observer) {}
        }
    }

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

    // A process that was stopped between two signals of BlueZ told its app that a link had ended, and then that
    // Bluetooth was off; or it took another adapter although its own had come back.
    @Test("O-18 a timer of a process that was held up comes after what has arrived meanwhile")
    func lateTimers() async throws {
        let script = try await ScriptedBus()
        try await script.powerOn()
        let goesOn = DispatchSemaphore(value: 0)
        let (due, timer) = script.turn {
            // Before the timers are set: in the queue its turn comes before theirs, however late that is.
            script.bus.queue.async { _ = goesOn.wait(timeout: .now() + 20) }
            let isOff = { [states = script.states] in states.all.contains(.poweredOff) }
            script.bus.after(.milliseconds(50)) { [log] in log.append("after: \(isOff())") }
            let timer = script.bus.timer(.milliseconds(50)) { [log] in log.append("timer: \(isOff())") }
            return (DispatchTime.now() + .milliseconds(80), Held(value: timer))
        }
        try await eventually("they are late") { DispatchTime.now() > due }
        try script.change(ScriptedBus.hci0, BlueZ.adapter, [("Powered", .bool(false))])
        try await script.daemon.settle()
        goesOn.signal()
        try await eventually("both have come") { log.all.count == 2 }
        #expect(Set(log.all) == ["after: true", "timer: true"])
        script.turn { timer.value.cancel() }
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
