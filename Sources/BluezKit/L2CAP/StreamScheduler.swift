import Foundation

/// Where a stream's events are delivered: on run loops, as Apple's streams do it, or on a dispatch queue.
///
/// Foundation on Linux has no public run loop source, so a timer is one: far in the future, it keeps its run loop
/// running, and an event brings its date forward, which any thread may do. A timer does not end
/// `RunLoop.run(mode:before:)`, as a source does and as apps rely on, so that is done after each delivery.
final class StreamScheduler: @unchecked Sendable {  // holds: what changes is under `shared`'s lock
    // holds: run loops and timers are used on other threads only for what CoreFoundation allows: adding timers, setting
    // dates
    private struct Place: @unchecked Sendable {
        let runLoop: RunLoop
        var modes: [RunLoop.Mode]
        var timer: Timer
    }

    private struct Shared: Sendable {
        var places: [Place] = []
        var queue: DispatchQueue?
        /// Whether any thread may run the queue; nil: it has not run yet.
        var runsOnAnyThread: Bool?
        /// A delivery is on its way.
        var isSignalled = false
        /// A thread delivers on the queue, and looks whether there is more before it leaves.
        var isServed = false
        var deliver: (@Sendable () -> Void)?

        var isScheduled: Bool { !places.isEmpty || queue != nil }
    }

    private let shared = Protected(Shared())

    /// What delivers the events. Set once, before anything is scheduled.
    func setDelivery(_ deliver: @escaping @Sendable () -> Void) { shared.withLock { $0.deliver = deliver } }

    var isScheduled: Bool { shared.withLock { $0.isScheduled } }

    // MARK: Scheduling

    func schedule(in runLoop: RunLoop, _ mode: RunLoop.Mode) {
        let new = makeTimer()
        let known: Timer? = shared.withLock { shared in
            guard let index = shared.places.firstIndex(where: { $0.runLoop === runLoop }) else {
                shared.places.append(Place(runLoop: runLoop, modes: [mode], timer: new))
                return nil
            }
            guard !shared.places[index].modes.contains(mode) else { return shared.places[index].timer }
            shared.places[index].modes.append(mode)
            return shared.places[index].timer
        }
        runLoop.add(known ?? new, forMode: mode)
        signal(always: true)
    }

    /// A timer leaves all modes of its run loop only at once.
    func remove(from runLoop: RunLoop, _ mode: RunLoop.Mode) {
        let (old, new, modes): (Timer?, Timer?, [RunLoop.Mode]) = shared.withLock { shared in
            guard let index = shared.places.firstIndex(where: { $0.runLoop === runLoop }),
                shared.places[index].modes.contains(mode)
            else { return (nil, nil, []) }
            let old = shared.places[index].timer
            shared.places[index].modes.removeAll { $0 == mode }
            let modes = shared.places[index].modes
            guard !modes.isEmpty else {
                shared.places.remove(at: index)
                return (old, nil, [])
            }
            let new = makeTimer()
            shared.places[index].timer = new
            return (old, new, modes)
        }
        if let new {
            for mode in modes { runLoop.add(new, forMode: mode) }
        }
        old?.invalidate()
        if new != nil { signal(always: true) }
    }

    func schedule(on queue: DispatchQueue?) {
        shared.withLock { ($0.queue, $0.runsOnAnyThread) = (queue, nil) }
        signal(always: true)
    }

    /// Nothing is delivered any more.
    func end() {
        let ended = shared.withLock { shared in
            defer { (shared.places, shared.queue, shared.deliver) = ([], nil, nil) }
            return shared
        }
        for place in ended.places { place.timer.invalidate() }
    }

    private static let never: TimeInterval = 1e9
    /// Not 0, with which CoreFoundation says that there is no timer.
    private static let past = Date(timeIntervalSinceReferenceDate: 1)

    private func makeTimer() -> Timer {
        Timer(fire: .distantFuture, interval: Self.never, repeats: true) { [weak self] _ in
            guard let self, deliver() else { return }
            RunLoop.current.endTurn()
        }
    }

    // MARK: Delivery

    /// There is something to deliver. Any thread.
    /// - Parameters:
    ///   - always: Whether one on its way does not count: it may be for a run loop that does not run.
    ///   - mayWait: Whether this thread may deliver on the queue itself, and wait until the queue is free.
    func signal(always: Bool = false, mayWait: Bool = false) {
        let (places, queue, serves): ([Place], DispatchQueue?, Bool) = shared.withLock { shared in
            guard shared.isScheduled, !shared.isSignalled || always else { return ([], nil, false) }
            shared.isSignalled = true
            guard !shared.isServed || always else { return (shared.places, nil, false) }
            let serves = mayWait && !shared.isServed && shared.queue != nil && shared.runsOnAnyThread ?? false
            if serves { shared.isServed = true }
            return (shared.places, shared.queue, serves)
        }
        for place in places {
            place.timer.fireDate = Self.past
            if place.runLoop === RunLoop.main { ForeignMainLoop.wakeUp.withLock { $0 }?() }
        }
        guard let queue else { return }
        if serves { serve(queue) } else { deliver(on: queue) }
    }

    /// On the queue.
    private func record(_ queue: DispatchQueue) {
        guard shared.withLock({ $0.runsOnAnyThread }) == nil else { return }
        let runsOnAnyThread = queue.queueOfAnyThread != nil
        shared.withLock { if $0.queue === queue { $0.runsOnAnyThread = runsOnAnyThread } }
    }

    /// Delivers on the queue, in the calling thread, as long as there is something. In between others get their turn.
    /// What there is when the streams have been scheduled on another queue meanwhile is left to that one.
    private func serve(_ queue: DispatchQueue) {
        var next: DispatchQueue?
        repeat {
            queue.sync { _ = deliver() }
            next = shared.withLock { shared in
                let next = shared.isSignalled ? shared.queue : nil
                shared.isServed = next === queue && next != nil
                return next
            }
        } while next === queue
        if let next { deliver(on: next) }
    }

    private func deliver(on queue: DispatchQueue) {
        queue.async { [weak self] in
            self?.record(queue)
            _ = self?.deliver()
        }
    }

    private func deliver() -> Bool {
        let deliver = shared.withLock { shared in
            defer { shared.isSignalled = false }
            return shared.isSignalled ? shared.deliver : nil
        }
        deliver?()
        return deliver != nil
    }
}

/// A main loop that is not Foundation's, and that runs `RunLoop.main` when the next of its timers is due.
package enum ForeignMainLoop {
    /// Another thread has changed a timer. nil: there is no such loop.
    package static let wakeUp = Protected<(@Sendable () -> Void)?>(nil)
}

/// `RunLoop._stop()`, which exists for XCTest, and which some versions of Foundation have marked as deprecated: calls
/// through a requirement are not.
private protocol EndableTurn { func _stop() }
extension RunLoop: EndableTurn {
    /// The innermost `run(mode:before:)` returns, as after the event of a source.
    package func endTurn() { (self as any EndableTurn)._stop() }
}
