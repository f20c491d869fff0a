package import Dispatch
import Foundation

/// The bus queue's end of a manager, of either role.
protocol Recipient: AnyObject, Sendable {
    associatedtype Event
    /// Hands on what was posted in this turn of the bus queue.
    func flush()
    /// On the app's queue. If the manager is gone nothing of it follows (CN-15).
    func deliver(_ event: Event)
}

/// Where a manager's callbacks are made.
package protocol CallbackPlace: Sendable {
    /// Runs `work` soon, after what was handed over before, and never within this call.
    func perform(_ work: @escaping @Sendable () -> Void)
    /// Asked while work runs there. A queue that may run on any thread, for which it costs less to wait on a thread of one's
    /// own than to hand over work; nil: one thread runs this place, and is woken.
    var queueOfAnyThread: DispatchQueue? { get }
}

extension DispatchQueue: CallbackPlace {
    package func perform(_ work: @escaping @Sendable () -> Void) { async(execute: work) }
    /// `dispatchMain()` makes the main queue one of any thread.
    package var queueOfAnyThread: DispatchQueue? { isMain && Thread.isMainThread ? nil : self }
    /// By name: every mention of `.main` makes an object of its own.
    var isMain: Bool { label == DispatchQueue.main.label }
}

/// The way from the bus queue to the app's queue: events in order, one wake-up for all that have gathered, and never a
/// wait for the app. What an event changes of the app's objects it changes when it is delivered (D2).
///
/// For a queue that may run on any thread, a thread of its own waits for events and brings them by `sync`, which runs right
/// there when the queue is idle. `async` would cost more: libdispatch wakes and parks a worker of its pool for every single
/// notification. Only the first delivery is made so: a queue that never runs would keep the thread forever. The main queue
/// and other places that one thread runs are handed one block at a time.
// holds: what changes is under the lock of `state`
final class Inbox<Owner: Recipient>: @unchecked Sendable {
    // holds: events are made on the bus queue, consumed on the app's, never shared
    private struct State: @unchecked Sendable {
        var events: [Owner.Event] = []
        /// Whom the events are for; held while there are any.
        var recipient: Owner?
        var carrier = Carrier.none
        var hasEnded = false
    }

    /// Who brings what there is to the app's queue, one at a time.
    private enum Carrier {
        case none
        /// A block on the queue, which may not run.
        case block
        case thread
        /// The thread, which waits to be woken.
        case sleeper
    }

    private let place: any CallbackPlace
    private let state = Protected(State())
    private let wakeUp = DispatchSemaphore(value: 0)
    /// Posted in this turn. Confined to the bus queue.
    private var outgoing: [Owner.Event] = []

    /// - Parameter place: The app's. A queue may be concurrent: one carrier delivers, so the order is kept.
    init(_ place: any CallbackPlace) { self.place = place }

    /// Adds an event to what ``flush(to:)`` delivers. - Returns: whether it is the first of this turn.
    func add(_ event: Owner.Event) -> Bool {
        outgoing.append(event)
        return outgoing.count == 1
    }

    /// Delivers what was added, after all that was delivered before. Events for a manager that is gone are lost.
    func flush(to recipient: Owner) {
        guard !outgoing.isEmpty else { return }
        let events = outgoing
        outgoing = []
        post(events, to: recipient)
    }

    private func post(_ events: [Owner.Event], to recipient: Owner) {
        let previous = state.withLock { state in
            if state.events.isEmpty { state.events = events } else { state.events += events }
            state.recipient = recipient
            defer { if state.carrier != .block { state.carrier = state.carrier == .none ? .block : .thread } }
            return state.carrier
        }
        switch previous {
        case .none: place.perform { [self] in deliverBlock() }
        case .sleeper: wakeUp.signal()
        case .block, .thread: break
        }
    }

    /// Nothing follows: the manager is gone.
    func end() {
        let mustWake = state.withLock { state in
            state.hasEnded = true
            defer { if state.carrier == .sleeper { state.carrier = .thread } }
            return state.carrier == .sleeper
        }
        if mustWake { wakeUp.signal() }
    }

    /// On the app's queue. What is posted meanwhile waits for a turn of its own, also if the app runs a loop in a callback.
    private func deliverBlock() {
        if let recipient = state.withLock({ $0.recipient }) { deliver(to: recipient) }
        if let queue = place.queueOfAnyThread { return startThread(queue) }
        let (mustGoOn, last) = state.withLock { state -> (Bool, Owner?) in
            guard state.events.isEmpty else { return (true, nil) }
            defer { state.recipient = nil }
            state.carrier = .none
            return (false, state.recipient)
        }
        // Outside the lock: it may be the last reference.
        withExtendedLifetime(last) {}
        if mustGoOn { place.perform { [self] in deliverBlock() } }
    }

    /// The queue runs: from now on a thread waits for it.
    private func startThread(_ queue: DispatchQueue) {
        state.withLock { $0.carrier = .thread }
        let thread = Thread { [self] in
            while let recipient = next() { queue.sync { deliver(to: recipient) } }
        }
        thread.name = "bluezkit.delivery"
        thread.start()
    }

    /// Waits for events. - Returns: whom they are for; nil at the end.
    private func next() -> Owner? {
        while true {
            let (recipient, hasEnded) = take()
            if recipient != nil || hasEnded { return recipient }
            wakeUp.wait()
        }
    }

    /// The recipient of waiting events, if there are any. One that has none is released here, outside the lock: it may
    /// be the last reference, and its end comes to ``end()``.
    private func take() -> (recipient: Owner?, hasEnded: Bool) {
        let (recipient, hasEvents, hasEnded) = state.withLock { state in
            defer { state.recipient = nil }
            if state.events.isEmpty, !state.hasEnded { state.carrier = .sleeper }
            return (state.recipient, !state.events.isEmpty, state.hasEnded)
        }
        return (hasEvents ? recipient : nil, hasEnded)
    }

    private func deliver(to recipient: Owner) {
        let events = state.withLock { state in
            defer { state.events = [] }
            return state.events
        }
        // The app may release its manager in any callback.
        for event in events { recipient.deliver(event) }
    }
}
