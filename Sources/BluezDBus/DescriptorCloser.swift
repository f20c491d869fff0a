import Dispatch
import Glibc
import Synchronization

/// Closes descriptors that any program has sent and that nothing here wants, on a queue of its own: where the sender also provides
/// the file system (FUSE), `close` takes as long as it likes.
enum DescriptorCloser {
    static let queue = DispatchQueue(label: "bluezkit.close")
    private static let waiting = Atomic(0)
    /// A quarter of what a process may have open (`RLIMIT_NOFILE`) where nothing else is set.
    private static let most = 256

    /// Whether so many wait that no more should be received.
    static var isBehind: Bool { waiting.load(ordering: .relaxed) >= most }

    static func close(_ descriptors: [Int32]) {
        guard !descriptors.isEmpty else { return }
        waiting.add(descriptors.count, ordering: .relaxed)
        // Nor does a socket wait for its peer, here or where the kernel drops the last descriptor of it.
        var never = linger(l_onoff: 0, l_linger: 0)
        for descriptor in descriptors {
            setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &never, socklen_t(MemoryLayout<linger>.size))
        }
        queue.async {
            for descriptor in descriptors {
                Glibc.close(descriptor)
                waiting.subtract(1, ordering: .relaxed)
            }
        }
    }
}
