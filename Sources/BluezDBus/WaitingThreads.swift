import Dispatch
import Synchronization

/// The threads that wait for what is ready. One of them leads: what it finds it handles on the connection's queue, and
/// what comes of that for an app it brings to the app's queue, while another one leads in its place. So what has
/// arrived and what an app makes of it cost one wake-up, as in a C program that polls, and an app that is busy holds up
/// nothing but its own events.
///
/// There are two such threads at most, the second one as soon as it could be of use. One of them always waits.
final class WaitingThreads: Sendable {
    /// What the thread that leads does next.
    struct Turn {
        /// Whether it no longer leads: what comes next waits for the end of a pause.
        var isPaused = false
        /// What it is to do outside the queue.
        var delivery: (() -> Void)?
    }

    private enum Second: Int, AtomicRepresentable { case none, isDue, started }

    private let loop: EventLoop
    private let queue: DispatchQueue
    /// How many do not deliver. One that could not be started never counts.
    private let free = Atomic(0)
    private let second = Atomic(Second.none)

    init(_ loop: EventLoop, on queue: DispatchQueue) { (self.loop, self.queue) = (loop, queue) }

    /// - Parameter handle: Handles what is ready, on the queue. Held until the loop ends.
    /// - Returns: Whether the process may have one more thread.
    func start(_ handle: @escaping @Sendable () -> Turn) -> Bool { start(leads: true, handle) }

    private func start(leads: Bool, _ handle: @escaping @Sendable () -> Turn) -> Bool {
        startThread(named: "bluezkit.bus") { [self] in
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
                second.store(.none, ordering: .relaxed)  // perhaps later
            }
            guard let delivery = turn.delivery else { continue }
            if !turn.isPaused { loop.release() }
            delivery()
            free.add(1, ordering: .relaxed)
        }
    }

    // MARK: On the queue, by the thread that leads

    /// Whether this thread may deliver: another one must be left to wait.
    func mayDeliver() -> Bool {
        if free.load(ordering: .relaxed) > 1 { return true }
        _ = second.compareExchange(expected: .none, desired: .isDue, ordering: .relaxed)
        return false
    }

    /// This thread is going to deliver. Before another one can lead.
    func willDeliver() { free.subtract(1, ordering: .relaxed) }
}
