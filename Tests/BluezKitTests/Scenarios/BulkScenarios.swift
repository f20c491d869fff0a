import CoreBluetooth
import Foundation
import Testing

extension Scenarios {
    /// Megabytes in each way that has flow control, in both roles, against the independent stack, while the receiver
    /// pauses at random. What an app sends and receives over a channel that it opens is in ``ChannelScenarios``.
    @Suite struct BulkScenarios {
        private let size = Worlds.bulkBytes
        private var data: Data { SimulatedWorld.channelPattern(size) }
        /// Less than any version of BlueZ accepts in one packet.
        private static let valueLength = 495
        /// Values that a central has sent, and the app has not received.
        private static let mostUnderWay = 64

        // Slow: the rig carries 50 to 100 KB/s, and the sink pauses.
        @Test(
            "RW-9 RW-10 O-26 an app that writes without response whenever it can loses nothing",
            .timeLimit(.minutes(20)))
        func writesWithoutResponse() async throws {
            let world = try await Worlds.make()
            let central = Central(world)
            try await central.powerOn()
            let sink = try await central.find("Rig Sink", services: [sinkUUID(1)])
            try await central.connect(sink)
            let command = try await central.characteristic(sinkUUID(0x12), of: sinkUUID(1), on: sink)
            if Worlds.isRig { try await world.control("sink pauses 50") }
            let (data, sent) = (data, ProtectedBox(0))
            while true {
                let isDone = await central.perform {
                    sent.withLock { sent in
                        while sent < data.count, sink.canSendWriteWithoutResponse {
                            let value = data[sent..<min(sent + Self.valueLength, data.count)]
                            sink.writeValue(value, for: command, type: .withoutResponse)
                            sent += value.count
                        }
                        return sent == data.count
                    }
                }
                if isDone { break }
                try await central.next("room", within: 4 * world_deadline) { if case .ready = $0 { true } else { nil } }
            }
            var received = Data()
            while received.count < data.count {
                let event = try await world.nextEvent("a value after \(received.count) bytes") {
                    $0.hasPrefix("sink written 0012 ")
                }
                received += try #require(event.split(separator: " ").last.flatMap { Data(hex: $0) })
            }
            if Worlds.isRig { try await world.control("sink pauses 0") }
            #expect(received == data)
            #expect(sink.droppedWritesWithoutResponse == 0)
            try await central.disconnect(sink)
        }

        @Test("RQ-6 an app whose queue pauses receives every write without response", .timeLimit(.minutes(20)))
        func receivesWritesWithoutResponse() async throws {
            let characteristic = local(0x110, .writeWithoutResponse)
            let (world, publisher) = try await Publisher.connected([characteristic])
            let (received, arrivals) = (ProtectedBox(Data()), EventLog<Int>())
            publisher.onEvent { manager, event in
                guard case .write(let requests) = event else { return }
                let count = received.withLock { received in
                    for request in requests { received += request.value ?? Data() }
                    return received.count
                }
                manager.respond(to: requests[0], withResult: .success)
                arrivals.append(count)
            }
            let data = data
            func awaitArrival(of count: Int) async throws {
                guard received.withLock(\.count) < count else { return }
                try await arrivals.next("\(count) bytes", within: 4 * world_deadline) { $0 >= count ? $0 : nil }
            }
            var paused = 0  // for so many more values
            defer { if paused > 0 { publisher.queue.resume() } }
            for start in stride(from: 0, to: data.count, by: Self.valueLength) {
                // Nothing paces a central. For a bluetoothd that does not keep up Linux holds some 160 values, and
                // drops what follows.
                if paused == 0 {
                    try await awaitArrival(of: start - Self.mostUnderWay / 2 * Self.valueLength)
                    if Int.random(in: 0..<50) == 0 {
                        paused = .random(in: 1...Self.mostUnderWay / 2)
                        publisher.queue.suspend()
                    }
                }
                let value = data[start..<min(start + Self.valueLength, data.count)]
                try await world.control("central write \(characteristic.uuid.line) \(value.hex) 0")
                guard paused > 0 else { continue }
                paused -= 1
                if paused == 0 { publisher.queue.resume() }
            }
            if paused > 0 { publisher.queue.resume() }
            paused = 0
            try await awaitArrival(of: data.count)
            #expect(received.withLock { $0 } == data)
        }

        private func publishedChannel() async throws -> (any World, Publisher, ChannelUser) {
            let world = try await Worlds.make()
            try await world.prepareChannels()
            let publisher = Publisher(world)
            try await publisher.powerOn()
            let psm = try await publisher.publishChannel()
            #expect(try await publisher.advertise() == nil)
            try await world.connect()
            try await world.control("central channel mode sink")
            try await world.openChannel(psm)
            return (world, publisher, ChannelUser(try await publisher.nextChannel(), keeping: publisher))
        }

        @Test("L2-12 L2-11 an app sends over a channel that it published", .timeLimit(.minutes(20)))
        func sendsOverPublished() async throws {
            let (world, publisher, user) = try await publishedChannel()
            defer { publisher.release() }
            try await world.control("central channel pauses 20")
            try await world.control("central channel expect \(size)")
            user.send(data)
            let event = try await world.awaitChannel("central", "received \(size)", within: 1000)
            #expect(event.hasSuffix(sha256(of: data)), "\(event)")
            user.close()
        }

        @Test("L2-12 L2-11 an app receives over a channel that it published, and pauses", .timeLimit(.minutes(20)))
        func receivesOverPublished() async throws {
            let (world, publisher, user) = try await publishedChannel()
            defer { publisher.release() }
            try await world.control("central channel send \(size)")
            var seen = 0
            while user.received.count < size {
                seen += try await user.nextBytes(within: 500)
                if seen % 97 == 0 {
                    user.read(false)
                    await Task.yield()
                    user.read(true)
                }
            }
            #expect(user.received == data)
            try await world.awaitChannel("central", "sent \(size)")
        }
    }
}
