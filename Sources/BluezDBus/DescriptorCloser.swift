import Glibc
import Synchronization

/// Closes descriptors that any program has sent and that nothing here wants, on threads of its own. The program that
/// has sent one can make all that is done to it take as long as it likes: `close`, where it provides the file system
/// (FUSE), and `setsockopt`, where it holds the lock of a socket. No signal ends that.
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

        /// - Returns: Whether to start a thread, as all are at a descriptor while others wait.
        mutating func needsThread() -> Bool {
            guard !waiting.isEmpty, threads == busy, threads < mostThreads else { return false }
            threads += 1
            return true
        }
    }

    /// Each of the senders' descriptors that never end costs one; with the last one, what else has come stays open.
    private static let mostThreads = 4
    /// A quarter of what this process may have open.
    static let most: Int = {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return 256 }
        return Int(max(min(limit.rlim_cur / 4, 256), 16))
    }()

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
        state.withLock { $0.waiting += descriptors }
        startIfNeeded()
    }

    private static func startIfNeeded() {
        guard state.withLock({ $0.needsThread() }) else { return }
        // If the process has no thread for it, the next descriptors bring one.
        if !startThread(named: "bluezkit.close", closeAll) { state.withLock { $0.threads -= 1 } }
    }

    @Sendable private static func closeAll() {
        let end = end.withLock { $0 }
        while let descriptor = state.withLock({ $0.take() }) {
            startIfNeeded()  // this one may never end
            end(descriptor)
            state.withLock { $0.busy -= 1 }
            open.subtract(1, ordering: .releasing)
        }
    }
}
