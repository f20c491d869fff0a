import Dispatch
import Foundation

/// The way from the bus queue to the app's queue: events in order, one hop for all that have gathered, and never a
/// wait for the app. What an event changes of the app's objects it changes when it is delivered (D2).
final class Inbox: Sendable {
    enum Event: @unchecked Sendable {  // holds: made on the bus queue, consumed on the app's, never shared
        case run((CBCentralManager) -> Void)
        /// A notification or indication: by far the most frequent, so it carries no closure.
        case value(Data, CBCharacteristic, PeripheralCore, link: UInt64)
    }

    private struct State {
        var events: [Event] = []
        var isScheduled = false
    }

    private let queue: DispatchQueue
    private let state = Protected(State())

    /// - Parameter queue: The app's. It may be concurrent: the order is kept by scheduling one delivery at a time.
    init(queue: DispatchQueue) { self.queue = queue }

    /// Delivers `events` to `manager` after all that were posted before. Events for a manager that is gone are lost.
    func post(_ events: [Event], to manager: ManagerCore) {
        let mustSchedule = state.withLock { state in
            if state.events.isEmpty { state.events = events } else { state.events += events }
            defer { state.isScheduled = true }
            return !state.isScheduled
        }
        if mustSchedule { queue.async { self.deliver(to: manager) } }
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
        let goesOn = state.withLock { state in
            state.isScheduled = !state.events.isEmpty
            return state.isScheduled
        }
        if goesOn { queue.async { self.deliver(to: core) } }
    }
}
