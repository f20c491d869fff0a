import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

@Suite("Link model: time on the air")
struct LinkModelTests {
    private func kilobits(_ usage: LinkUsage) -> Double {
        Double(usage.bytesToPeripheral) * 8 / (usage.time / .seconds(1)) / 1000
    }

    @Test("each rung of Apple's ladder of 2017 follows from its parameters", arguments: 0..<7)
    func ladder(_ number: Int) throws {
        let rung = try #require(ThroughputRung.talk2017.dropFirst(number).first)
        let rate = kilobits(rung.send(1_000_000))
        #expect(abs(rate / rung.published - 1) < 0.15, "\(rung.name): \(rate) kbit/s")
        // The arithmetic of Docs/THROUGHPUT.md, as far as its digits go.
        let calculated = [2.667, 5.333, 37.33, 48.53, 136.5, 197.1, 394.1][number]
        #expect(abs(rate / calculated - 1) < 0.001, "\(rung.name): \(rate) kbit/s")
    }

    @Test("the talk's first and last rung: 1 MB takes about 3,000 s, and 20 s")
    func seconds() {
        let times = ThroughputRung.talk2017.map { $0.send(1_000_000).time / .seconds(1) }
        #expect(times.count == 7)
        #expect(abs(times[0] - 3000) < 1)
        #expect(abs(times[6] - 20.3) < 0.1)
    }

    @Test(
        "a packet takes as long as the Core Specification says",
        arguments: [
            (LinkParameters.PHY.le1M, 0, 80), (.le1M, 27, 328), (.le1M, 251, 2120),
            (.le2M, 0, 44), (.le2M, 251, 1064),
            (.codedS8, 0, 720), (.codedS8, 251, 17_040), (.codedS2, 0, 462), (.codedS2, 251, 4542),
        ])
    func airTime(_ phy: LinkParameters.PHY, _ payload: Int, _ microseconds: Int) {
        var parameters = LinkParameters()
        (parameters.phy, parameters.dataLength) = (phy, 251)
        guard payload > 0 else {
            // The peripheral's empty packet cannot be seen alone: it answers one of a single byte.
            var link = LinkModel(parameters)
            link.stream(1, from: .central)  // 3 bytes with the SDU's length, and a header of 4
            let one = parameters
            var mirrored = LinkModel(one)
            mirrored.stream(1, from: .peripheral)
            #expect(link.elapsed == mirrored.elapsed)
            let byte = [LinkParameters.PHY.le1M: 8, .le2M: 4, .codedS2: 16, .codedS8: 64][phy] ?? 0
            #expect(link.elapsed == .microseconds(2 * microseconds + 150 + (7 + 4) * byte))
            return
        }
        parameters.mtu = 517
        var link = LinkModel(parameters)
        link.writeWithoutResponse(payload - 7)
        let empty = [LinkParameters.PHY.le1M: 80, .le2M: 44, .codedS2: 462, .codedS8: 720][phy] ?? 0
        #expect(link.elapsed == .microseconds(microseconds + 150 + empty))
    }

    @Test("packets fill an event up to 150 µs before the next one, and not beyond")
    func fillsEvents() {
        var parameters = LinkParameters()
        parameters.interval = .microseconds(7500)
        var link = LinkModel(parameters)
        // 708 µs each with the pause after them; the tenth ends 7500 - 7080 + 150 = 570 µs before the next event.
        for _ in 0..<10 { link.writeWithoutResponse(20) }
        #expect(link.events == 1)
        #expect(link.elapsed == .microseconds(10 * 708 - 150))
        link.writeWithoutResponse(20)
        #expect(link.events == 2)
        #expect(link.elapsed == .microseconds(7500 + 708 - 150))
    }

    @Test("a response comes in the next event, and the next request in the one after it")
    func requests() {
        var link = LinkModel()
        link.write(20)
        #expect(link.events == 2)
        link.read(10)
        #expect(link.events == 4)
        link.indicate(20)
        #expect(link.events == 5, "it goes along with the last response")
        link.write(30)  // two prepared writes of 18 and 12 bytes, and the execution
        #expect(link.events == 10)
        #expect(link.bytesSent(by: .central) == 50)
        #expect(link.bytesSent(by: .peripheral) == 30)
    }

    @Test("both sides share the events")
    func duplex() {
        var parameters = LinkParameters()
        parameters.eventLength = .milliseconds(5)
        var link = LinkModel(parameters)
        for _ in 0..<700 {
            link.writeWithoutResponse(20)
            link.notify(20)
        }
        // 2 × 328 + 300 µs: five in an event instead of seven.
        #expect(link.events == 140)
    }

    @Test("a stream takes the same time however it is divided")
    func division() {
        var parameters = LinkParameters()
        (parameters.dataLength, parameters.interval) = (251, .milliseconds(15))
        var whole = LinkModel(parameters)
        whole.stream(100_000, from: .central)
        var generator = SystemRandomNumberGenerator()
        for _ in 0..<20 {
            var parts = LinkModel(parameters)
            var rest = 100_000
            while rest > 0 {
                let part = min(rest, .random(in: 1...3000, using: &generator))
                parts.stream(part, from: .central)
                rest -= part
            }
            #expect(parts.elapsed == whole.elapsed)
        }
    }

