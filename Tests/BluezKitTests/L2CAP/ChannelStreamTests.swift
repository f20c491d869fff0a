import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit

/// The streams of a channel over a pair of sockets, without a world around them.
@Suite struct ChannelStreamTests {
    private final class Log: NSObject, StreamDelegate, @unchecked Sendable {
        let events = EventLog<Stream.Event.RawValue>()
        let wasOnQueue = ProtectedBox(true)
        func stream(_ stream: Stream, handle event: Stream.Event) { events.append(event.rawValue) }
    }

    private func pair() throws -> (CBL2CAPChannel, Int32) {
        var ends: [Int32] = [0, 0]
        #expect(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
        let socket = ChannelSocket(descriptor: ends[0])
        let endpoint = try #require(ChannelEndpoint(socket, BlueZTiming.Channel()) {})
        return (CBL2CAPChannel(peer: CBCentral(identifier: UUID()), psm: 0x80, socket, endpoint), ends[1])
    }

    private func write(_ bytes: [UInt8], to end: Int32) { #expect(Glibc.write(end, bytes, bytes.count) == bytes.count) }

    @Test("L2-5 streams are scheduled on a dispatch queue as well")
    func onQueue() async throws {
        let (channel, end) = try pair()
        defer { close(end) }
        let log = Log()
        channel.inputStream.delegate = log
        channel.schedule(on: DispatchQueue(label: "test"))
        channel.inputStream.open()
        try await log.events.next("opened") { $0 == Stream.Event.openCompleted.rawValue ? true : nil }
        write([1, 2, 3], to: end)
        try await log.events.next("bytes") { $0 == Stream.Event.hasBytesAvailable.rawValue ? true : nil }
        var buffer = [UInt8](repeating: 0, count: 2)
        #expect(channel.inputStream.read(&buffer, maxLength: 2) == 2 && buffer == [1, 2])
        try await log.events.next("the rest") { $0 == Stream.Event.hasBytesAvailable.rawValue ? true : nil }
        #expect(channel.inputStream.read(&buffer, maxLength: 2) == 1 && buffer[0] == 3)
        shutdown(end, Int32(SHUT_RDWR))
        try await log.events.next("the end") { $0 == Stream.Event.endEncountered.rawValue ? true : nil }
        #expect(channel.inputStream.streamStatus == .atEnd)
        #expect(channel.inputStream.read(&buffer, maxLength: 2) == 0)
    }

    @Test("L2-5 an app whose queue is blocked delays no other channel")
    func blockedQueues() async throws {
        // More of them than the process has threads that wait for sockets.
        let channels = try (0..<4).map { _ in try pair() }
        defer { for (_, end) in channels { close(end) } }
        let queues = channels.indices.map { DispatchQueue(label: "test \($0)") }
        let logs = channels.map { _ in Log() }
        for (index, (channel, _)) in channels.enumerated() {
            channel.inputStream.delegate = logs[index]
            channel.schedule(on: queues[index])
            channel.inputStream.open()
            try await logs[index].events.next("opened") { $0 == Stream.Event.openCompleted.rawValue ? true : nil }
        }
        for queue in queues.dropLast() {
            queue.sync {}  // what told that the stream is open has ended, and does not look for bytes any more
            queue.suspend()
        }
        for (_, end) in channels { write([1], to: end) }
        try await logs[3].events.next("the free one") { $0 == Stream.Event.hasBytesAvailable.rawValue ? true : nil }
        #expect(logs.dropLast().allSatisfy { $0.events.all.count == 1 })
        for queue in queues.dropLast() { queue.resume() }
        for log in logs.dropLast() {
            try await log.events.next("the others") { $0 == Stream.Event.hasBytesAvailable.rawValue ? true : nil }
        }
        withExtendedLifetime(channels) {}
    }

    @Test(
        "L2-5 stream events on a queue alternate with the app's own work there, and one queue can replace another")
    func turnsOnQueue() async throws {
        let (channel, end) = try pair()
        defer { close(end) }
        let app = TurnTaker(channel.inputStream)
        channel.inputStream.delegate = app
        channel.schedule(on: app.queues[0])
        channel.inputStream.open()
        for count in 1...2000 {
            write([UInt8](repeating: 7, count: 10), to: end)
            if count % 100 == 0 { channel.schedule(on: app.queues[count / 100 % 2]) }
        }
        try await app.counts.next("all bytes") { $0 == 20_000 ? true : nil }
        #expect(!app.isOverlapping.withLock { $0 })
        withExtendedLifetime(channel) {}
    }

    /// Reads one byte for each event.
    // holds: the stream's events come one at a time
    private final class TurnTaker: NSObject, StreamDelegate, @unchecked Sendable {
        let queues = [DispatchQueue(label: "turns 0"), DispatchQueue(label: "turns 1")]
        let counts = EventLog<Int>()
        let isOverlapping = ProtectedBox(false)
        private let isInside = ProtectedBox(false)
        private let input: InputStream
        private var count = 0

        init(_ input: InputStream) { self.input = input }

        func stream(_ stream: Stream, handle event: Stream.Event) {
            let overlaps = isInside.withLock { isInside in
                defer { isInside = true }
                return isInside
            }
            if overlaps { isOverlapping.withLock { $0 = true } }
            defer { isInside.withLock { $0 = false } }
            guard event == .hasBytesAvailable else { return }
            var byte: UInt8 = 0
            count += input.read(&byte, maxLength: 1)
            if count % 1000 == 0 { counts.append(count) }
        }
    }

    @Test("L2-5 streams that are not scheduled can be polled, and wait in a call until there is something")
    func polled() async throws {
        let (channel, end) = try pair()
        defer { close(end) }
        channel.inputStream.open()
        channel.outputStream.open()
        #expect(!channel.inputStream.hasBytesAvailable && channel.outputStream.hasSpaceAvailable)
        write([9], to: end)
        #expect(channel.inputStream.hasBytesAvailable)
        var buffer = [UInt8](repeating: 0, count: 8)
        #expect(channel.inputStream.read(&buffer, maxLength: 8) == 1)
        DispatchQueue.global().async { [self] in write([7, 8], to: end) }
        #expect(channel.inputStream.read(&buffer, maxLength: 8) > 0 && buffer[0] == 7)
    }

    @Test("L2-7 a stream that is closed ends a call that waits in it")
    func closedWhileWaiting() async throws {
        let (channel, end) = try pair()
        defer { close(end) }
        channel.inputStream.open()
        channel.outputStream.open()
        // holds: `close` may be called on another thread than the one that waits
        nonisolated(unsafe) let streams = (channel.inputStream as Stream, channel.outputStream as Stream)
        DispatchQueue.global().async {
            streams.0.close()
            streams.1.close()
        }
        var byte: UInt8 = 0
        #expect(channel.inputStream.read(&byte, maxLength: 1) <= 0)
        withExtendedLifetime(channel) {}
    }

    @Test("L2-5 a run loop returns from its turn after an event, as after those of Apple's streams")
    func runLoopReturns() async throws {
        let (channel, end) = try pair()
        defer { close(end) }
        let log = Log()
        // holds: the streams are used on the one thread
        nonisolated(unsafe) let input = channel.inputStream as InputStream
        let turns = await withCheckedContinuation { continuation in
            Thread.detachNewThread {
                input.delegate = log
                input.schedule(in: .current, forMode: .default)
                input.schedule(in: .current, forMode: .common)
                input.open()
                var turns = 0
                while log.events.all.isEmpty, RunLoop.current.run(mode: .default, before: .distantFuture) { turns += 1 }
                input.remove(from: .current, forMode: .common)
                input.remove(from: .current, forMode: .default)
                continuation.resume(returning: turns)
            }
        }
        #expect(turns >= 1)
        withExtendedLifetime(channel) {}
    }

    @Test(
        "O-42 a channel that is closed at any moment, from either side, 1,000 times: no descriptor stays, one end each")
    func closedAnytime() async throws {
        _ = try pair()
        let before = openSockets()
        for round in 0..<1000 {
            let (channel, end) = try pair()
            let log = Log()
            channel.inputStream.delegate = log
            channel.outputStream.delegate = log
            channel.schedule(on: DispatchQueue(label: "test"))
            if round % 2 == 0 { channel.inputStream.open() }
            if round % 3 == 0 { channel.outputStream.open() }
            if round % 5 < 3 { write([1], to: end) }
            switch round % 4 {
            case 0: close(end)
            case 1: channel.inputStream.close(); channel.outputStream.close(); close(end)
            case 2: DispatchQueue.global().async { close(end) }
            default: channel.outputStream.close(); close(end)
            }
            if round % 7 == 0 { await Task.yield() }
            #expect(log.events.all.count { $0 == Stream.Event.endEncountered.rawValue } <= 2)
        }
        try await eventually("the sockets are closed: \(openSockets()), before \(before)") {
            openSockets() <= before + 4
        }
    }

    @Test("the event loop of a program can use the socket itself")
    func fileHandle() throws {
        let (channel, end) = try pair()
        defer { close(end) }
        let handle = try #require(channel.makeFileHandle())
        write([5], to: end)
        #expect(try handle.read(upToCount: 1) == Data([5]))
        #expect(channel.maximumPacketLength == 65_535)
        channel.inputStream.close()
        channel.outputStream.close()
        #expect(channel.makeFileHandle() == nil)
    }

    @Test("L2-1 a PSM is announced by its characteristic, and read from it")
    func psmCharacteristic() {
        let characteristic = CBMutableCharacteristic(l2capPSM: 0x0123)
        #expect(characteristic.value == Data([0x23, 0x01]) && characteristic.properties == .read)
        #expect(characteristic.l2capPSM == 0x0123)
        #expect(
            CBMutableCharacteristic(
                type: CBUUID(string: "2A37"), properties: .read, value: Data([1, 2]), permissions: .readable
            ).l2capPSM == nil)
    }
}
