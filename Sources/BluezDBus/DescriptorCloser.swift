import Dispatch
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
        /// Whether one of them waits for the next descriptor.
        var isOneIdle = false

        /// - Returns: What a thread is to close next.
        mutating func take() -> Int32? {
            guard let descriptor = waiting.popLast() else { return nil }
            busy += 1
            return descriptor
        }

        /// - Returns: Whether a thread that has found nothing to close is to wait for it; nil: it has come meanwhile.
        mutating func awaitsNext() -> Bool? {
            guard waiting.isEmpty else { return nil }
            guard !isOneIdle else {
                threads -= 1
                return false
            }
            isOneIdle = true
            return true
        }

        /// The idle thread has been woken, or has waited long enough.
        /// - Returns: Whether it ends.
        mutating func isOver(timedOut: Bool) -> Bool {
            defer { isOneIdle = false }
            guard timedOut, isOneIdle else { return false }
            threads -= 1
            return true
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
    /// For the idle thread.
    private static let next = DispatchSemaphore(value: 0)
    /// Not the closure itself: each access to one in a generic container wraps it in two more.
    struct End {
        let body: @Sendable (Int32) -> Void
    }

    /// What is done with one of them. Tests wait in it.
    static let end = Mutex(
        End { descriptor in
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
        let isOneIdle = state.withLock { state in
            state.waiting += descriptors
            defer { state.isOneIdle = false }
            return state.isOneIdle
        }
        if isOneIdle { next.signal() } else { startIfNeeded() }
    }

    private static func startIfNeeded() {
        guard state.withLock({ $0.needsThread() }) else { return }
        // If the process has no thread for it, the next descriptors bring one.
        if !startThread(named: "bluezkit.close", closeAll) { state.withLock { $0.threads -= 1 } }
    }

    @Sendable private static func closeAll() {
        repeat {
            while let descriptor = state.withLock({ $0.take() }) {
                startIfNeeded()  // this one may never end
                end.withLock { $0 }.body(descriptor)
                state.withLock { $0.busy -= 1 }
                open.subtract(1, ordering: .releasing)
            }
        } while awaitNext()
    }

    /// One thread stays for a second: to start one takes longer than to close a descriptor.
    /// - Returns: Whether there may be something to close.
    private static func awaitNext() -> Bool {
        guard let waits = state.withLock({ $0.awaitsNext() }) else { return true }
        guard waits else { return false }
        let timedOut = next.wait(timeout: .now() + 1) == .timedOut
        return !state.withLock { $0.isOver(timedOut: timedOut) }
    }
}
