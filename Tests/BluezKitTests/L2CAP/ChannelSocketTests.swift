import Foundation
import Testing

@testable import BluezKit

@Suite struct ChannelSocketTests {
    // The kernel takes an SDU only if it has room for all of its fragments: a longer one waited forever, at full load.
    @Test("L2-5 L2-12 what is written is divided into packets that the kernel can hold, however long a peer takes them")
    func longPackets() throws {
        var ends: [Int32] = [0, 0]
        try #require(socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue), 0, &ends) == 0)
        defer { close(ends[1]) }
        let socket = ChannelSocket(descriptor: ends[0], peerMTU: 65_535)
        #expect(socket.longestSDU == 4096)
        let outcome = [UInt8](repeating: 7, count: 10_000).withUnsafeBytes { socket.write($0) }
        #expect(outcome == .bytes(10_000))
        var buffer = [UInt8](repeating: 0, count: 65_536)
        let lengths = (0..<4).map { _ in recv(ends[1], &buffer, buffer.count, Int32(MSG_DONTWAIT)) }
        #expect(lengths == [4096, 4096, 1808, -1])
    }

    @Test("L2-5 a peer's own limit counts where it is lower")
    func lowerLimit() throws {
        var ends: [Int32] = [0, 0]
        try #require(socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue), 0, &ends) == 0)
        defer { close(ends[1]) }
        #expect(ChannelSocket(descriptor: ends[0], peerMTU: 247).longestSDU == 247)
    }
}
