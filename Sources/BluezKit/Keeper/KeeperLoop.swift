import BluezDBus
import Dispatch

/// Reads what keepers send to the managers of this process, in the threads of one loop, as a connection to the bus
/// does: what comes and the app's reaction to it cost one wake-up.
final class KeeperLoop: @unchecked Sendable {  // holds: confined to `queue`
    static let shared = KeeperLoop()

    /// In place of the bus queue.
    let queue = DispatchQueue(label: "bluezkit.keeper")
    /// While something is watched.
    private var running: (loop: EventLoop, threads: WaitingThreads)?
    private var watched: Set<Int32> = []
    private var outgoing: [any EventSource] = []

    /// Calls `body` on the queue whenever there is something to receive.
    /// - Returns: Whether the process may have the descriptors and threads for that.
    func watch(_ descriptor: Int32, _ body: @escaping () -> Void) -> Bool {
        let read = {
            body()
            return 1
        }
        guard let running = running ?? run(), running.loop.watch(descriptor, read) else { return false }
        watched.insert(descriptor)
        return true
    }

    func unwatch(_ descriptor: Int32) {
        running?.loop.unwatch(descriptor)
        watched.remove(descriptor)
        guard watched.isEmpty else { return }
        running?.loop.end()
        running = nil
    }

    /// A manager has events for its app: they are handed on at the end of this turn.
    func hasOutgoing(_ source: any EventSource) { outgoing.append(source) }

    private func run() -> (loop: EventLoop, threads: WaitingThreads)? {
        guard let loop = try? EventLoop() else { return nil }
        let threads = WaitingThreads(loop, on: queue, named: "bluezkit.keeper")
        guard threads.start({ [self] in handleReady(loop, threads) }) else { return nil }
        running = (loop, threads)
        return running
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
