import BluezDBus
import BluezKitSimulator
import Foundation
import Testing

@Suite struct RecordingReplayTests {
    private static let recording = Recording(
        address: "F0:11:22:00:00:01", mtu: 100,
        advertisements: [
            .init(time: 0, rssi: -40, content: VirtualAdvertisement(localName: "One")),
            .init(time: 0.1, rssi: -70, content: VirtualAdvertisement(localName: "Two")),
        ],
        services: [
            .init(
                "180D",
                [
                    .init("2A37", .notify), .init("2A38", .read, value: [1]), .init("2A39", [.read, .write]),
                    .init("2A3A", .read, error: 5, descriptors: [.init("2901"), .init("2904", value: [4])]),
                ]),
            .init("1812", [.init("2A4D", .notify), .init("2A4D", .notify)]),
        ],
        notifications: [
            .init(time: 1, characteristic: "180D/2A37", value: [1]),
            .init(time: 1.01, characteristic: "180D/2A37", value: [2]),
            .init(time: 1.02, characteristic: "1812/2A4D#2", value: [9]),
            .init(time: 2, characteristic: "180D/2A37", value: [3]),
        ], writes: [.init(time: 1.5, characteristic: "180D/2A39", value: [7])])

    private struct World {
        let simulator: Simulator
        let device: VirtualPeripheral
        let central: VirtualCentral
        let events = EventLog<String>()

        init(_ pace: ReplayPace = .faster(10), _ recording: Recording = recording) async throws {
            simulator = try await Simulator()
            device = simulator.add(VirtualPeripheral(recording: recording, pace: pace, key: "it"))
            central = simulator.central()
            simulator.onEvent { [events] in events.append($0) }
            try await central.connect(to: device.address)
        }

        func notified(_ value: String) async throws {
            try await events.next("notification \(value)") {
                $0.hasPrefix("central notified") && $0.hasSuffix(" " + value) ? true : nil
            }
        }

        var values: [String] {
            events.all.filter { $0.hasPrefix("central notified") }.compactMap { $0.split(separator: " ").last }
                .map(String.init)
        }
    }

    @Test("notifications come in order; one that followed a write waits for it; a new subscription repeats them")
    func notifies() async throws {
        let world = try await World()
        try await world.central.subscribe("2A37")
        try await world.notified("01")
        try await world.notified("02")
        try await world.central.write([7], to: "2A39")
        try await world.notified("03")
        #expect(world.values == ["01", "02", "03"] && world.device.deviations == [])
        try await world.central.configure("2A37", 0)
        try await world.central.subscribe("2A37")
        // The write was made.
        for value in ["01", "02", "03"] { try await world.notified(value) }
        #expect(world.device.deviationCount == 0)
    }

    @Test("what the recording computer wrote on its own, to the Generic Attribute service, is not awaited from the app")
    func genericAttribute() async throws {
        var recording = Self.recording
        recording.services.append(.init("1801", [.init("2B29", [.read, .write])]))
        recording.writes = [.init(time: 0.2, characteristic: "1801/2B29", value: [5])]
        let world = try await World(.faster(10), recording)
        try await world.central.subscribe("2A37")
        try await world.notified("03")
        #expect(world.values == ["01", "02", "03"])
    }

    @Test("a write that was not recorded is accepted and counted, and what waits for one follows")
    func deviates() async throws {
        let world = try await World()
        try await world.central.subscribe("2A37")
        try await world.notified("02")
        try await world.central.write([8], to: "2A39")
        try await world.notified("03")
        #expect(world.device.deviations == [.write(characteristic: "180D/2A39", value: [8])])
        #expect(try await world.central.read("2A39") == [8], "what was written is read")
        try await world.central.write([7], to: "2A39")
        #expect(world.device.deviationCount == 1)
        #expect(world.events.all.contains("it deviates write 180D/2A39 08"))
    }

    @Test("recorded values and errors are the answers; what was never read is refused with 0x0E, and counted")
    func reads() async throws {
        let world = try await World()
        #expect(try await world.central.read("2A38") == [1])
        await #expect(throws: ATTFailure.insufficientAuthentication) { try await world.central.read("2A3A") }
        #expect(world.device.deviations == [])
        await #expect(throws: ATTFailure.unlikely) { try await world.central.read("2A39") }
        #expect(world.device.deviations == [.read("180D/2A39")])
        #expect(world.device.mtu == 100)
    }

    @Test("step by step each call sends the next notification, of the right one of two equal characteristics")
    func steps() async throws {
        let world = try await World(.stepwise)
        #expect(!world.device.replayNext(), "no central is subscribed")
        try await world.central.subscribe("2A37")
        #expect(world.device.replayNext() && world.device.replayNext())
        #expect(world.values == ["01", "02"])
        #expect(!world.device.replayNext(), "1812/2A4D#2 has no subscriber")
        #expect(
            !VirtualPeripheral.heartRateSensor().replayNext() && VirtualPeripheral.heartRateSensor().deviations == [])
    }

    @Test("advertisements are repeated in their order with their strengths; the name is that of the device")
    func advertises() async throws {
        let device = VirtualPeripheral(recording: Self.recording)
        var options = SimulatorOptions()
        options.duplicateFilter = .none
        let simulator = try await Simulator(options: options)
        simulator.add(device)
        let client = try await BusClient(simulator.busAddress)
        try await client.adapter("SetDiscoveryFilter", .options(["Transport": .string("le")]))
        try await client.adapter("StartDiscovery")
        #expect(
            await client.waits { lines in
                lines.count { $0.contains("RSSI=-70") } >= 2 && lines.count { $0.contains("RSSI=-40") } >= 2
            })
    }

    @Test("a recording without advertisements is found by its name and its services")
    func silent() {
        let device = VirtualPeripheral(
            recording: Recording(
                name: "Still", services: [.init("1800"), .init("180D"), .init("180A", isPrimary: false)]))
        #expect(device.advertisement.localName == "Still" && device.address == "F0:5E:00:00:00:01")
        #expect(device.advertisement.serviceUUIDs == ["0000180d-0000-1000-8000-00805f9b34fb"])
    }

    @Test("services that include each other, or come before those that they include, are replayed")
    func includes() async throws {
        let services: [Recording.Service] = [
            .init("180D", includes: ["180A"]), .init("180A", isPrimary: false), .init("1812", includes: ["180F"]),
            .init("180F", includes: ["1812"]),
        ]
        let world = try await World(.recorded, Recording(services: services))
        let client = try await BusClient(world.simulator.busAddress)
        world.simulator.remember(world.device)
        try world.central.disconnect()
        let path = "/org/bluez/hci0/dev_F0_5E_00_00_00_01"
        try await client.device("Connect", path)
        try await eventually("the services are known") {
            let objects = try await client.objects()
            return objects.values.contains { $0["org.bluez.GattService1"]?["Includes"]?.stringsValue?.isEmpty == false }
        }
    }
}
