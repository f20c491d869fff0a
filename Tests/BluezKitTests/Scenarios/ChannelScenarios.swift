import BluezKit
import BluezKitSimulator
import Foundation
import Testing

extension Scenarios {
    /// L2CAP channels that an app opens, as a central.
    @Suite struct ChannelScenarios {
        /// More in the simulator than in the rig.
        private static let bulk = Worlds.bulkBytes

        /// A central that is connected to the device with channels.
        private func connected(
            _ watch: ContractWatch = ContractWatch()
        ) async throws -> (any World, Central, CBPeripheral) {
            let world = try await Worlds.make()
            try await world.prepareChannels()
            let central = Central(world, watch: watch)
            try await central.powerOn()
            let device = try await central.find("Rig CoC", services: [sinkUUID(0x40)])
            try await central.connect(device)
            return (world, central, device)
        }

        private func opened(
            _ psm: CBL2CAPPSM = 0x80, isReading: Bool = true
        ) async throws -> (any World, Central, CBPeripheral, ChannelUser) {
            let (world, central, device) = try await connected()
            device.openL2CAPChannel(psm)
            let channel = try await central.nextChannel()
            try await world.awaitChannel("coc", "open 0080")
            return (world, central, device, ChannelUser(channel, isReading: isReading, keeping: central))
        }

        @Test("the devices of simulator and rig open channels to each other, and report them alike")
        func worlds() async throws {
            let world = try await Worlds.make()
            try await world.prepareChannels()
            try await world.control("central connect F0:F1:F2:00:00:03")
            await #expect(throws: (any Error).self) { try await world.openChannel(0x99) }
            try await world.openChannel(0x80)
            try await world.awaitChannel("coc", "open 0080")

            try await world.control("central channel mode sink")
            try await world.control("central channel send 100000")
            let sent = try await world.awaitChannel("central", "sent 100000")
            // Not before: all may be back before the sender says that it has sent all.
            try await world.control("central channel expect 100000")
            let echoed = try await world.awaitChannel("central", "received 100000")
            #expect(sent.split(separator: " ").last == echoed.split(separator: " ").last)
            #expect(try await world.control("coc channel hash") == "100000 \(sent.split(separator: " ").last ?? "")")

            try await world.control("coc channel close")
            try await world.awaitChannel("central", "closed 0080 100000")
            #expect(try await world.control("central channel count") == "0")
            try await world.control("coc channel refuse 0x0004")
            await #expect(throws: (any Error).self) { try await world.openChannel(0x80) }
            try await world.resetChannels()
            try await world.control("central channel churn 0080 20")
            try await world.openChannel(0x80)
            try await world.control("central disconnect")
            try await world.awaitChannel("coc", "closed 0080 0")
        }

        @Test("L2-2 L2-4 L2-5 L2-12 O-41 a channel is opened with the PSM that was read, and carries bytes both ways")
        func echoes() async throws {
            let (_, central, device) = try await connected()
            let characteristic = try await central.characteristic(sinkUUID(0x41), of: sinkUUID(0x40), on: device)
            let value = try await central.read(characteristic).get()
            device.openL2CAPChannel(CBL2CAPPSM(value[0]) | CBL2CAPPSM(value[1]) << 8)
            let channel = try await central.nextChannel()
            #expect(channel.peer === device && channel.psm == 0x80)
            #expect(channel.inputStream.streamStatus == .notOpen && channel.outputStream.streamStatus == .notOpen)
            let user = ChannelUser(channel)
            let data = Data((0..<100_000).map { UInt8(truncatingIfNeeded: $0 &* 7) })
            // What comes back could be reported before the output stream's opening.
            try await user.events.next("both are open") { $0 == .opened(isInput: false) ? true : nil }
            user.send(data)
            try await user.awaitBytes(data.count)
            #expect(user.received == data)
            let first = user.events.all.prefix(2)
            #expect(first == [.opened(isInput: true), .opened(isInput: false)], "\(first)")
            user.close()
        }

