import BluezDBus
import BluezKitSimulator
import Foundation
import Testing

/// L2CAP channels: what programs get instead of sockets of the kernel.
@Suite("Simulator: L2CAP channels")
struct SimulatorChannelTests {
    static let adapter = "00:B1:5E:00:00:01"
    static let pattern = (0..<1_000_000).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }

    /// A client of the adapter, with a link to the sink.
    struct Setting {
        let simulator: Simulator
        let sink: VirtualPeripheral
        let client: BusClient

        init() async throws { (simulator, sink, client) = try await SimulatorGATTTests.connected() }

        func connect(_ psm: UInt16, encrypted: Bool = false) async throws -> ByteSocket {
            let path = try BusServer.path(BusClient.sink)
            return try ByteSocket(
                try await client.call(
                    "/org/bluez/hci0", "org.bluezkit.Simulator.L2CAP1", "Connect", .path(path), .uint16(psm),
                    .bool(encrypted)
                ).first)
        }

        /// The name of the error that Connect fails with.
        func failure(_ psm: UInt16, encrypted: Bool = false) async -> String {
            do {
                _ = try await connect(psm, encrypted: encrypted)
                return "none"
            } catch BusError.remote(let name, _) {
                return name.replacingOccurrences(of: "org.bluezkit.Simulator.Error.", with: "")
            } catch {
                return "\(error)"
            }
        }

        /// The ends that the sink has of new channels.
        func served(_ psm: UInt16 = 0, security: VirtualSecurity = .none) throws -> (UInt16, EventLog<VirtualChannel>) {
            let log = EventLog<VirtualChannel>()
            return (try sink.serveChannels(psm: psm, security: security) { log.append($0) }, log)
        }
    }

    static func listen(
        _ client: BusClient, _ psm: UInt16 = 0, encrypted: Bool = false
    ) async throws -> (ByteSocket, Int) {
        let answer = try await client.call(
            "/org/bluez/hci0", "org.bluezkit.Simulator.L2CAP1", "Listen", .uint16(psm), .bool(encrypted))
        return (try ByteSocket(answer.first), answer.last?.intValue ?? 0)
    }

    /// A published PSM, and a central with a link.
    static func published(encrypted: Bool = false) async throws -> (Simulator, BusServer, ByteSocket, UInt16) {
        let simulator = try await Simulator()
        let app = try await BusServer(simulator.busAddress)
        app.client.keeps = simulator
        try app.service("/app/s", "180f")
        try await app.register()
        try await app.advertise(["Type": .string("peripheral")])
        let (listener, psm) = try await listen(app.client, encrypted: encrypted)
        _ = try await simulator.central().connect(to: adapter)
        return (simulator, app, listener, UInt16(psm))
    }

    @Test("adapters say that their sockets are simulated")
    func property() async throws {
        let simulator = try await Simulator()
        let client = try await BusClient(simulator.busAddress)
        #expect(
            try await client.property("/org/bluez/hci0", "org.bluez.Adapter1", "SimulatedSockets")?.boolValue == true)
    }

    @Test("a client's channel to a peripheral carries bytes both ways, until either closes it")
    func bothWays() async throws {
        let setting = try await Setting()
        let psm = try setting.sink.serveChannels { await $0.echo() }
        #expect(psm == 0x80)
        let socket = try await setting.connect(psm)
        async let sending: Void = socket.send(Self.pattern)
        #expect(try await socket.receive(exactly: Self.pattern.count) == Self.pattern)
        try await sending
        let channel = try #require(setting.sink.channels.first)
        #expect(channel.peer == Self.adapter && channel.psm == 0x80 && channel.ended == nil)
        socket.close()
        #expect(await channel.waitForEnd() == .closedByPeer)

        let (other, channels) = try setting.served()
        #expect(other == 0x81)
        let second = try await setting.connect(other)
        let end = try await channels.next("channel") { $0 }
        try await end.send([1, 2, 3])
        end.close()
        #expect(try await second.receiveAll() == [1, 2, 3], "what was sent before the end arrives")
        await #expect(throws: VirtualChannelError.ended) { try await end.send([4]) }
        #expect(await end.receive() == nil)
    }

    @Test("data that a client sent before it closed arrives before the end")
    func closedByClient() async throws {
        let setting = try await Setting()
        let (psm, channels) = try setting.served()
        let socket = try await setting.connect(psm)
        let channel = try await channels.next("channel") { $0 }
        try await socket.send([7, 8])
        socket.close()
        #expect(await channel.waitForEnd() == .closedByPeer)
        #expect(await channel.receive() == [7, 8])
        #expect(await channel.receive() == nil)
    }

    @Test("a device that does not read stops the client's writer, and the other way round")
    func backPressure() async throws {
        let setting = try await Setting()
        let (psm, channels) = try setting.served()
        let socket = try await setting.connect(psm)
        let channel = try await channels.next("channel") { $0 }
        var sent = 0
        while case let count = try socket.sendWhatFits(Array(Self.pattern[sent...])), count > 0 { sent += count }
        #expect((10_000...VirtualChannel.bufferSize).contains(sent), "\(sent)")
        channel.isReading = false
        async let first = channel.receive(upTo: 5)
        channel.isReading = true
        #expect(await first == Array(Self.pattern[..<5]))
        async let rest: Void = socket.send(Array(Self.pattern[sent...]))
        var received: [UInt8] = Array(Self.pattern[..<5])
        while received.count < Self.pattern.count,
            let bytes = try await within(world_deadline, { await channel.receive() })
        {
            received += bytes
        }
        try await rest
        #expect(received == Self.pattern)

        let sending = Task { try await channel.send(Self.pattern) }
        #expect(try await socket.receive(exactly: Self.pattern.count) == Self.pattern)
        try await sending.value
    }

    @Test("a simulated channel that cannot be opened is refused with the reason")
    func refusals() async throws {
        let setting = try await Setting()
        #expect(await setting.failure(0x80) == "ECONNREFUSED")
        #expect(await setting.failure(0) == "EINVAL")
        #expect(await setting.failure(0x100) == "EINVAL")
        let (psm, _) = try setting.served(0x95)
        #expect(psm == 0x95)
        #expect(throws: VirtualChannelError.psmInUse) { try setting.sink.serveChannels(psm: 0x95) { _ in } }
        #expect(await setting.failure(0x95) == "none")
        setting.sink.stopServingChannels(psm: 0x95)
        #expect(await setting.failure(0x95) == "ECONNREFUSED")
        try await setting.client.device("Disconnect", BusClient.sink)
        #expect(await setting.failure(0x95) == "ENOTCONN")
        setting.simulator.setPowered(false)
        #expect(await setting.failure(0x95) == "EHOSTUNREACH")
    }

    @Test("a pairing that fails ends the link", arguments: [true, false])
    func pairingFails(hasAgent: Bool) async throws {
        let setting = try await Setting()
        if hasAgent {
            try await setting.client.beAgent()
            setting.sink.setPairing(.reject)
        }
        let (psm, _) = try setting.served(security: .encrypted)
        #expect(await setting.failure(psm) == "ECONNABORTED")
        #expect(!setting.sink.isConnected)
    }

    @Test("a channel outlives bluetoothd, and keeps its link until it ends")
    func daemonCrashes() async throws {
        let setting = try await Setting()
        let (psm, channels) = try setting.served()
        let socket = try await setting.connect(psm)
        let channel = try await channels.next("channel") { $0 }
        let heart = setting.simulator.add(.rigHeart())
        setting.simulator.remember(heart)
        try await setting.client.device("Connect")
        let events = EventLog<String>()
        setting.simulator.onEvent { events.append($0) }
        try await setting.simulator.restartDaemon()
        _ = try await events.next("end of the other link") { $0 == "heart disconnected 0x13" ? $0 : nil }
        #expect(setting.simulator.isDaemonRunning)
        try await channel.send([1])
        #expect(try await socket.receive() == [1] && setting.sink.isConnected)
        socket.close()
        #expect(await channel.waitForEnd() == .closedByPeer)
        try await eventually("the sink has no link") { !setting.sink.isConnected }
    }

    @Test("a channel that needs encryption pairs, whichever side asks for it", arguments: [true, false])
    func encryption(byClient: Bool) async throws {
        let setting = try await Setting()
        try await setting.client.beAgent()
        let (psm, _) = try setting.served(security: byClient ? .none : .encrypted)
        let socket = try await setting.connect(psm, encrypted: byClient)
        #expect(setting.client.lines.contains("agent: RequestAuthorization"))
        #expect(try socket.sendWhatFits([1]) == 1)
        setting.client.forget()
        _ = try await setting.connect(psm, encrypted: byClient)
        #expect(!setting.client.lines.contains("agent: RequestAuthorization"), "it is encrypted already")
    }

    enum Cause: CaseIterable {
        case peripheral, client, vanished, removed, poweredOff, unplugged, suspended, forgotten
        case daemonStopped
    }

    @Test("a channel ends with its link; what had arrived can be read", arguments: Cause.allCases)
    func linkEnds(_ cause: Cause) async throws {
        let setting = try await Setting()
        let (psm, channels) = try setting.served()
        let socket = try await setting.connect(psm)
        let channel = try await channels.next("channel") { $0 }
        try await channel.send([1, 2, 3])
        let simulator = setting.simulator
        switch cause {
        case .peripheral: setting.sink.disconnect()
        case .client: try await setting.client.device("Disconnect", BusClient.sink)
        case .vanished: setting.sink.vanish()
        case .removed: simulator.remove(setting.sink)
        case .poweredOff: simulator.setPowered(false)
        case .unplugged: simulator.unplugAdapter()
        case .suspended: simulator.suspend()
        case .forgotten: simulator.forgetDevice(setting.sink)
        case .daemonStopped: simulator.stopDaemon()
        }
        #expect(await channel.waitForEnd() == .linkLost)
        #expect(try await socket.receiveAll() == [1, 2, 3])
        #expect(await channel.receive() == nil)
        #expect(setting.sink.channels.isEmpty)
    }

    @Test("nothing moves while a device is out of range")
    func outOfRange() async throws {
        let setting = try await Setting()
        setting.simulator.timing.supervisionTimeout = .seconds(60)
        let (psm, channels) = try setting.served()
        let socket = try await setting.connect(psm)
        let channel = try await channels.next("channel") { $0 }
        setting.sink.vanish()
        let order = EventLog<String>()
        Task { order.append("received \(await channel.receive() ?? [])") }
        try await socket.send([1])
        try await setting.client.device("Connect", BusClient.sink)
        order.append("returns")
        setting.sink.comeBack()
        #expect(try await order.next("first") { $0 } == "returns")
        #expect(try await order.next("second") { $0 } == "received [1]")
    }

    @Test("Listen: PSMs from 0x80 on, as long as any process has the socket")
    func psms() async throws {
        let simulator = try await Simulator()
        let client = try await BusClient(simulator.busAddress)
        func failure(_ psm: UInt16) async -> String {
            do {
                _ = try await Self.listen(client, psm)
                return "none"
            } catch BusError.remote(let name, _) {
                return name
            } catch {
                return "\(error)"
            }
        }
        let (first, psm) = try await Self.listen(client)
        #expect(psm == 0x80)
        let (second, next) = try await Self.listen(client)
        #expect(next == 0x81)
        #expect(await failure(0x80) == "org.bluezkit.Simulator.Error.EADDRINUSE")
        #expect(await failure(0x7F) == "org.bluezkit.Simulator.Error.EACCES")
        #expect(await failure(0x100) == "org.bluezkit.Simulator.Error.EINVAL")
        try await simulator.restartDaemon()
        #expect(await failure(0x80) == "org.bluezkit.Simulator.Error.EADDRINUSE", "the kernel's, not bluetoothd's")
        first.close()
        #expect(try await Self.listen(client, 0x80).1 == 0x80)
        var all = [second]
        for _ in 0..<127 { all.append(try await Self.listen(client).0) }
        #expect(await failure(0) == "org.bluezkit.Simulator.Error.EINVAL")
    }

    @Test("a central opens a channel to a published PSM; the listener sees its address")
    func central() async throws {
        let (simulator, app, listener, psm) = try await Self.published()
        let central = simulator.central()
        let channel = try await central.openChannel(psm)
        let (socket, name) = try await listener.accept()
        #expect(name.hasPrefix("bluezkit-l2cap/") && name.hasSuffix("/F0:F1:F2:00:00:04/random"), "\(name)")
        #expect(channel.peer == Self.adapter && central.channels.count == 1)
        try await channel.send([1, 2])
        #expect(try await socket.receive(exactly: 2) == [1, 2])
        try await socket.send([3])
        #expect(await channel.receive() == [3])
        try central.disconnect()
        #expect(try await socket.receiveAll().isEmpty)
        #expect(await channel.waitForEnd() == .linkLost)

        _ = try await central.connect(to: Self.adapter)
        listener.close()
        // The message that brought the listener has a copy of it, which is closed some moments later.
        let deadline = ContinuousClock.now + .seconds(world_deadline)
        var refusal: VirtualChannelError?
        while refusal != .refused(result: 0x0002), ContinuousClock.now < deadline {
            do {
                _ = try await central.openChannel(psm)
            } catch let error as VirtualChannelError {
                refusal = error  // another one as long as channels wait to be accepted
            }
        }
        #expect(refusal == .refused(result: 0x0002))
        withExtendedLifetime(app) {}
    }

    @Test("a central pairs for a PSM that demands encryption, or is refused")
    func centralPairs() async throws {
        let (simulator, app, listener, psm) = try await Self.published(encrypted: true)
        let central = simulator.central()
        await #expect(throws: VirtualChannelError.refused(result: 0x0008)) {
            try await central.openChannel(psm, pairs: false)
        }
        await #expect(throws: VirtualCentralError.pairingFailed) { try await central.openChannel(psm) }
        let agent = try await BusClient(simulator.busAddress)
        try await agent.beAgent()
        let channel = try await central.openChannel(psm)
        #expect(agent.lines.contains("agent: RequestAuthorization"))
        let (socket, _) = try await listener.accept()
        try await channel.send([1])
        #expect(try await socket.receive() == [1])
        withExtendedLifetime(app) {}
    }

    @Test("more connections than a listener has room for are refused")
    func backlog() async throws {
        let (simulator, app, listener, psm) = try await Self.published()
        var channels: [VirtualChannel] = []
        var last = simulator.central()
        await #expect(throws: VirtualChannelError.refused(result: 0x0004)) {
            while channels.count < 1000 {
                // A link has room for 64 channels.
                if channels.count % 60 == 59 {
                    last = simulator.central(2 + channels.count / 60)
                    _ = try await last.connect(to: Self.adapter)
                }
                channels.append(try await last.openChannel(psm))
            }
        }
        #expect(channels.count > 64)
        let (socket, _) = try await listener.accept()
        channels.append(try await last.openChannel(psm))
        withExtendedLifetime((app, socket)) {}
    }

    @Test("a central opens channels to a peripheral, and an adapter's client to another's")
    func otherPairs() async throws {
        let simulator = try await Simulator(adapterAddresses: [Self.adapter, "00:B1:5E:00:00:02"])
        let sink = simulator.add(.rigSink())
        try sink.serveChannels(psm: 0x80) { await $0.echo() }
        let central = simulator.central()
        _ = try await central.connect(to: sink.address)
        let channel = try await central.openChannel(0x80)
        try await channel.send([1])
        #expect(await channel.receive() == [1])
        channel.close()

        let app = try await BusServer(simulator.busAddress)
        try app.service("/app/s", "180f")
        try await app.register()
        try await app.advertise(["Type": .string("peripheral"), "Discoverable": .bool(true)])
        let (listener, psm) = try await Self.listen(app.client)
        let client = try await BusClient(simulator.busAddress)
        let other = "/org/bluez/hci1/dev_00_B1_5E_00_00_01"
        try await client.call("/org/bluez/hci1", "org.bluez.Adapter1", "StartDiscovery")
        #expect(await client.waits { $0.contains { $0.hasPrefix("+ hci1/dev_00_B1_5E_00_00_01") } })
        try await client.device("Connect", other)
        let socket = try ByteSocket(
            try await client.call(
                "/org/bluez/hci1", "org.bluezkit.Simulator.L2CAP1", "Connect",
                .path(try BusServer.path(other)), .uint16(UInt16(psm)), .bool(false)
            ).first)
        let (accepted, name) = try await listener.accept()
        #expect(name.hasSuffix("/00:B1:5E:00:00:02/public"))
        async let sending: Void = socket.send(Self.pattern)
        #expect(try await accepted.receive(exactly: Self.pattern.count) == Self.pattern)
        try await sending
        try await accepted.send([5])
        #expect(try await socket.receive(exactly: 1) == [5])
        accepted.close()
        #expect(try await socket.receiveAll().isEmpty)
    }

    @Test("a link has room for 64 channels, and 1,000 one after the other leave no descriptor")
    func many() async throws {
        let setting = try await Setting()
        let (psm, channels) = try setting.served()
        let before = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count
        for round in 0..<16 {
            var sockets: [ByteSocket] = []
            for _ in 0..<64 { sockets.append(try await setting.connect(psm)) }
            if round == 0 { #expect(await setting.failure(psm) == "ECONNREFUSED") }
            for index in sockets.indices {
                let channel = try await channels.next("channel") { $0 }
                if (round + index) % 2 == 0 { channel.close() } else { sockets[index % sockets.count].close() }
            }
            sockets = []
            try await setting.sink.waitForNoChannels()
        }
        channels.forget()
        let after = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count
        #expect(after < before + 50, "\(before) → \(after)")  // other tests run at the same time
    }

    @Test("SHA-256 is that of FIPS 180-4, whatever the pieces")
    func hash() {
        func text(_ pieces: [[UInt8]]) -> String {
            var hash = SHA256()
            for piece in pieces { hash.update(piece) }
            return hash.digest.map { String(format: "%02x", $0) }.joined()
        }
        #expect(text([]) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
        #expect(
            text([Array("a".utf8), Array("bc".utf8)])
                == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
        #expect(
            text([Array("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq".utf8)])
                == "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1")
        #expect(
            text((0..<1000).map { _ in [UInt8](repeating: 0x61, count: 1000) })
                == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0")
    }

    @Test("the end of the simulator ends channels")
    func simulatorEnds() async throws {
        var simulator: Simulator? = try await Simulator()
        let sink = VirtualPeripheral.rigSink()
        simulator?.add(sink)
        let central = try #require(simulator?.central())
        try sink.serveChannels(psm: 0x80) { _ in }
        _ = try await central.connect(to: sink.address)
        let channel = try await central.openChannel(0x80)
        simulator = nil
        #expect(await channel.waitForEnd() == .linkLost)
    }
}

extension VirtualPeripheral {
    fileprivate func waitForNoChannels() async throws {
        try await eventually("no channel is open") { channels.isEmpty }
    }
}
