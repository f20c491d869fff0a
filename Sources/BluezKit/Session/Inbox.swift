import Dispatch
import Foundation

/// The way from the bus queue to the app's queue: events in order, one wake-up for all that have gathered, and never a
/// wait for the app. What an event changes of the app's objects it changes when it is delivered (D2).
///
/// A thread of its own waits for events and brings them by `sync`, which runs right there when the app's queue is
/// idle. `async` would cost more: libdispatch wakes and parks a worker of its pool for every single notification.
// holds: what changes is under the lock of `state`
final class Inbox: @unchecked Sendable {
    // holds: made on the bus queue, consumed on the app's, never shared
    enum Event: @unchecked Sendable {
        case run((CBCentralManager) -> Void)
        /// A notification or indication: by far the most frequent, so it carries no closure.
        case value(Data, CBCharacteristic, PeripheralCore, link: UInt64)
    }

    private struct State {
        var events: [Event] = []
        /// Whom the events are for; held while there are any.
        var recipient: ManagerCore?
        var hasThread = false
        var isAsleep = false
        var hasEnded = false
    }

    private let queue: DispatchQueue
    private let state = Protected(State())
    private let wakeUp = DispatchSemaphore(value: 0)

    /// - Parameter queue: The app's. It may be concurrent: one thread delivers, so the order is kept.
    init(queue: DispatchQueue) { self.queue = queue }

    /// Delivers `events` to `manager` after all that were posted before. Events for a manager that is gone are lost.
    func post(_ events: [Event], to manager: ManagerCore) {
        let (mustStart, mustWake) = state.withLock { state in
            if state.events.isEmpty { state.events = events } else { state.events += events }
            state.recipient = manager
            defer { (state.hasThread, state.isAsleep) = (true, false) }
            return (!state.hasThread, state.isAsleep)
        }
        if mustStart { startDelivering() }
        if mustWake { wakeUp.signal() }
    }

    /// Nothing follows: the manager is gone.
    func end() {
        let mustWake = state.withLock { state in
            state.hasEnded = true
            defer { state.isAsleep = false }
            return state.isAsleep
        }
        if mustWake { wakeUp.signal() }
    }

    private func startDelivering() {
        let thread = Thread { [self] in
            while let recipient = next() { queue.sync { deliver(to: recipient) } }
        }
        thread.name = "bluezkit.delivery"
        thread.start()
    }

    /// Waits for events. - Returns: whom they are for; nil at the end.
    private func next() -> ManagerCore? {
        while true {
            let (recipient, hasEnded) = state.withLock { state in
                defer { state.recipient = nil }
                state.isAsleep = state.events.isEmpty && !state.hasEnded
                return (state.events.isEmpty ? nil : state.recipient, state.hasEnded)
            }
            if recipient != nil || hasEnded { return recipient }
            wakeUp.wait()
        }
    }

    private func deliver(to core: ManagerCore) {
        let events = state.withLock { state in
            defer { state.events = [] }
            return state.events
        }
        for event in events {
            // Taken anew each time: the app may release its manager in any callback, and then nothing follows (CN-15).
            guard let manager = core.manager else { break }
            switch event {
            case .run(let body): body(manager)
            case .value(let data, let characteristic, let peripheral, let link):
                peripheral.deliver(data, of: characteristic, link: link)
            }
        }
    }
}
