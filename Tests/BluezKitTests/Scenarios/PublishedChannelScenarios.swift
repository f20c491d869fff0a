import BluezKit
import BluezKitSimulator
import Foundation
import Testing

extension Scenarios {
    /// L2CAP channels that an app publishes, as a peripheral.
    @Suite struct PublishedChannelScenarios {
        /// A publisher on air with a connected central, and a channel if wanted.
        private func published(
            encrypted: Bool = false, options: [String: Any] = [:]
        ) async throws -> (any World, Publisher, CBL2CAPPSM) {
            let world = try await Worlds.make()
            try await world.prepareChannels()
            let publisher = Publisher(world, options: options)
            try await publisher.powerOn()
            let psm = try await publisher.publishChannel(encrypted: encrypted)
            #expect(try await publisher.advertise() == nil)
            try await world.connect()
            return (world, publisher, psm)
        }

        @Test("L2-1 L2-3 L2-4 O-41 a published channel is opened by a central, and carries bytes both ways")
        func echoes() async throws {
            let (world, publisher, psm) = try await published()
            #expect((0x80...0xFF).contains(psm))
            try await world.control("central channel mode sink")
            try await world.openChannel(psm)
            let channel = try await publisher.nextChannel()
            #expect(channel.psm == psm)
            #expect(channel.peer is CBCentral)
            #expect(channel.peer.identifier.uuidString == "426C7A4B-0100-8000-8000-F0F1F2000004")
            #expect(channel.inputStream.streamStatus == .notOpen && channel.outputStream.streamStatus == .notOpen)
            let user = ChannelUser(channel)
            try await world.control("central channel send 100000")
            try await user.awaitBytes(100_000)
            #expect(user.received == SimulatedWorld.channelPattern(100_000))
            try await world.control("central channel expect 100000")
            user.send(user.received)
            let event = try await world.awaitChannel("central", "received 100000")
            #expect(event.hasSuffix(sha256(of: user.received)))
            // Publishing was reported before any channel.
            let order = publisher.events.compactMap { event -> String? in
                switch event {
                case .published: "published"
                case .channel: "channel"
                default: nil
                }
            }
            #expect(order == ["published", "channel"])
        }

        @Test("L2-1 several channels are published, each with a PSM of its own, and their central is one object")
        func several() async throws {
            let (world, publisher, first) = try await published()
            let second = try await publisher.publishChannel()
            #expect(first != second)
            try await world.openChannel(first)
            try await world.openChannel(second)
            let channels = [try await publisher.nextChannel(), try await publisher.nextChannel()]
            #expect(channels.map(\.psm) == [first, second])
            #expect(channels[0].peer === channels[1].peer)
        }

        @Test("L2-8 L2-6 unpublishing is confirmed, ends open channels and frees the PSM; unknown PSMs are an error")
        func unpublished() async throws {
            let (world, publisher, psm) = try await published()
            try await world.openChannel(psm)
            let user = ChannelUser(try await publisher.nextChannel())
            await publisher.perform { $0.unpublishL2CAPChannel(psm) }
            try await publisher.next("didUnpublish") { if case .unpublished(psm, nil) = $0 { true } else { nil } }
            var ended: Set<Bool> = []
            while ended.count < 2 {
                ended.insert(
                    try await user.events.next("the end of both streams") { event in
                        if case .ended(let isInput) = event { isInput } else { nil }
                    })
            }
            try await world.awaitChannel("central", "closed")
            await #expect(throws: (any Error).self) { try await world.openChannel(psm) }
            await publisher.perform { $0.unpublishL2CAPChannel(psm) }
            let error = try await publisher.next("didUnpublish") {
                if case .unpublished(psm, let error?) = $0 { error as NSError } else { nil }
            }
            #expect(error.domain == CBErrorDomain && error.code == CBError.invalidParameters.rawValue)
            #expect(try await publisher.publishChannel() == psm)
        }

