import CBluezL2CAP
import Foundation

/// One end of the connection between an app and its keeper. Closed with its last reference.
final class KeeperSocket: Sendable {
    enum Outcome: Equatable {
        case bytes(Int)
        /// There is nothing to receive, or no room.
        case notReady
        case ended
    }

    let descriptor: Int32

    /// - Parameter descriptor: Of a connected stream socket. Taken over.
    init(descriptor: Int32) { self.descriptor = descriptor }

    deinit { close(descriptor) }

    /// Both ends of a connection within this process.
    static func pair() -> (KeeperSocket, KeeperSocket)? {
        var ends: [Int32] = [0, 0]
        let kind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, kind, 0, &ends) == 0 else { return nil }
        return (KeeperSocket(descriptor: ends[0]), KeeperSocket(descriptor: ends[1]))
    }

    /// Neither end sends or receives any more.
    func shutDown() { _ = shutdown(descriptor, Int32(SHUT_RDWR)) }

    /// The user at the other end; nil: not known.
    var peerUser: uid_t? {
        let user = cl2cap_peer_user(descriptor)
        return user < 0 ? nil : uid_t(user)
    }

    /// - Parameters:
    ///   - most: How many bytes.
    ///   - waits: Whether to wait until there is something, at most as long as ``limitWaiting(to:receiving:)`` says.
    func receive(into reader: inout FrameReader, upTo most: Int = 65_536, waits: Bool) -> Outcome {
        var descriptors = [Int32](repeating: -1, count: Int(CL2CAP_MOST_DESCRIPTORS))
        var count = 0
        return withUnsafeTemporaryAllocation(byteCount: 65_536, alignment: 8) { buffer in
            while true {
                let received = cl2cap_receive(
                    descriptor, buffer.baseAddress, min(most, buffer.count), &descriptors, &count,
                    waits ? 0 : Int32(MSG_DONTWAIT))
                if received > 0 {
                    reader.add(UnsafeRawBufferPointer(rebasing: buffer[..<received]), descriptors[..<count])
                    return .bytes(received)
                }
                if received < 0, errno == EINTR { continue }
                return received < 0 && errno == EAGAIN ? .notReady : .ended
            }
        }
    }

    /// - Parameters:
    ///   - descriptors: Go with the first byte. They stay the caller's.
    ///   - waits: Whether to wait for room, at most as long as ``limitWaiting(to:receiving:)`` says.
    func send(_ bytes: Data.SubSequence, _ descriptors: [Int32] = [], waits: Bool) -> Outcome {
        bytes.withUnsafeBytes { bytes in
            while true {
                let sent = cl2cap_send(
                    descriptor, bytes.baseAddress, bytes.count, descriptors, descriptors.count,
                    waits ? 0 : Int32(MSG_DONTWAIT))
                if sent >= 0 { return .bytes(sent) }
                if errno == EINTR { continue }
                return errno == EAGAIN && !waits ? .notReady : .ended
            }
        }
    }

    /// Sends all of a frame, whose descriptors stay the caller's. One caller at a time.
    /// - Returns: Whether it was taken in time.
    func sendAll(_ frame: Frame) -> Bool {
        var rest = frame.bytes[...]
        var descriptors = frame.descriptors
        while !rest.isEmpty {
            guard case .bytes(let count) = send(rest, descriptors, waits: true) else { return false }
            rest = rest.dropFirst(count)
            descriptors = []
        }
        return true
    }

    /// - Parameter receiving: Zero: without a limit.
    func limitWaiting(to sending: Duration, receiving: Duration) {
        for (option, limit) in [(SO_SNDTIMEO, sending), (SO_RCVTIMEO, receiving)] {
            let (seconds, attoseconds) = limit.components
            var time = timeval(
                tv_sec: time_t(clamping: seconds), tv_usec: suseconds_t(clamping: attoseconds / 1_000_000_000_000))
            setsockopt(descriptor, SOL_SOCKET, option, &time, socklen_t(MemoryLayout.size(ofValue: time)))
        }
    }
}
