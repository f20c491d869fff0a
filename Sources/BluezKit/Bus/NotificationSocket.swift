import BluezDBus
import Foundation

/// The socket that BlueZ's `AcquireNotify` gives: one packet is one notification, without a bus in between (D6). It
/// holds 167 to 278 packets, and bluetoothd drops what does not fit. So it is read as soon as anything is there, by the
/// thread that waits for the bus, and never waits for the app. Confined to the bus queue.
final class NotificationSocket {
    /// The largest attribute value, and what a packet of BlueZ has at most.
    private static let longest = 512
    /// So many packets are read in one turn at most, so that the bus has its turn, too.
    private static let turn = 1024
    /// `POLLRDHUP`, which Swift's Glibc does not have.
    private static let peerHasClosed: Int16 = 0x2000

    private var descriptor: Int32
    private weak var connection: Connection?
    private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: longest, alignment: 1)
    /// Gets each value.
    var onValue: ((UnsafeRawBufferPointer) -> Void)?
    /// BlueZ has closed the socket, and all values were read.
    var onEnd: (() -> Void)?

    /// - Parameter descriptor: Taken over, and closed by ``close()`` or at the end of this.
    init(descriptor: Int32) { self.descriptor = descriptor }

    deinit {
        close()
        buffer.deallocate()
    }

    /// Begins to read.
    /// - Returns: Whether it does: not if there is no memory or no file descriptor left.
    func start(_ connection: Connection) -> Bool {
        guard connection.watch(descriptor, { [weak self] in self?.read() ?? 0 }) else { return false }
        self.connection = connection
        return true
    }

    /// Reads what is there.
    /// - Returns: How many values.
    @discardableResult
    func read() -> Int {
        var values = 0
        while values < Self.turn, descriptor >= 0 {
            let count = recv(descriptor, buffer.baseAddress, buffer.count, Int32(MSG_DONTWAIT))
            if count > 0 || count == 0 && !hasEnded {
                values += 1
                onValue?(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
            } else if count < 0, errno == EINTR {
                continue
            } else {
                if count == 0 || errno != EAGAIN { end() }
                break
            }
        }
        return values
    }

    /// Whether nothing follows. An empty value is an empty packet, which looks like the end.
    private var hasEnded: Bool {
        var state = pollfd(fd: descriptor, events: Self.peerHasClosed, revents: 0)
        guard poll(&state, 1, 0) > 0 else { return false }
        // BlueZ has closed it; but what it has sent before is still there.
        var unread: Int32 = 0
        return ioctl(descriptor, UInt(FIONREAD), &unread) != 0 || unread == 0
    }

    private func end() {
        let onEnd = onEnd
        close()
        onEnd?()
    }

    /// Nothing follows.
    func close() {
        guard descriptor >= 0 else { return }
        connection?.unwatch(descriptor)
        Glibc.close(descriptor)
        descriptor = -1
        (onValue, onEnd) = (nil, nil)
    }
}
