import BluezDBus
import Dispatch
import Glibc

/// bluetoothd's end of the socket that AcquireWrite and AcquireNotify return. It carries packets and never blocks.
/// While bluetoothd hangs it is neither read nor written (BlueZ src/gatt-client.c, `create_sock`: its main loop does
/// both).
final class AcquiredSocket {
    /// The client's end, until it has been passed to the client.
    private(set) var clientEnd: Int32
    private let end: Int32
    private let source: any DispatchSourceRead
    private weak var daemon: Connection?
    private var isOpen = true
    private var isSuspended = false
    /// Called with each packet from the client.
    var onPacket: (([UInt8]) -> Void)?
    /// Called when the client has closed its end, or ``close()`` was called.
    var onClosed: (() -> Void)?

    convenience init?(of simulator: Simulator) {
        var ends: [Int32] = [-1, -1]
        let kind = Int32(SOCK_SEQPACKET.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        guard socketpair(AF_UNIX, kind, 0, &ends) == 0 else { return nil }
        self.init(ends[0], clientEnd: ends[1], of: simulator)
    }

    /// The daemon's end of a socket that an application created; the daemon now owns it.
    init(_ end: Int32, clientEnd: Int32 = -1, of simulator: Simulator) {
        (self.end, self.clientEnd, daemon) = (end, clientEnd, simulator.connection)
        source = DispatchSource.makeReadSource(fileDescriptor: end, queue: simulator.queue)
        source.setCancelHandler { Glibc.close(end) }
        source.setEventHandler { [weak self, weak simulator] in simulator?.duringTurn { _ in self?.readable() } }
        source.activate()
    }

    deinit {
        source.cancel()
        if isSuspended { source.resume() }  // libdispatch traps if one is released that is suspended
        handedOver()
    }

    /// The client now has its own copy.
    func handedOver() {
        guard clientEnd >= 0 else { return }
        Glibc.close(clientEnd)
        clientEnd = -1
    }

    /// Sends a packet. It is lost if the client has not read for a long time.
    func send(_ bytes: [UInt8]) {
        guard isOpen else { return }
        whenRunning { [self] in
            _ = Glibc.send(end, bytes, bytes.count, Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
        }
    }

    func close() {
        guard isOpen else { return }
        isOpen = false
        whenRunning { [self] in source.cancel() }
        handedOver()
        onClosed?()
    }

    private func whenRunning(_ body: @escaping () -> Void) {
        if let daemon { daemon.whenRunning(body) } else { body() }
    }

    private func readable() {
        if let daemon, daemon.isStopped {
            isSuspended = true
            source.suspend()
            return daemon.whenRunning { [self] in
                isSuspended = false
                source.resume()
            }
        }
        var buffer = [UInt8](repeating: 0, count: 512)  // the maximum that bluetoothd reads of a packet
        while isOpen {
            let count = recv(end, &buffer, buffer.count, Int32(MSG_DONTWAIT))
            if count > 0 {
                onPacket?(Array(buffer[..<count]))
            } else if count < 0, errno == EAGAIN || errno == EINTR {
                return
            } else {
                return close()  // an empty packet too: bluetoothd treats it as the end
            }
        }
    }
}