        @Test("L2-10 a PSM that the peer does not serve is refused, each call has one answer, and others succeed")
        func refusals() async throws {
            let (world, central, device) = try await connected()
            func refusal(of psm: CBL2CAPPSM) async throws -> NSError {
                device.openL2CAPChannel(psm)
                return try await central.next("didOpen \(psm)") {
                    if case .channel(nil, let error?) = $0 { error as NSError } else { nil }
                }
            }
            let unknown = try await refusal(of: 0x99)
            #expect(unknown.domain == CBErrorDomain && unknown.code == CBError.connectionFailed.rawValue)
            #expect((unknown.userInfo[NSUnderlyingErrorKey] as? NSError)?.code == Int(ECONNREFUSED))
            try await world.control("coc channel refuse 0x0004")
            #expect(try await refusal(of: 0x80).code == CBError.connectionFailed.rawValue)
            try await world.control("coc channel refuse off")
            #expect(try await refusal(of: 0x1234).code == CBError.invalidParameters.rawValue)
            device.openL2CAPChannel(0x80)
            device.openL2CAPChannel(0x80)
            let (one, other) = (try await central.nextChannel(), try await central.nextChannel())
            #expect(one !== other)
            #expect(central.count { if case .channel = $0 { true } else { false } } == 5)
        }

        @Test("L2-12 L2-11 bulk data to a peer that pauses at random arrives whole", .timeLimit(.minutes(20)))
        func sendsBulk() async throws {
            let (world, _, _, user) = try await opened()
            try await world.control("coc channel mode sink")
            try await world.control("coc channel pauses 20")
            try await world.control("coc channel expect \(Self.bulk)")
            let data = Self.pattern(Self.bulk)
            user.send(data)
            let event = try await world.awaitChannel("coc", "received \(Self.bulk)", within: 1000)
            #expect(event.hasSuffix(sha256(of: data)), "\(event)")
            user.close()
        }

        @Test("L2-12 L2-11 bulk data to an app that pauses at random arrives whole", .timeLimit(.minutes(20)))
        func receivesBulk() async throws {
            let (world, _, _, user) = try await opened()
            try await world.control("coc channel mode sink")
            try await world.control("coc channel send \(Self.bulk)")
            var seen = 0
            while user.received.count < Self.bulk {
                seen += try await user.nextBytes(within: 1000)
                if seen % 97 == 0 {
                    user.read(false)
                    await Task.yield()
                    user.read(true)
                }
            }
            #expect(user.received == Self.pattern(Self.bulk))
            try await world.awaitChannel("coc", "sent \(Self.bulk)")
        }

        private static func pattern(_ count: Int) -> Data { SimulatedWorld.channelPattern(count) }

        @Test("L2-11 a peer that does not read stops the writer, and nothing is lost")
        func stopsWriter() async throws {
            let (world, _, _, user) = try await opened()
            try await world.control("coc channel mode sink")
            try await world.control("coc channel pause")
            let size = 1_000_000
            let data = Self.pattern(size)
            user.send(data)
            // There is no space any more, long before everything has been written.
            try await user.awaitFull()
            #expect(user.unsent > size / 2)
            try await world.control("coc channel expect \(size)")
            try await world.control("coc channel resume")
            let event = try await world.awaitChannel("coc", "received \(size)", within: 200)
            #expect(event.hasSuffix(sha256(of: data)))
        }

        @Test("L2-11 an app that does not read stops the peer, without memory for it, and nothing is lost")
        func stopsPeer() async throws {
            let (world, _, _, user) = try await opened(isReading: false)
            try await world.control("coc channel mode sink")
            let size = Worlds.isRig ? 800_000 : 2_000_000
            try await world.control("coc channel send \(size)")
            try await user.awaitReadable()
            let before = residentSize()
            // The peer's `sent` does not come meanwhile: it could not send all.
            #expect(try await world.control("coc channel count") == "1")
            #expect(residentSize() - before < size)
            user.read(true)
            try await user.awaitBytes(size, within: 200)
            #expect(user.received == Self.pattern(size))
            try await world.awaitChannel("coc", "sent \(size)")
        }

