package import Dispatch
import Synchronization

/// The one or two threads of a loop that wait for input. One is the leader: it handles input on the loop's
/// queue, and then delivers one manager's events on the app's queue, while the other thread becomes the leader. So
/// input and the app's reaction to it cost one wake-up, as in a C program that polls, and a busy app delays only its
/// own events.
///
/// The second thread is started when it is first needed. A thread delivers only if the other one is free, so that one
/// always waits.
package final class WaitingThreads: Sendable {
    /// What the leader does after it has handled input.
    package struct Turn {
        /// Whether there is no leader until a pause is over.
        var isPaused = false
        /// The delivery that the thread makes outside the queue.
        var delivery: (() -> Void)?

        package init(isPaused: Bool = false, delivery: (() -> Void)? = nil) {
            (self.isPaused, self.delivery) = (isPaused, delivery)
        }
    }

    private enum Second: Int, AtomicRepresentable { case none, isDue, started }

    private let loop: EventLoop
    private let queue: DispatchQueue
    private let name: String
    /// The number of threads that are not delivering. A thread that could not be started is never counted.
    private let free = Atomic(0)
    private let second = Atomic(Second.none)

    package init(_ loop: EventLoop, on queue: DispatchQueue, named name: String = "bluezkit.bus") {
        (self.loop, self.queue, self.name) = (loop, queue, name)
    }

    /// - Parameter handle: Handles what is ready, on the queue. Held until the loop ends.
    /// - Returns: Whether the process may have one more thread.
    package func start(_ handle: @escaping @Sendable () -> Turn) -> Bool { start(leads: true, handle) }

    private func start(leads: Bool, _ handle: @escaping @Sendable () -> Turn) -> Bool {
        startThread(named: name) { [self] in
            free.add(1, ordering: .relaxed)
            wait(leads: leads, handle)
        }
    }

    private func wait(leads: Bool, _ handle: @escaping @Sendable () -> Turn) {
        var leads = leads
        while loop.wait(leads: leads) {
            let turn = queue.sync { handle() }
            leads = !turn.isPaused && turn.delivery == nil
            if second.compareExchange(expected: .isDue, desired: .started, ordering: .relaxed).exchanged,
                !start(leads: false, handle)
            {
                second.store(.none, ordering: .relaxed)  // try again later
            }
            guard let delivery = turn.delivery else { continue }
            if !turn.isPaused { loop.release() }
            delivery()
            free.add(1, ordering: .relaxed)
        }
    }

    // MARK: On the queue, by the leader

    /// Whether the leader may deliver, because another thread is free to become the leader. If not, a second one is
    /// requested.
    package func mayDeliver() -> Bool {
        if free.load(ordering: .relaxed) > 1 { return true }
        _ = second.compareExchange(expected: .none, desired: .isDue, ordering: .relaxed)
        return false
    }

    /// The leader is going to deliver. To be called before another thread can become the leader.
    package func willDeliver() { free.subtract(1, ordering: .relaxed) }
}
