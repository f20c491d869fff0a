import Foundation

/// The connected socket of a channel. Any thread; it is closed with its last reference.
final class ChannelSocket: Sendable {
    enum Outcome: Equatable {
        case bytes(Int)
        /// There is nothing to read, or no room.
        case notReady
        /// The channel has ended, from either side.
        case ended
    }

    let descriptor: Int32
    /// The largest SDU that is sent, in bytes: what the peer accepts, or less. Streams do not show it (L2-5).
    let longestSDU: Int
    private let isBluetooth: Bool
    /// How much can wait in the socket until it is sent, as the kernel counts it, which is more than the bytes.
    private let capacity: Int32

    /// Where the peer's limit is not known: sockets of a simulator, which have none.
    private static let anySDU = 65_535
    /// Enough to fill packets. The kernel takes an SDU only if it has room for all of its fragments at once, and has
    /// never for 40 KB in fragments of 250 bytes, each of which it counts as 1,280 (Linux net/bluetooth/l2cap_core.c,
    /// `l2cap_segment_le_sdu`). An Android phone accepts 65,535.
    private static let sentSDU = 4096

    /// - Parameters:
    ///   - descriptor: Taken over.
    ///   - peerMTU: The largest SDU that the peer accepts; nil: the kernel is asked.
    init(descriptor: Int32, peerMTU: Int? = nil) {
        self.descriptor = descriptor
        let mtu = peerMTU ?? BluetoothSocket.peerMTU(descriptor)
        (isBluetooth, longestSDU) = (mtu != nil, mtu.map { min($0, Self.sentSDU) } ?? Self.anySDU)
        var capacity: Int32 = 0
        var size = socklen_t(MemoryLayout.size(ofValue: capacity))
        getsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &capacity, &size)
        self.capacity = capacity
        _ = fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK)
    }

    deinit { Glibc.close(descriptor) }

    func read(into buffer: UnsafeMutableRawBufferPointer) -> Outcome {
        guard !buffer.isEmpty else { return .bytes(0) }
        while true {
            let count = recv(descriptor, buffer.baseAddress, buffer.count, Int32(MSG_DONTWAIT))
            if count > 0 { return .bytes(count) }
            if count == 0 { return .ended }
            switch errno {
            case EINTR: continue
            // At the end of a link the kernel reports its error once, or never, and then nothing but this.
            case EAGAIN: return hasHungUp ? .ended : .notReady
            default: return .ended
            }
        }
    }

    private var hasHungUp: Bool {
        var entry = pollfd(fd: descriptor, events: 0, revents: 0)
        return poll(&entry, 1, 0) > 0 && entry.revents & Int16(POLLHUP) != 0
    }

    /// Writes as much as there is room for, as SDUs of the largest size.
    func write(_ buffer: UnsafeRawBufferPointer) -> Outcome {
        var written = 0
        let most = isBluetooth ? longestSDU : buffer.count
        while written < buffer.count {
            let next = buffer[written..<min(written + most, buffer.count)]
            let count = send(
                descriptor, UnsafeRawBufferPointer(rebasing: next).baseAddress, next.count,
                Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
            if count >= 0 {
                written += count
                continue
            }
            switch errno {
            case EINTR: continue
            case EAGAIN where !(isBluetooth && hasRoom): return written > 0 ? .bytes(written) : .notReady
            case EAGAIN, ENOBUFS, ENOMEM:
                // The socket may have room although the kernel has no memory, or the SDU more fragments than fit: a
                // caller that waits for room must not spin.
                if written == 0 { _ = poll(nil, 0, 10) }
                return written > 0 ? .bytes(written) : .notReady
            default: return written > 0 ? .bytes(written) : .ended
            }
        }
        return .bytes(written)
    }

    /// How much can be read at once; more may have arrived.
    var unreadBytes: Int {
        // Bounded, because a peer could send more of them meanwhile.
        for _ in 0..<Self.emptySDULimit {
            var count: Int32 = 0
            guard ioctl(descriptor, UInt(FIONREAD), &count) == 0 else { return 0 }
            if count > 0 || !isBluetooth { return Int(count) }
            // The kernel counts the first SDU, and an empty one hides what follows it. A read of no bytes removes just
            // that.
            var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            var none: UInt8 = 0
            guard poll(&entry, 1, 0) > 0, entry.revents & Int16(POLLIN) != 0,
                recv(descriptor, &none, 0, Int32(MSG_DONTWAIT)) == 0
            else { return 0 }
        }
        return 0
    }

    private static let emptySDULimit = 1024

    /// Whether a write would not have to wait.
    var hasRoom: Bool {
        // `poll` says so only when three quarters of a socket of Unix are free: an app that asks before each write
        // would write once for each event.
        guard isBluetooth else { return room > 0 }
        // The kernel takes an SDU whole or not at all, and how much room its fragments need is not known: half of the
        // socket, which `poll` waits for, is enough.
        var entry = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        return poll(&entry, 1, 0) > 0
    }

    /// Whether something that was written waits for the peer's credits, and would be lost if the socket was closed now
    /// (SO_LINGER changes nothing). Not with a simulator's sockets: what was written to them can be read after that.
    var hasUnsentBytes: Bool { isBluetooth && room < capacity }

    /// What is left of the capacity; all of it where the kernel does not say.
    private var room: Int32 {
        var amount: Int32 = 0
        guard ioctl(descriptor, UInt(TIOCOUTQ), &amount) == 0 else { return capacity }
        // Unlike other sockets, a Bluetooth socket answers with the room that is left.
        return isBluetooth ? amount : capacity - amount
    }

    enum Direction { case reading, writing }

    /// Waits until a call would not have to wait: never in the kernel's calls themselves (see ``BluetoothSocket``).
    func wait(for direction: Direction) {
        var entry = pollfd(fd: descriptor, events: Int16(direction == .reading ? POLLIN : POLLOUT), revents: 0)
        while poll(&entry, 1, -1) < 0, errno == EINTR {}
    }

    /// Ends the channel for both sides. A thread that waits for this socket finds it ended.
    func shutDown() { _ = shutdown(descriptor, Int32(SHUT_RDWR)) }
}