        enum End: String, CaseIterable { case closed, disconnected, cancelled, off, vanished }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test(
            "L2-6 O-42 data that had arrived is read, then each stream ends once, whatever ends the channel",
            arguments: End.allCases)
        func ends(_ end: End) async throws {
            let (world, central, device, user) = try await opened(isReading: false)
            try await world.control("coc channel mode sink")
            let probe = try await central.characteristic(sinkUUID(0x41), of: sinkUUID(0x40), on: device)
            let size = 5000
            try await world.control("coc channel send \(size)")
            try await world.awaitChannel("coc", "sent \(size)")
            // The answer is behind the packets on the same link: they have all arrived.
            _ = try await central.read(probe).get()
            try await user.awaitReadable()
            switch end {
            case .closed: try await world.control("coc channel close")
            case .disconnected: try await world.control("coc disconnect")
            case .cancelled: central.manager.cancelPeripheralConnection(device)
            case .off: try await world.control("rig power off")
            case .vanished: try await world.control("coc vanish")
            }
            try await user.events.next("the end of the output stream") { $0 == .ended(isInput: false) ? true : nil }
            // Not before what had arrived was read.
            #expect(!user.events.all.contains(.ended(isInput: true)))
            user.read(true)
            try await user.events.next("the end of the input stream") { $0 == .ended(isInput: true) ? true : nil }
            #expect(user.received == Self.pattern(size))
            #expect(user.channel.inputStream.streamStatus == .atEnd)
            #expect(user.events.all.count { $0 == .ended(isInput: true) || $0 == .ended(isInput: false) } == 2)
            #expect(!user.events.all.contains { if case .error = $0 { true } else { false } })
            if end == .off { try await world.control("rig power on") }
            if end == .vanished { try await world.control("coc return") }
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test("L2-7 a released channel is closed when everything has been sent", arguments: [true, false])
        func released(byClosing closes: Bool) async throws {
            let (world, central, device) = try await connected()
            try await world.control("coc channel mode sink")
            try await world.control("coc channel pause")
            device.openL2CAPChannel(0x80)
            var channel: CBL2CAPChannel? = try await central.nextChannel()
            try await world.awaitChannel("coc", "open 0080")
            central.forgetRecords()
            let data = Self.pattern(30_000)
            var sent = 0
            do {
                let output = try #require(channel?.outputStream)
                output.open()
                channel?.inputStream.open()
                while sent < data.count, output.hasSpaceAvailable {
                    let rest = data[sent...]
                    sent += rest.withUnsafeBytes {
                        // `!`: it is not empty.
                        output.write($0.baseAddress!.assumingMemoryBound(to: UInt8.self), maxLength: $0.count)
                    }
                }
                if closes {
                    output.close()
                    channel?.inputStream.close()
                }
            }
            #expect(sent > 0)
            if !closes { channel = nil }
            try await world.control("coc channel resume")
            let event = try await world.awaitChannel("coc", "closed 0080")
            #expect(event.hasSuffix("\(sent) \(sha256(of: data.prefix(sent)))"), "\(sent): \(event)")
            withExtendedLifetime(channel) {}
        }

        @Test("L2-7 nothing is left of a channel that was closed and released")
        func nothingIsLeft() async throws {
            let (_, central, device) = try await connected()
            weak var channel: CBL2CAPChannel?
            weak var input: InputStream?
            do {
                device.openL2CAPChannel(0x80)
                let user = ChannelUser(try await central.nextChannel())
                (channel, input) = (user.channel, user.channel.inputStream)
                try await user.events.next("opening") { $0 == .opened(isInput: true) ? true : nil }
                user.close()
            }
            central.forgetRecords()
            try await eventually("nothing keeps the channel") { channel == nil && input == nil }
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test(
            "L2-9 a channel that demands encryption is opened after pairing, or refused without",
            arguments: [0x81, 0x82] as [CBL2CAPPSM])
        func demandsEncryption(_ psm: CBL2CAPPSM) async throws {
            let (world, central, device) = try await connected()
            try await world.control("coc pairing justworks")
            central.manager.pairing = .justWorks
            device.openL2CAPChannel(psm)
            let user = ChannelUser(try await central.nextChannel())
            user.send(Data([1, 2, 3]))
            try await user.awaitBytes(3)
            try await central.removeBond(device)
            try await world.control("coc forget")
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test(
            "L2-9 a channel that demands encryption, and a pairing that is refused: the app hears it at once",
            arguments: [0x81, 0x82] as [CBL2CAPPSM])
        func refusesToPair(_ psm: CBL2CAPPSM) async throws {
            let (world, central, device) = try await connected()
            try await world.control("coc pairing justworks")
            try await world.control("coc forget")
            device.openL2CAPChannel(psm)
            // The kernel says in 40 s that the peer refuses the channel, and BluezKit takes it for that from 35 s on.
            let error = try await central.next("didOpen", within: Worlds.isRig ? 30 : world_deadline) {
                if case .channel(nil, let error) = $0 { [error] } else { nil }
            }[0]
            #expect((error as? CBError)?.code == .encryptionTimedOut)
            // Other channels can be opened.
            device.openL2CAPChannel(0x80)
            let user = ChannelUser(try await central.nextChannel())
            user.send(Data([1, 2, 3]))
            try await user.awaitBytes(3)
        }

        @Test("L2-7 the streams of a closed channel report nothing and say so")
        func closed() async throws {
            let (world, _, _, user) = try await opened()
            user.close()
            try await world.awaitChannel("coc", "closed 0080")
            #expect(user.channel.inputStream.streamStatus == .closed)
            #expect(user.channel.outputStream.streamStatus == .closed)
            var byte: UInt8 = 0
            #expect(user.channel.inputStream.read(&byte, maxLength: 1) == -1)
            #expect(user.channel.outputStream.write(&byte, maxLength: 1) == -1)
            #expect(!user.events.all.contains(.ended(isInput: true)))
        }

        // Slow: in the rig, each of 21 channels is opened and closed over the air.
        @Test("O-42 a peer that closes as it opens: the channel is delivered and ends, or is refused")
        func closesAtOnce() async throws {
            let (world, central, device) = try await connected()
            try await world.control("coc channel closing on")
            for _ in 0..<20 {
                device.openL2CAPChannel(0x80)
                let channel = try await central.next("didOpen") {
                    if case .channel(let channel, _) = $0 { [channel] } else { nil }
                }[0]
                guard let channel else { continue }
                let user = ChannelUser(channel)
                try await user.events.next("the end") { $0 == .ended(isInput: true) ? true : nil }
                user.close()
            }
            try await world.control("coc channel closing off")
            device.openL2CAPChannel(0x80)
            let user = ChannelUser(try await central.nextChannel())
            user.send(Data([7]))
            try await user.awaitBytes(1)
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test(
            "L2-11 a peer that breaks the protocol harms nothing: what is sound arrives, or the channel ends",
            .enabled(if: Worlds.isRig, "the simulator's channels are streams"),
            arguments: ["empty", "credits 100", "mtu", "length", "mps", "overflow"])
        func hostile(_ what: String) async throws {
            let (world, central, device, user) = try await opened()
            try await world.control("coc channel mode sink")
            try await world.control("coc channel hostile \(what)")
            if what == "empty" {
                try await world.control("coc channel send 1000")
                try await user.awaitBytes(1000)
                #expect(user.received == Self.pattern(1000))
            }
            // The link lasts, and the next channel works.
            device.openL2CAPChannel(0x80)
            let next = ChannelUser(try await central.nextChannel())
            try await world.control("coc channel mode echo")
            next.send(Data([1, 2, 3]))
            try await next.awaitBytes(3)
            #expect(next.received == Data([1, 2, 3]))
        }

        @Test("MIS-2 O-41 opening without a link is logged and not answered; a link's end leaves calls unanswered")
        func withoutLink() async throws {
            let (world, central, device) = try await connected()
            try await world.letBlueZDiscover(.coc)
            try await central.disconnect(device)
            device.openL2CAPChannel(0x80)
            try await world.control("coc channel hash")
            #expect(central.count { if case .channel = $0 { true } else { false } } == 0)
        }
    }
}
