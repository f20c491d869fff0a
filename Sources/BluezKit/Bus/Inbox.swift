package import Dispatch
import BluezDBus
import Foundation

/// Has events for an app at the end of a turn of the bus queue.
protocol EventSource: AnyObject {
    /// Delivers what was posted in this turn.
    /// - Parameter mayDeliver: Whether the caller can make the delivery, outside the bus queue, however long it takes.
    /// - Returns: The delivery to make; nil: another thread makes it, or there is none.
    func flush(mayDeliver: () -> Bool) -> (() -> Void)?
}

extension [any EventSource] {
    /// - Parameter mayDeliver: Whether the caller can make one delivery itself.
    /// - Returns: The delivery to make; nil: all are made by others.
    func flush(mayDeliver: () -> Bool) -> (() -> Void)? {
        var delivery: (() -> Void)?
        for source in self {
            if let own = source.flush(mayDeliver: { delivery == nil && mayDeliver() }) { delivery = own }
        }
        return delivery
    }
}

/// Gets the events of one manager.
protocol Recipient: AnyObject, Sendable {
    associatedtype Event
    /// Called on the app's queue, with all that have come. Has no effect once the manager has been released (CN-15).
    func deliver(_ events: [Event])
    /// Whether the event means something without the manager.
    static func outlivesManager(_ event: Event) -> Bool
}

/// Where a manager's callbacks are made.
package protocol CallbackPlace: Sendable {
    /// Runs `work` soon, after what was handed over before, and never within this call.
    func perform(_ work: @escaping @Sendable () -> Void)
    /// Asked while work runs there. The queue, if it may run on any thread: `sync` from a thread of our own then costs
    /// less than handing over work. Nil: one particular thread runs this place, and has to be woken.
    var queueOfAnyThread: DispatchQueue? { get }
    /// Cancels the work that was handed over last. - Returns: Whether it had not begun, and will not run.
    func cancel() -> Bool
}

extension DispatchQueue: CallbackPlace {
    package func perform(_ work: @escaping @Sendable () -> Void) { async(execute: work) }
    /// `dispatchMain()` makes the main queue one of any thread.
    package var queueOfAnyThread: DispatchQueue? { isMain && Thread.isMainThread ? nil : self }
    package func cancel() -> Bool { false }
    /// By name: every mention of `.main` makes an object of its own.
    var isMain: Bool { label == DispatchQueue.main.label }
}

/// Delivers a manager's events from the bus queue to the app's queue: in order, with one wake-up for all that are
/// pending, and without ever waiting for the app on the bus queue. An event changes the app's objects when it is
/// delivered (D2).
///
/// A queue that may run on any thread gets its events by `sync`, which runs in place when the queue is idle. The caller
/// is the leader of `WaitingThreads`, which then wakes no other thread, or else the inbox's own thread. `async` would
/// cost more, because libdispatch wakes and parks a worker of its pool for each notification. Only the first delivery
/// uses `async`, because a queue that never runs would otherwise occupy a thread forever. The main queue, and other
/// places that one particular thread runs, get one block at a time.
// holds: what changes is under the lock of `state`
final class Inbox<Owner: Recipient>: @unchecked Sendable {
    // holds: events are made on the bus queue, consumed on the app's, never shared
    private struct State: @unchecked Sendable {
        var events: [Owner.Event] = []
        /// The receiver of the events; retained while there are any.
        var recipient: Owner?
        var carrier = Carrier.none
        /// The queue to use `sync` on; nil: it has not run yet, or one particular thread runs it.
        var queue: DispatchQueue?
        var hasThread = false
        var hasEnded = false
        /// The app has released the manager.
        var isAbandoned = false
    }

    /// Which thread delivers pending events.
    private enum Carrier: Equatable {
        /// None: a block must be handed over to the queue.
        case none
        /// The one that will run a block on the queue, if the queue runs at all.
        case block
        /// A thread that uses `sync` and is already delivering.
        case thread
        /// None at the moment: a thread must begin to deliver.
        case anyThread
    }

    private let place: any CallbackPlace
    /// Nil: real time.
    private let time: VirtualTime?
    private let state = Protected(State())
    private let wakeUp = DispatchSemaphore(value: 0)
    /// Posted in this turn. Confined to the bus queue.
    private var outgoing: [Owner.Event] = []

    /// Starts a thread. Returns whether that was possible.
    private let makeThread: MakeThread
    typealias MakeThread = (_ name: String, _ body: @escaping @Sendable () -> Void) -> Bool

    /// - Parameter place: The app's. A queue may be concurrent: one carrier delivers, so the order is kept.
    init(_ place: any CallbackPlace, time: VirtualTime? = nil, makeThread: @escaping MakeThread = startThread) {
        (self.place, self.time, self.makeThread) = (place, time, makeThread)
    }

    /// Adds an event to what ``flush(to:)`` delivers. - Returns: whether it is the first of this turn.
    func add(_ event: Owner.Event) -> Bool {
        outgoing.append(event)
        return outgoing.count == 1
    }

