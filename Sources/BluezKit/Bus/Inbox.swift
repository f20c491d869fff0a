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
    /// Asked while work runs there. A queue that may run on any thread, so that a thread that has something for it can run it
    /// there; nil: one thread runs this place, and has to be woken.
    var queueOfAnyThread: DispatchQueue? { get }
}

extension DispatchQueue: CallbackPlace {
    package func perform(_ work: @escaping @Sendable () -> Void) { async(execute: work) }
    /// `dispatchMain()` makes the main queue one of any thread.
    package var queueOfAnyThread: DispatchQueue? { isMain && Thread.isMainThread ? nil : self }
    /// By name: every mention of `.main` makes an object of its own.
    var isMain: Bool { label == DispatchQueue.main.label }
}

/// The way from the bus queue to the app's queue: events in order, one hop at most for all that have gathered, and never a
/// wait for the app. What an event changes of the app's objects it changes when it is delivered (D2).
///
/// The thread that has read the events from the bus brings them, by `sync`, which runs right there when the app's queue is
/// idle (``Connection/afterTurn(_:)``). `async` costs more: libdispatch wakes and parks a worker of its pool for every single
/// notification. It brings what a thread of the bus has not read, or what it has read for further managers; what comes
/// first, as a queue that never runs would keep the thread forever; and what is for a place that one thread runs, such as the
/// main queue, because that thread has to be woken in any case.
// holds: what changes is under the lock of `state`
final class Inbox<Owner: Recipient>: @unchecked Sendable {
    // holds: events are made on the bus queue, consumed on the app's, never shared
    private struct State: @unchecked Sendable {
        var events: [Owner.Event] = []
        /// Whom the events are for; held while there are any.
        var recipient: Owner?
        /// Whether what there is is being brought to the app's queue: by one thread at a time, so that the order is kept.
        var isCarried = false
        /// Whether the place has run.
        var hasRun = false
        /// The place, once it has run, if any thread may run it.
        var queue: DispatchQueue?
    }

    /// Does work on the thread that has read what is being handled; false: there is none (``Connection/afterTurn(_:)``).
    typealias Carrier = (_ work: @escaping @Sendable () -> Void) -> Bool

    private let place: any CallbackPlace
    private let state = Protected(State())
    /// Posted in this turn. Confined to the bus queue.
    private var outgoing: [Owner.Event] = []

    /// - Parameter place: The app's. A queue may be concurrent: events are delivered one by one nonetheless.
    init(_ place: any CallbackPlace) { self.place = place }

    /// Adds an event to what ``flush(to:by:)`` delivers. - Returns: whether it is the first of this turn.
    func add(_ event: Owner.Event) -> Bool {
        outgoing.append(event)
        return outgoing.count == 1
    }

    /// Delivers what was added, after all that was delivered before. Events for a manager that is gone are lost.
    func flush(to recipient: Owner, by carrier: Carrier) {
        guard !outgoing.isEmpty else { return }
        let events = outgoing
        outgoing = []
        let (isCarried, queue) = state.withLock { state in
            if state.events.isEmpty { state.events = events } else { state.events += events }
            state.recipient = recipient
            defer { state.isCarried = true }
            return (state.isCarried, state.queue)
        }
        guard !isCarried else { return }
        if let queue, carrier({ [self] in deliverAll(on: queue) }) { return }
        deliverLater()
    }

    private func deliverAll(on queue: DispatchQueue) {
        repeat { queue.sync { deliver() } } while hasMore()
    }

    private func deliverLater() {
        place.perform { [self] in
            deliver()
            if hasMore() { deliverLater() }
        }
    }

    /// Whether there is more to deliver; if not, the next event that is posted begins again.
    private func hasMore() -> Bool {
        state.withLock { state in
            state.isCarried = !state.events.isEmpty
            return state.isCarried
        }
    }

    /// On the app's queue, which other blocks have in between.
    private func deliver() {
        let (events, recipient, isFirst) = state.withLock { state in
            defer { (state.events, state.recipient, state.hasRun) = ([], nil, true) }
            return (state.events, state.recipient, !state.hasRun)
        }
        if isFirst {
            let queue = place.queueOfAnyThread
            state.withLock { $0.queue = queue }
        }
        // The app may release its manager in any callback.
        for event in events { recipient?.deliver(event) }
    }
}
