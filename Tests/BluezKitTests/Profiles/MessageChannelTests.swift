import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

@testable import BluezKitProfiles

/// Over channels of the simulator.
@Suite("Messages over an L2CAP channel")
struct MessageChannelTests {
    private enum Event { case message(Data), room, end(MessageError?) }

    /// An app's end. All of it happens on its queue.
    private final class Messages: @unchecked Sendable {  // holds: a constant, used on its queue, and a log
        let log = EventLog<Event>()
        let queue = DispatchQueue(label: "messages")
        private var messages: MessageChannel!  // nil only after `release`

        init(_ channel: CBL2CAPChannel, limit: Int = MessageDecoder.usualLimit) {
            messages = MessageChannel(channel, limit: limit, queue: queue)
            perform { [log] messages in
                messages.onMessage = { log.append(.message($0)) }
                messages.onRoom = { log.append(.room) }
                messages.onEnd = { log.append(.end($0)) }
                messages.open()
            }
        }

        @discardableResult
        func perform<T>(_ body: (MessageChannel) throws -> T) rethrows -> T {
            try queue.sync {
                dispatchPrecondition(condition: .onQueue(queue))
                return try body(messages)
            }
        }

        func release() { queue.sync { messages = nil } }

        /// Sends a message as soon as there is room.
        func send(_ message: Data) async throws {
            while try perform({ try !$0.send(message) }) {
                try await log.next("room") { if case .room = $0 { true } else { nil } }
            }
        }

        func next() async throws -> Data {
            try await log.next("message") { if case .message(let data) = $0 { data } else { nil } }
        }

        func end() async throws -> MessageError? {
            try await log.next("end") { (event) -> MessageError?? in
                if case .end(let error) = event { .some(error) } else { nil }
            }
        }
    }

    private func open(
        limit: Int = MessageDecoder.usualLimit, _ serve: @escaping @Sendable (VirtualChannel) async -> Void
    ) async throws -> (Central, Messages) {
        let world = try await SimulatedWorld()
        let psm = try world.sink.serveChannels(serve)
        let central = Central(world)
        try await central.powerOn()
        let sink = try await central.find("Rig Sink")
        try await central.connect(sink)
        sink.openL2CAPChannel(psm)
        return (central, Messages(try await central.nextChannel(), limit: limit))
    }

