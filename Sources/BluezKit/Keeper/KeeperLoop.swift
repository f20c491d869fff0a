import BluezDBus
import Dispatch

/// Reads what keepers send to the managers of this process, in the threads of one loop, as a connection to the bus
/// does: what comes and the app's reaction to it cost one wake-up.
final class KeeperLoop: @unchecked Sendable {  // holds: confined to `queue`
    static let shared = KeeperLoop()

    /// In place of the bus queue.
    let queue = DispatchQueue(label: "bluezkit.keeper")
    /// While a manager uses it.
    private var running: (loop: EventLoop, threads: WaitingThreads)?
    private var users = 0
    private var outgoing: [any EventSource] = []

    /// The loop lasts until ``leave()``. Not on the queue.
    /// - Returns: Whether the process may have the descriptors and the thread for that.
    func join() -> Bool {
        queue.sync {
            guard running != nil || run() else { return false }
            users += 1
            return true
        }
    }

    /// Any thread.
    func leave() {
        queue.async { [self] in
            users -= 1
            guard users == 0 else { return }
            running?.loop.end()
            running = nil
        }
    }

    /// Calls `body` on the queue whenever there is something to receive. For those who have joined.
    /// - Returns: Whether the kernel has the memory for that.
    func watch(_ descriptor: Int32, _ body: @escaping () -> Void) -> Bool {
        running?.loop.watch(descriptor) {
            body()
            return 1
        } ?? false
    }

    func unwatch(_ descriptor: Int32) { running?.loop.unwatch(descriptor) }

    /// A manager has events for its app: they are handed on at the end of this turn.
    func hasOutgoing(_ source: any EventSource) { outgoing.append(source) }

    private func run() -> Bool {
        guard let loop = try? EventLoop() else { return false }
        let threads = WaitingThreads(loop, on: queue, named: "bluezkit.keeper")
        guard threads.start({ [self] in handleReady(loop, threads) }) else { return false }
        running = (loop, threads)
        return true
    }

    private func handleReady(_ loop: EventLoop, _ threads: WaitingThreads) -> WaitingThreads.Turn {
        loop.handleReaders()
        let sources = outgoing
        outgoing = []
        let delivery = sources.flush(mayDeliver: threads.mayDeliver)
        if delivery != nil { threads.willDeliver() }
        return .init(delivery: delivery)
    }
}