        @Test("L2-8 a manager that is released while it publishes leaves no PSM in use")
        func releasedWhilePublishing() async throws {
            let world = try await Worlds.make()
            // The lowest one that is free: others of this process may still be ending.
            let before = Publisher(world)
            try await before.powerOn()
            let lowest = try await before.publishChannel()
            before.release()
            let sockets = channelSockets()
            for _ in 0..<20 {
                let publisher = Publisher(world)
                try await publisher.powerOn()
                publisher.manager.publishL2CAPChannel(withEncryption: false)
                publisher.release()
            }
            let publisher = Publisher(world)
            try await publisher.powerOn()
            // The end of a manager is carried out some moments later.
            let deadline = ContinuousClock.now + .seconds(world_deadline)
            var psm = try await publisher.publishChannel()
            while psm > lowest, ContinuousClock.now < deadline {
                let other = psm
                publisher.manager.unpublishL2CAPChannel(other)
                psm = try await publisher.publishChannel()
            }
            #expect(psm <= lowest)
            #expect(channelSockets() < sockets + 20)
        }

        @Test("L2-9 only an encrypted link may open a channel that demands encryption")
        func encrypted() async throws {
            let (world, publisher, psm) = try await published(
                encrypted: true, options: [BluezManagerOptionAllowJustWorksPairingKey: true])
            await #expect(throws: (any Error).self) { try await world.openChannel(psm) }
            try await world.openChannel(psm, pairs: true)
            let user = ChannelUser(try await publisher.nextChannel())
            user.send(Data([1, 2, 3]))
            try await world.control("central channel expect 3")
            try await world.awaitChannel("central", "received 3")
            try await world.control("central forget")
            try await world.forget("F0:F1:F2:00:00:04")
        }

        @Test("L2-6 ST-4 with Bluetooth off channels end; afterwards the PSM is published as before")
        func bluetoothOff() async throws {
            let (world, publisher, psm) = try await published()
            try await world.openChannel(psm)
            let user = ChannelUser(try await publisher.nextChannel())
            try await world.control("rig power off")
            try await user.events.next("the end") { $0 == .ended(isInput: true) ? true : nil }
            try await publisher.next("off") { if case .state(.poweredOff) = $0 { true } else { nil } }
            try await world.control("rig power on")
            try await publisher.powerOn()
            #expect(try await publisher.advertise() == nil)
            try await world.connect()
            try await world.openChannel(psm)
            #expect(try await publisher.nextChannel().psm == psm)
        }

        @Test("L2-3 many channels at once, opened and closed: each is delivered and ends, and the next one works")
        func churn() async throws {
            let (world, publisher, psm) = try await published()
            let (ended, pulse) = (ProtectedBox(0), Pulse())
            /// They are accepted one after the other, even when the central has closed all.
            func wait(until condition: () -> Bool) async {
                let deadline = ContinuousClock.now + .seconds(world_deadline)
                var beats = pulse.beats
                while !condition(), ContinuousClock.now < deadline {
                    await pulse.wait(since: beats, atMost: .milliseconds(20))
                    beats = pulse.beats
                }
            }
            publisher.onEvent { _, event in
                guard case .channel(let channel?, nil) = event else { return }
                channel.inputStream.open()
                channel.outputStream.open()
                channel.inputStream.close()
                channel.outputStream.close()
                ended.withLock { $0 += 1 }
                pulse.beat()
            }
            let sockets = channelSockets()
            try await world.control("central channel churn \(String(psm, radix: 16)) 100")
            await wait { ended.withLock { $0 } > 0 }
            publisher.onEvent { _, _ in }
            let other = try await publisher.publishChannel()
            try await world.openChannel(other)
            let last = try await publisher.next("the last") { event in
                if case .channel(let channel?, nil) = event, channel.psm == other { channel } else { nil }
            }
            let user = ChannelUser(last)
            user.send(Data([1]))
            try await world.control("central channel expect 1")
            try await world.awaitChannel("central", "received 1")
            #expect(ended.withLock { $0 } > 0)
            user.close()
            // Channels of the other PSM may come later than the last one, and a record holds its channel. What is left
            // is the socket that listens on the other PSM, and those of the last channel until both ends have been
            // released.
            await wait {
                publisher.forgetRecords()
                return channelSockets() <= sockets + 3
            }
            #expect(channelSockets() <= sockets + 3)
        }
    }
}
