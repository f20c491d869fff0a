import Glibc

/// Two ends of a socket as BlueZ gives them: whole packets, in order.
final class SocketPair {
    struct Failed: Error {}

    /// Belongs to what is tested, which closes it.
    let ours: Int32
    /// Negative: closed.
    private(set) var blueZs: Int32

    init() throws {
        var ends: [Int32] = [-1, -1]
        let type = Int32(SOCK_SEQPACKET.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { throw Failed() }
        (ours, blueZs) = (ends[0], ends[1])
    }

    deinit { closeBlueZs() }

    func closeBlueZs() {
        if blueZs >= 0 { close(blueZs) }
        blueZs = -1
    }

    /// The next packet; nil: there is none at the moment. An empty one: the other end is closed.
    func receive() -> [UInt8]? {
        var bytes = [UInt8](repeating: 0, count: 1024)
        let count = recv(blueZs, &bytes, bytes.count, Int32(MSG_DONTWAIT))
        return count < 0 ? nil : Array(bytes.prefix(count))
    }

    /// All packets that are there.
    func receiveAll() -> [[UInt8]] {
        var packets: [[UInt8]] = []
        while let packet = receive(), !packet.isEmpty { packets.append(packet) }
        return packets
    }

    func send(_ bytes: [UInt8]) { _ = Glibc.send(blueZs, bytes, bytes.count, Int32(MSG_NOSIGNAL)) }
}
