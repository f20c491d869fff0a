import BluezDBus
import Dispatch
import Foundation

/// The socket that BlueZ's `AcquireWrite` gives: one packet is one Write Command, without a bus or a daemon's main loop
/// in between (D6). Confined to the bus queue.
final class CommandSocket {
    enum Outcome { case sent, full, broken }

    private var descriptor: Int32
    /// The largest payload of one packet: ATT_MTU - 3, and what BlueZ reads of a packet.
    private(set) var capacity: Int
    private var writable: (any DispatchSourceWrite)?
    private(set) var lastUse = DispatchQueue.now

    /// - Parameter descriptor: Taken over, and closed by ``close()`` or at the end of this.
    init(descriptor: Int32, mtuBytes: Int) {
        self.descriptor = descriptor
        capacity = Self.capacity(mtuBytes)
        _ = fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK)
    }

    deinit { close() }

    /// No link has less than 23, whatever BlueZ says.
    private static func capacity(_ mtuBytes: Int) -> Int { min(max(mtuBytes, 23) - 3, 512) }

    /// The link's MTU as it is now: BlueZ may have made the socket before that was exchanged.
    func updateMTU(_ mtuBytes: Int) { capacity = max(capacity, Self.capacity(mtuBytes)) }

    func send(_ data: [UInt8]) -> Outcome {
        lastUse = DispatchQueue.now
        while true {
            let sent = Glibc.send(descriptor, data, data.count, Int32(MSG_NOSIGNAL))
            if sent >= 0 { return .sent }
            switch errno {
            case EINTR: continue
            case EAGAIN, ENOBUFS: return .full
            default: return .broken
            }
        }
    }

    /// Whether a write waits for room.
    var isAwaited: Bool { writable != nil }

    /// Whether BlueZ has read everything.
    var isDrained: Bool { unread == 0 }

    /// How much BlueZ has not read, in units of the kernel's.
    var unread: Int32 {
        var unread: Int32 = 0
        return ioctl(descriptor, UInt(TIOCOUTQ), &unread) == 0 ? unread : 0
    }

    /// Whether BlueZ has closed its end.
    var hasHungUp: Bool {
        var entry = pollfd(fd: descriptor, events: 0, revents: 0)
        return poll(&entry, 1, 0) > 0 && entry.revents & Int16(POLLHUP) != 0
    }

    /// Calls `body` once, when there is room again or the socket is broken.
    func whenWritable(on queue: DispatchQueue, _ timing: BlueZTiming.GATT, _ body: @escaping () -> Void) {
        // A descriptor of its own: one that a source watches must stay open until the source has let go of it.
        let watched = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
        guard watched >= 0 else {
            // None is left at the moment.
            return queue.later(timing.descriptorRetry, body)
        }
        let source = DispatchSource.makeWriteSource(fileDescriptor: watched, queue: queue)
        source.setCancelHandler { Glibc.close(watched) }
        source.setEventHandler { [weak self] in
            self?.writable?.cancel()
            self?.writable = nil
            body()
        }
        writable = source
        source.activate()
    }

    func close() {
        writable?.cancel()
        writable = nil
        if descriptor >= 0 { Glibc.close(descriptor) }
        descriptor = -1
    }
}
