import Dispatch
import Foundation
import Testing

@testable import BluezKit

@Suite struct CommandSocketTests {
    private let pair: SocketPair
    private let queue = DispatchQueue(label: "test.socket")
    private let log = EventLog<String>()

    init() throws { pair = try SocketPair() }

    private func socket(mtuBytes: Int = 23) -> CommandSocket {
        CommandSocket(descriptor: pair.ours, mtuBytes: mtuBytes)
    }

    /// Sends until there is no room. - Returns: how many packets.
    private func fill(_ socket: CommandSocket) -> Int {
        var count = 0
        while socket.send([UInt8(truncatingIfNeeded: count)]) == .sent, count < 1_000_000 { count += 1 }
        return count
    }

    @Test(
        "a packet has three bytes less than the MTU, and never more than BlueZ reads",
        arguments: [(23, 20), (24, 21), (247, 244), (515, 512), (517, 512), (65_535, 512), (-1, 20), (Int.max, 512)])
    func capacity(mtuBytes: Int, capacity: Int) { #expect(socket(mtuBytes: mtuBytes).capacity == capacity) }

    @Test("each packet arrives whole and in order, an empty one as well")
    func packets() {
        let socket = socket()
        for packet in [[1], [2, 3, 4], [UInt8](repeating: 5, count: 512)] { #expect(socket.send(packet) == .sent) }
        #expect(pair.receiveAll() == [[1], [2, 3, 4], [UInt8](repeating: 5, count: 512)])
        #expect(socket.send([]) == .sent)
        #expect(pair.receive() == [] && pair.receive() == nil)
    }

    @Test("a socket that BlueZ does not read is full, without blocking, and reports once when there is room")
    func full() async throws {
        let socket = socket()
        let count = fill(socket)
        #expect(count > 0 && socket.send([0]) == .full)
        #expect(!socket.isDrained)
        queue.sync { socket.whenWritable(on: queue, BlueZTiming.GATT()) { [log] in log.append("room") } }
        #expect(log.all.isEmpty)
        #expect(pair.receiveAll().count == count)
        #expect(socket.isDrained)
        try await log.next("room") { $0 == "room" ? true : nil }
        queue.sync { #expect(socket.send([7]) == .sent) }
        #expect(pair.receiveAll() == [[7]])
        // It would have been called again by now.
        queue.sync { socket.whenWritable(on: queue, BlueZTiming.GATT()) { [log] in log.append("again") } }
        try await log.next("again") { $0 == "again" ? true : nil }
        queue.sync { #expect(log.all == ["room", "again"]) }
    }

    @Test("a socket whose other end is closed is broken, and its waiting writer is notified")
    func broken() async throws {
        let socket = socket()
        _ = fill(socket)
        queue.sync { socket.whenWritable(on: queue, BlueZTiming.GATT()) { [log] in log.append("end") } }
        pair.closeBlueZs()
        try await log.next("end") { $0 == "end" ? true : nil }
        queue.sync { #expect(socket.send([1]) == .broken) }
    }

    @Test("a closed socket sends nothing, and BlueZ sees its end")
    func closed() {
        let socket = socket()
        #expect(pair.receive() == nil)
        socket.close()
        #expect(pair.receive() == [])
        #expect(socket.send([1]) == .broken)
        #expect(socket.isDrained, "nothing more is sent of what it has")
    }

    @Test("closing a socket twice does not close another one that has its descriptor by then")
    func closedTwice() throws {
        let socket = socket()
        socket.close()
        let others = try (0..<8).map { _ in try SocketPair() }
        socket.close()
        for other in others {
            other.send([1])
            var byte: UInt8 = 0
            #expect(recv(other.ours, &byte, 1, Int32(MSG_DONTWAIT)) == 1)
            Glibc.close(other.ours)
        }
    }

    @Test("a writer that waits for room is not called when the socket is closed")
    func closedWhileFull() async {
        let socket = socket()
        _ = fill(socket)
        queue.sync {
            socket.whenWritable(on: queue, BlueZTiming.GATT()) { [log] in log.append("room") }
            // Ready, but not handled: this turn of the queue has not ended.
            _ = pair.receiveAll()
            socket.close()
        }
        #expect(await reachesEnd(pair.blueZs))
        queue.sync {}
        #expect(log.all.isEmpty)
    }

    @Test("the time of the last use is that of the last packet")
    func lastUse() {
        let socket = socket()
        let first = socket.lastUse
        _ = socket.send([1])
        let second = socket.lastUse
        _ = socket.send([2])
        #expect(first < second && second < socket.lastUse)
    }
}
