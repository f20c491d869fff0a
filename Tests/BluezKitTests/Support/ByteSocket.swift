import BluezDBus
import Dispatch
import Glibc

/// A program's end of a stream socket, in the raw.
final class ByteSocket: @unchecked Sendable {  // holds: the descriptor changes only in `close`, which its owner calls
    private(set) var descriptor: Int32

    init(_ descriptor: Int32) { self.descriptor = descriptor }

    init(_ value: Value?) throws {
        guard case .fileDescriptor(let descriptor)? = value else { throw BusError.malformed("no descriptor") }
        self.descriptor = descriptor
    }

    deinit { close() }

    func close() {
        if descriptor >= 0 { Glibc.close(descriptor) }
        descriptor = -1
    }

    /// Waits until the socket has one of these.
    private func wait(_ events: Int32) async throws {
        let revents = await withCheckedContinuation { continuation in
            DispatchQueue.global().async { [self] in
                var entry = pollfd(fd: descriptor, events: Int16(events), revents: 0)
                poll(&entry, 1, Int32(world_deadline * 1000))
                continuation.resume(returning: entry.revents)
            }
        }
        guard revents != 0 else { throw BusError.timedOut }
    }

    func send(_ bytes: [UInt8]) async throws {
        var sent = 0
        while sent < bytes.count {
            sent += try sendWhatFits(Array(bytes[sent...]))
            if sent < bytes.count { try await wait(POLLOUT) }
        }
    }

    /// How much of this went into the socket at once.
    func sendWhatFits(_ bytes: [UInt8]) throws -> Int {
        let count = Glibc.send(descriptor, bytes, bytes.count, Int32(MSG_DONTWAIT) | Int32(MSG_NOSIGNAL))
        guard count >= 0 || errno == EAGAIN else { throw BusError.malformed(String(cString: strerror(errno))) }
        return max(count, 0)
    }

    /// The next bytes; empty: the other end is closed.
    func receive(upTo limit: Int = 65_536) async throws -> [UInt8] {
        try await wait(POLLIN)
        var bytes = [UInt8](repeating: 0, count: limit)
        let count = recv(descriptor, &bytes, limit, Int32(MSG_DONTWAIT))
        return Array(bytes.prefix(max(count, 0)))  // a failure is an end as well: the other end had not read everything
    }

    /// This many bytes, or fewer if the other end is closed before.
    func receive(exactly count: Int) async throws -> [UInt8] {
        var all: [UInt8] = []
        while all.count < count {
            let bytes = try await receive(upTo: min(65_536, count - all.count))
            guard !bytes.isEmpty else { break }
            all += bytes
        }
        return all
    }

    /// Everything up to the end.
    func receiveAll() async throws -> [UInt8] { try await receive(exactly: .max) }

    /// Accepts the next connection of a listening socket.
    /// - Returns: Its socket, and the other end's name.
    func accept() async throws -> (ByteSocket, String) {
        try await wait(POLLIN)
        var address = sockaddr_un()
        var size = socklen_t(MemoryLayout<sockaddr_un>.size)
        let accepted = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { Glibc.accept(descriptor, $0, &size) }
        }
        guard accepted >= 0 else { throw BusError.malformed(String(cString: strerror(errno))) }
        let name = withUnsafeBytes(of: &address.sun_path) { $0[1..<max(1, Int(size) - 2)] }
        return (ByteSocket(accepted), String(decoding: name, as: UTF8.self))
    }
}