    @Test("messages of any length arrive whole, in order, in both directions")
    func echo() async throws {
        let (central, messages) = try await open { await $0.echo() }
        for length in [0, 1, 3, 4, 5, 1000, 65_536, 2] {
            let message = Data((0..<length).map { UInt8(truncatingIfNeeded: $0) })
            try await messages.send(message)
            #expect(try await messages.next() == message)
        }
        #expect(throws: MessageError.tooLong(65_537, limit: 65_536)) {
            try messages.perform { try $0.send(Data(count: 65_537)) }
        }
        withExtendedLifetime(central) {}
    }

    @Test("if the other end does not read, there is soon no room, and nothing is lost")
    func room() async throws {
        let (central, messages) = try await open { channel in
            channel.isReading = false
            await channel.echo()
        }
        let message = Data(repeating: 1, count: 50_000)
        var sent = 0
        while try messages.perform({ try $0.send(message) }) { sent += 1 }
        #expect(sent < 100)
        #expect(messages.perform { !$0.isIdle })
        let channel = try #require((central.world as? SimulatedWorld)?.sink.channels.first)
        channel.isReading = true
        try await messages.log.next("room") { if case .room = $0 { true } else { nil } }
        try await messages.send(Data([9]))
        try await messages.log.next("the last message") { if case .message(Data([9])) = $0 { true } else { nil } }
        // The first may have come before there was room.
        let received = messages.log.all.compactMap { if case .message(let data) = $0 { data } else { nil } }
        #expect(received == Array(repeating: message, count: sent) + [Data([9])])
    }

    @Test("the end comes once, after all messages, and says if it came within one")
    func ends() async throws {
        for (bytes, count, error) in [
            ([2, 0, 0, 0, 7, 8], 1, nil), ([2, 0, 0, 0, 7], 0, MessageError.endedEarly(5)), ([], 0, nil),
            ([0, 0, 0, 0, 1, 0], 1, .endedEarly(2)), ([0xFF, 0xFF, 0, 0, 1], 0, .tooLong(65_535, limit: 100)),
        ] as [([UInt8], Int, MessageError?)] {
            let (central, messages) = try await open(limit: 100) { channel in
                try? await channel.send(bytes)
                channel.close()
            }
            #expect(try await messages.end() == error, "\(bytes)")
            let events = messages.log.all
            #expect(events.filter { if case .message = $0 { true } else { false } }.count == count)
            #expect(events.filter { if case .end = $0 { true } else { false } }.count == 1)
            withExtendedLifetime(central) {}
        }
    }

    // `close()` closed the streams at once, although some of a message that `send` had accepted waited for space. Now
    // it waits until that has left.
    @Test(
        "every message that send accepted arrives, although the channel is closed and released at once",
        arguments: [1_000, 65_536, 3_000_000], [true, false])
    func accepted(_ length: Int, _ isReadAtOnce: Bool) async throws {
        let (received, begun) = (EventLog<Int>(), EventLog<Bool>())
        let (central, messages) = try await open(limit: length) { channel in
            channel.isReading = isReadAtOnce
            begun.append(true)
            var decoder = MessageDecoder(limit: length)
            while let bytes = await channel.receive(upTo: 65_536) {
                decoder.append(bytes)
                while let message = try? decoder.next() { received.append(message.count) }
            }
            received.append(-1)
        }
        try await begun.next("the other end") { $0 }
        let channel = try #require((central.world as? SimulatedWorld)?.sink.channels.first)
        #expect(try messages.perform { try $0.send(Data(count: length)) })
        messages.perform { $0.close() }
        #expect(try messages.perform { try !$0.send(Data([1])) })
        messages.release()
        channel.isReading = true
        try await received.next("the end") { $0 == -1 ? true : nil }
        #expect(received.all == [length, -1])
        #expect(messages.log.all.isEmpty)
    }

    @Test("a channel that is closed does not wait forever for an end that does not read")
    func stuck() async throws {
        let (central, messages) = try await open(limit: 3_000_000) { channel in
            channel.isReading = false
            await channel.echo()
        }
        let channel = try #require((central.world as? SimulatedWorld)?.sink.channels.first)
        messages.perform { $0.patience = .milliseconds(50) }
        #expect(try messages.perform { try $0.send(Data(count: 3_000_000)) })
        messages.perform { $0.close() }
        #expect(await channel.waitForEnd() == .closedByPeer)
    }

    // Reading was stopped for what follows in the socket, not for the messages that had arrived with the one that
    // stopped it.
    @Test(
        "a callback that stops reading gets no further message until it is resumed, and the end comes after all of them"
    )
    func pauses() async throws {
        let all = try (0..<100).reduce(into: Data()) { $0 += try MessageEncoder().encode([UInt8($1)]) }
        let closed = EventLog<Bool>()
        let (central, messages) = try await open { channel in
            _ = await channel.receive()
            try? await channel.send([UInt8](all))
            channel.close()
            closed.append(true)
        }
        let isAsked = try messages.perform { channel in
            channel.isReading = false
            return try channel.send(Data([1]))
        }
        #expect(isAsked)
        try await closed.next("the end at the other side") { $0 }
        messages.perform { channel in
            channel.onMessage = { [log = messages.log] message in
                #expect(channel.isReading)
                log.append(.message(message))
                channel.isReading = false
                if message[0] == 50 { channel.isReading = true }
            }
            channel.isReading = true
        }
        for number in UInt8(0)..<100 {
            #expect(try await messages.next() == Data([number]))
            if number == 50 { continue }
            messages.perform { channel in
                #expect(!channel.isReading)
                channel.isReading = true
            }
        }
        #expect(try await messages.end() == nil)
        #expect(messages.log.all.count == 101)
        withExtendedLifetime(central) {}
    }
}
