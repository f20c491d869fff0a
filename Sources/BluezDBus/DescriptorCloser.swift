import Glibc
import Synchronization

/// Closes descriptors that any program has sent and that nothing here wants, on threads of its own. Whoever has sent one can make
/// all that is done to it take as long as he likes: `close`, where he provides the file system (FUSE), and `setsockopt`, where he holds
/// the lock of a socket. No signal ends that.
enum DescriptorCloser {
    private struct State {
        var waiting: [Int32] = []
        var threads = 0
        /// How many threads are at a descriptor.
        var busy = 0

        /// - Returns: What a thread is to close next; nil: it ends.
        mutating func take() -> Int32? {
            guard let descriptor = waiting.popLast() else {
                threads -= 1
                return nil
            }
            busy += 1
            return descriptor
        }
    }

    /// Each of the senders' descriptors that never end costs one; with the last one, what else has come stays open.
    private static let mostThreads = 4
    /// A quarter of what a process may have open (`RLIMIT_NOFILE`) where nothing else is set.
    private static let most = 256

    private static let state = Mutex(State())
    private static let open = Atomic(0)
    /// What is done with one of them. Tests wait in it.
    static let end = Mutex<@Sendable (Int32) -> Void>({ descriptor in
        // Nor does a socket wait for its peer.
        var never = linger(l_onoff: 0, l_linger: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &never, socklen_t(MemoryLayout<linger>.size))
        Glibc.close(descriptor)
    })

    /// Whether so many are open that no more should be received.
    static var isBehind: Bool { openCount >= most }
    static var isIdle: Bool { openCount == 0 }
    static var openCount: Int { open.load(ordering: .acquiring) }

    static func close(_ descriptors: [Int32]) {
        guard !descriptors.isEmpty else { return }
        open.add(descriptors.count, ordering: .relaxed)
        let isShort = state.withLock { state in
            state.waiting += descriptors
            guard state.threads == state.busy, state.threads < mostThreads else { return false }
            state.threads += 1
            return true
        }
        // If the process has no thread for it, the next ones bring one.
        if isShort, !startThread(named: "bluezkit.close", closeAll) { state.withLock { $0.threads -= 1 } }
    }

    @Sendable private static func closeAll() {
        let end = end.withLock { $0 }
        while let descriptor = state.withLock({ $0.take() }) {
            end(descriptor)
            state.withLock { $0.busy -= 1 }
            open.subtract(1, ordering: .releasing)
        }
    }
}
