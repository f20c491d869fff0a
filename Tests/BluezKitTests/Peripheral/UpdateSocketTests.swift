import BluezDBus
import Dispatch
import Foundation
import Testing

@testable import BluezKit

@Suite struct UpdateSocketTests {
    private let pair: SocketPair
    private let bus = BlueZBus(address: BusAddress("unix:path=/nonexistent"))
    private let log = EventLog<String>()

    init() throws { pair = try SocketPair() }

    private func socket() throws -> UpdateSocket {
        let log = log
        let new = UpdateSocket(descriptor: pair.ours, bus: bus) { log.append("end") }
        return try #require(new)
    }

    /// One that says soon that BlueZ reads no more.
    private func hastySocket() throws -> UpdateSocket {
        bus.queue.sync { bus.timing.gatt.unreadSocket = .milliseconds(5) }
        let log = log
        let new = UpdateSocket(descriptor: pair.ours, bus: bus) {
            log.append("end")
        } onStuck: {
            log.append("stuck")
        }
        return try #require(new)
    }

    private func send(_ data: [UInt8], _ name: String, _ socket: UpdateSocket, isIndicated: Bool = false) {
        bus.queue.sync { socket.send(data, awaitsConfirmation: isIndicated) { [log] in log.append(name) } }
    }

    /// Sends until one waits. - Returns: how many are in the socket.
    private func fill(_ socket: UpdateSocket) -> Int {
        var count = 0
        while count < 1_000_000 {
            send([UInt8(truncatingIfNeeded: count)], "\(count)", socket)
            guard log.all.count == count + 1 else { break }
            count += 1
        }
        return count
    }

    private func wait(for text: String) async throws { try await log.next(text) { $0 == text ? true : nil } }

    @Test("UP-5 an update is one packet, cut to what BlueZ reads of it, and is done when BlueZ's end has it")
    func sends() throws {
        let socket = try socket()
        send([1, 2], "first", socket)
        send([UInt8](repeating: 3, count: 600), "second", socket)
        send([], "third", socket)
        #expect(log.all == ["first", "second", "third"])
        #expect((0..<3).map { _ in pair.receive() } == [[1, 2], [UInt8](repeating: 3, count: 512), []])
        bus.queue.sync { socket.close() }
    }

    @Test("an indication is done when BlueZ tells of its confirmation, or the socket ends; until then no other is sent")
    func confirmations() async throws {
        let socket = try socket()
        for (number, name) in ["first", "second", "third"].enumerated() {
            send([UInt8(number)], name, socket, isIndicated: true)
        }
        #expect(log.all == [])
        #expect(pair.receiveAll() == [[0]])
        pair.send([1])
        try await wait(for: "first")
        bus.queue.sync {}
        #expect(pair.receiveAll() == [[1]])
        pair.send([1])
        try await wait(for: "second")
        bus.queue.sync { socket.close() }
        #expect(log.all == ["first", "second", "third"])
    }

    @Test("a central that does not confirm holds up the next indication only so long")
    func unconfirmed() async throws {
        bus.queue.sync { bus.timing.server.confirmation = .milliseconds(10) }
        let socket = try socket()
        send([1], "first", socket, isIndicated: true)
        send([2], "second", socket)
        try await wait(for: "second")
        #expect(log.all == ["first", "second"])
        #expect(pair.receiveAll() == [[1], [2]])
        bus.queue.sync { socket.close() }
    }

    @Test("UP-9 a central that has not confirmed in time, and is still there, is not waited for again")
    func unsubscribedUnnoticed() async throws {
        bus.queue.sync { bus.timing.server.confirmation = .milliseconds(10) }
        let socket = try socket()
        send([1], "first", socket, isIndicated: true)
        try await wait(for: "first")
        bus.queue.sync { bus.timing.server.confirmation = .seconds(3600) }
        for name in ["second", "third"] { send([2], name, socket, isIndicated: true) }
        #expect(log.all == ["first", "second", "third"])
        #expect(pair.receiveAll() == [[1], [2], [2]])
        bus.queue.sync { socket.close() }
    }