    /// Delivers what was added, after everything that was delivered before. Events for a released manager are dropped.
    /// - Parameter mayDeliver: Asked if a thread must begin to deliver.
    /// - Returns: The delivery that the caller must make; nil: none.
    func flush(to recipient: Owner, mayDeliver: () -> Bool) -> (() -> Void)? {
        guard !outgoing.isEmpty else { return nil }
        let events = outgoing
        outgoing = []
        switch post(events, to: recipient) {
        case .none: handOver()
        case .anyThread where mayDeliver(): return { [self] in _ = deliverAll() }
        case .anyThread: wakeThread()
        case .block, .thread: break
        }
        return nil
    }

    /// - Returns: The carrier before that; or `.block`, if there is nothing to deliver.
    private func post(_ events: [Owner.Event], to recipient: Owner) -> Carrier {
        state.withLock { state in
            let events = state.isAbandoned ? events.filter(Owner.outlivesManager) : events
            guard !events.isEmpty else { return .block }
            time?.began(events.count)
            if state.events.isEmpty { state.events = events } else { state.events += events }
            state.recipient = recipient
            defer {
                switch state.carrier {
                case .none: state.carrier = .block
                case .anyThread: state.carrier = .thread
                case .block, .thread: break
                }
            }
            return state.carrier
        }
    }

    /// The app has released the manager. Events that only it would have received are dropped: on a queue that does not
    /// run they would keep objects alive, which may in turn keep that queue alive.
    func abandon() {
        let (dropped, recipient, isIdle) = state.withLock { state in
            let events = state.events
            state.isAbandoned = true
            state.events = events.filter(Owner.outlivesManager)
            time?.ended(events.count - state.events.count)
            guard state.events.isEmpty else { return (events, nil as Owner?, false) }
            defer { state.recipient = nil }
            return (events, state.recipient, state.carrier == .block)
        }
        // Outside the lock: they may be the last references to the app's objects.
        withExtendedLifetime((dropped, recipient)) {}
        if isIdle, place.cancel() { restart() }
    }

    /// The block was cancelled. An event may have been posted for it meanwhile.
    private func restart() {
        let hasEvents = state.withLock { state in
            if state.events.isEmpty { state.carrier = .none }
            return !state.events.isEmpty
        }
        if hasEvents { handOver() }
    }

    /// Hands a block over to the app's queue.
    private func handOver() {
        place.perform { [self] in deliverBlock() }
        // The app may have released the manager after the event was posted, and before this.
        let isForNothing = state.withLock { $0.isAbandoned && $0.events.isEmpty }
        if isForNothing, place.cancel() { restart() }
    }

    /// The manager has been released: no more events follow.
    func end() {
        let hasThread = state.withLock { state in
            state.hasEnded = true
            return state.hasThread
        }
        if hasThread { wakeUp.signal() }
    }

    /// On the app's queue. Events that are posted meanwhile are delivered by another block, even if the app runs a loop
    /// in a callback.
    private func deliverBlock() {
        if let recipient = state.withLock({ $0.recipient }) { deliver(to: recipient) }
        let queue = place.queueOfAnyThread
        let (hasEvents, last) = state.withLock { state -> (Bool, Owner?) in
            state.queue = queue
            guard state.events.isEmpty else {
                if queue != nil { state.carrier = .thread }
                return (true, nil)
            }
            defer { state.recipient = nil }
            state.carrier = queue == nil ? .none : .anyThread
            return (false, state.recipient)
        }
        // Outside the lock: it may be the last reference.
        withExtendedLifetime(last) {}
        guard hasEvents else { return }
        if queue == nil { handOver() } else { wakeThread() }
    }

    /// Wakes the inbox's own thread to deliver pending events, and starts it first if there is none.
    private func wakeThread() {
        let hasThread = state.withLock { state in
            defer { state.hasThread = true }
            return state.hasThread
        }
        guard !hasThread else {
            wakeUp.signal()
            return
        }
        let hasStarted = makeThread("bluezkit.events") { [self] in
            while deliverAll() { wakeUp.wait() }
        }
        guard !hasStarted else { return }
        // The process may have no more threads. One of libdispatch's, or the main one, delivers instead.
        state.withLock { ($0.hasThread, $0.carrier) = (false, .block) }
        handOver()
    }

    /// Delivers pending events on the queue until there are none.
    /// - Returns: Whether more may follow.
    private func deliverAll() -> Bool {
        while true {
            let (recipient, queue, hasEnded) = take()
            guard let recipient, let queue else { return !hasEnded }
            queue.sync { deliver(to: recipient) }
        }
    }

    /// The recipient of waiting events, if there are any. One that has none is released here, outside the lock: it may
    /// be the last reference, and its end comes to ``end()``.
    private func take() -> (recipient: Owner?, queue: DispatchQueue?, hasEnded: Bool) {
        let (recipient, hasEvents, queue, hasEnded) = state.withLock { state in
            defer { state.recipient = nil }
            if state.events.isEmpty, !state.hasEnded { state.carrier = .anyThread }
            return (state.recipient, !state.events.isEmpty, state.queue, state.hasEnded)
        }
        return (hasEvents ? recipient : nil, queue, hasEnded)
    }

    private func deliver(to recipient: Owner) {
        let events = state.withLock { state in
            defer { state.events = [] }
            return state.events
        }
        recipient.deliver(events)
        time?.ended(events.count)
    }
}