    @Test("few credits slow a channel down, many do not", arguments: [1, 2, 3, 8, 64, 1000])
    func credits(_ credits: Int) throws {
        var parameters = try #require(ThroughputRung.talk2017.last).parameters
        parameters.credits = credits
        var link = LinkModel(parameters)
        link.stream(739_000, from: .central)
        // 3,000 frames, three in an event at best. With one credit, a frame and its credit take two events.
        switch credits {
        case 1: #expect(link.events == 5999)
        case 2, 3: #expect(link.events > 1001)
        default: #expect(link.events == 1000)
        }
    }

    @Test("parameters out of range end neither the program nor the operation")
    func extremes() {
        for interval in [Duration.zero, .microseconds(1), .seconds(4)] {
            for length in [-1, 0, 1, 251, 100_000] {
                var parameters = LinkParameters()
                (parameters.interval, parameters.dataLength) = (interval, length)
                (parameters.mtu, parameters.sduLength, parameters.credits) = (length, length, length)
                (parameters.packetsPerEvent, parameters.eventLength) = (length, .zero)
                parameters.framePayload = length
                for phy in LinkParameters.PHY.allCases {
                    parameters.phy = phy
                    var link = LinkModel(parameters)
                    link.write(100)
                    link.writeWithoutResponse(100)
                    link.notify(100)
                    link.indicate(100)
                    link.read(100)
                    link.stream(100, from: .central)
                    link.stream(100, from: .peripheral)
                    #expect(link.elapsed > .zero)
                }
            }
        }
    }

    // MARK: In the simulator

    /// An app writes 1,000 values of 20 bytes to a simulated peripheral.
    /// - Returns: What the link has carried meanwhile.
    private func transfer(_ type: CBCharacteristicWriteType, _ parameters: LinkParameters) async throws -> LinkUsage {
        // Calm: another program's operations on the link would take time on the air.
        let world = try await SimulatedWorld(.calm)
        let arrivals = EventLog<Int>()
        let device = VirtualPeripheral(
            "F0:F1:F2:00:00:09", VirtualAdvertisement(localName: "Receiver", serviceUUIDs: ["1815"]),
            services: [
                VirtualService(
                    "1815",
                    [
                        VirtualCharacteristic(
                            "2A56", [.write, .writeWithoutResponse], write: { arrivals.append($0.count) })
                    ])
            ])
        device.linkParameters = parameters
        world.simulator.add(device)
        let central = Central(world)
        try await central.powerOn()
        let peripheral = try await central.find("Receiver")
        try await central.connect(peripheral)
        let characteristic = try await central.characteristic(
            CBUUID(string: "2A56"), of: CBUUID(string: "1815"), on: peripheral)
        let before = try #require(device.linkUsage)
        await central.perform {
            for index in 0..<1000 {
                let value = Data(repeating: UInt8(truncatingIfNeeded: index), count: 20)
                peripheral.writeValue(value, for: characteristic, type: type)
            }
        }
        var missing = 1000
        try await arrivals.next("everything") { _ -> Bool? in
            missing -= 1
            return missing == 0 ? true : nil
        }
        let after = try #require(device.linkUsage)
        // On the app's queue, as apps do it: not while a callback says that there is room.
        await central.perform { central.manager.cancelPeripheralConnection(peripheral) }
        try await central.next("disconnection") { if case .disconnected(peripheral, _, nil) = $0 { true } else { nil } }
        #expect(device.linkUsage == after, "it stays when the link has ended")
        return after - before
    }

    @Test("minutes on a simulated link take an app milliseconds, and the same virtual time in every run")
    func virtualTime() async throws {
        let rungs = ThroughputRung.talk2017
        for (rung, type) in [(rungs[0], CBCharacteristicWriteType.withResponse), (rungs[2], .withoutResponse)] {
            let first = try await transfer(type, rung.parameters)
            #expect(abs(kilobits(first) / rung.published - 1) < 0.15, "\(kilobits(first)) kbit/s")
            for _ in 0..<2 { #expect(try await transfer(type, rung.parameters) == first) }
        }
    }

    /// An app sends 200,000 bytes over a channel, in pieces of random length.
    private func stream(_ parameters: LinkParameters) async throws -> LinkUsage {
        let world = try await SimulatedWorld(.calm)
        world.sink.linkParameters = parameters
        let arrivals = EventLog<Int>()
        let psm = try world.sink.serveChannels { channel in
            while let bytes = await channel.receive() { arrivals.append(bytes.count) }
        }
        let central = Central(world)
        try await central.powerOn()
        let sink = try await central.find("Rig Sink")
        try await central.connect(sink)
        sink.openL2CAPChannel(psm)
        let user = ChannelUser(try await central.nextChannel())
        let before = try #require(world.sink.linkUsage)
        var rest = 200_000
        while rest > 0 {
            let count = min(rest, .random(in: 1...9000))
            user.send(Data(count: count))
            rest -= count
        }
        var missing = 200_000
        try await arrivals.next("everything") { count -> Bool? in
            missing -= count
            return missing == 0 ? true : nil
        }
        return try #require(world.sink.linkUsage) - before
    }

    @Test("bytes of a channel take the same virtual time however they were written, and the rate of the talk")
    func channelTime() async throws {
        for rung in ThroughputRung.talk2017.suffix(2) {
            let first = try await stream(rung.parameters)
            #expect(first.bytesToPeripheral == 200_000)
            #expect(abs(kilobits(first) / rung.published - 1) < 0.15, "\(kilobits(first)) kbit/s")
            #expect(try await stream(rung.parameters) == first)
        }
    }
}