    @Test("UP-8 what goes another way waits until BlueZ has read the packets before it, and is not overtaken")
    func draining() async throws {
        let socket = try socket()
        send([1], "first", socket)
        bus.queue.sync { for name in ["signal", "another"] { socket.drain { [log] in log.append(name) } } }
        send([2], "second", socket)
        #expect(log.all == ["first"])
        #expect(pair.receiveAll() == [[1]])
        try await wait(for: "another")
        bus.queue.sync {}
        #expect(log.all == ["first", "signal", "another"] && pair.receiveAll() == [])
        bus.queue.sync { socket.release() }
        #expect(pair.receiveAll() == [])
        bus.queue.sync { socket.release() }
        #expect(log.all == ["first", "signal", "another", "second"] && pair.receiveAll() == [[2]])
        // One that waits when the socket ends has nothing to wait for.
        send([3], "third", socket)
        bus.queue.sync {
            socket.drain { [log] in log.append("last") }
            socket.close()
        }
        #expect(log.all.suffix(2) == ["third", "last"])
    }

    @Test("UP-8 it is said when BlueZ reads no more while something waits for that")
    func stuck() async throws {
        let socket = try hastySocket()
        send([1], "first", socket)
        bus.queue.sync { socket.drain { log.append("signal") } }
        for _ in 0..<2 { try await wait(for: "stuck") }
        #expect(!log.all.contains("signal"))
        bus.queue.sync { socket.close() }
        #expect(log.all.last == "signal")
    }

    @Test("UP-8 it is said when BlueZ reads no more of a full socket")
    func stuckWhileFull() async throws {
        let socket = try hastySocket()
        _ = fill(socket)
        for _ in 0..<2 { try await wait(for: "stuck") }
        bus.queue.sync { socket.close() }
    }

    @Test("updates wait in order while the socket is full, and continue when BlueZ reads")
    func full() async throws {
        let socket = try socket()
        let count = fill(socket)
        send([98], "later", socket)
        send([99], "last", socket)
        #expect(log.all.count == count)
        var received = pair.receiveAll()
        try await wait(for: "last")
        received += pair.receiveAll()
        #expect(log.all == (0...count).map(String.init) + ["later", "last"])
        let expected = (0...count).map { [UInt8(truncatingIfNeeded: $0)] } + [[98], [99]]
        #expect(received == expected)
        bus.queue.sync { socket.close() }
    }

    @Test("the end of BlueZ's socket is reported once, also behind confirmations, and later updates are done")
    func end() async throws {
        let socket = try socket()
        for _ in 0..<3 { pair.send([1]) }
        send([5], "first", socket)
        bus.queue.sync {}
        #expect(log.all == ["first"])
        for _ in 0..<40 { pair.send([1]) }
        pair.closeBlueZs()
        try await wait(for: "end")
        send([6], "lost", socket)
        bus.queue.sync {}
        #expect(log.all == ["first", "end", "lost"])
        bus.queue.sync { socket.close() }
        bus.queue.sync {}
        #expect(log.all == ["first", "end", "lost"])
    }

    @Test("a closed socket reports no end, and each update that waited is done once")
    func closed() throws {
        let socket = try socket()
        let count = fill(socket)
        send([1], "waiting", socket)
        bus.queue.sync {
            // Both are noticed at the end of this turn, if at all.
            _ = pair.receiveAll()
            socket.close()
        }
        for _ in 0..<3 { bus.queue.sync {} }
        #expect(log.all == (0...count).map(String.init) + ["waiting"])
        bus.queue.sync { socket.close() }
        #expect(log.all.count == count + 2)
    }

    @Test("the end of BlueZ's socket is noticed while updates wait, and they are done")
    func endWhileFull() async throws {
        let socket = try socket()
        let count = fill(socket)
        pair.closeBlueZs()
        try await wait(for: "end")
        send([1], "last", socket)
        try await wait(for: "last")
        bus.queue.sync {}
        #expect(Set(log.all) == Set((0...count).map(String.init) + ["end", "last"]))
        #expect(log.all.count == count + 3)
        bus.queue.sync { socket.close() }
    }
}
