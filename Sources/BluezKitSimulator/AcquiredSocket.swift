import Dispatch
import Glibc

/// bluetoothd's end of the socket that AcquireWrite and AcquireNotify hand out: packets, never waiting.
final class AcquiredSocket {
    /// The client's end, until it was handed over.
    private(set) var clientEnd: Int32
    private let end: Int32
    private let source: any DispatchSourceRead
    private var isOpen = true
    /// A packet came from the client.
    var onPacket: (([UInt8]) -> Void)?
    /// The client closed its end, or ``close()`` was called.
    var onClosed: (() -> Void)?

    convenience init?(queue: DispatchQueue) {
        var ends: [Int32] = [-1, -1]
        let kind = Int32(SOCK_SEQPACKET.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        guard socketpair(AF_UNIX, kind, 0, &ends) == 0 else { return nil }
        self.init(ends[0], clientEnd: ends[1], queue: queue)
    }

    /// The daemon's end of a socket, which it now owns; an application made it.
    init(_ end: Int32, clientEnd: Int32 = -1, queue: DispatchQueue) {
        (self.end, self.clientEnd) = (end, clientEnd)
        source = DispatchSource.makeReadSource(fileDescriptor: end, queue: queue)
        source.setCancelHandler { Glibc.close(end) }
        source.setEventHandler { [weak self] in self?.readable() }
        source.activate()
    }

    deinit {
        source.cancel()
        handedOver()
    }

    /// The client has its own copy now.
    func handedOver() {
        guard clientEnd >= 0 else { return }
        Glibc.close(clientEnd)
        clientEnd = -1
    }

    /// Sends a packet; lost if the client has not read for long.
    func send(_ bytes: [UInt8]) {
        guard isOpen else { return }
        _ = Glibc.send(end, bytes, bytes.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
    }

    func close() {
        guard isOpen else { return }
        isOpen = false
        source.cancel()
        handedOver()
        onClosed?()
    }

    private func readable() {
        var buffer = [UInt8](repeating: 0, count: 512)  // what bluetoothd reads of a packet
        while isOpen {
            let count = recv(end, &buffer, buffer.count, Int32(MSG_DONTWAIT))
            if count > 0 {
                onPacket?(Array(buffer[..<count]))
            } else if count < 0, errno == EAGAIN || errno == EINTR {
                return
            } else {
                return close()  // an empty packet as well: bluetoothd takes it for the end
            }
        }
    }
}
