import BluezKitSimulator
import CoreBluetooth
import DBus
import Foundation
import Testing

/// Buses of other kinds than the usual, and what becomes of an app when its bus goes.
@Suite struct TransportTests {
    @Test("D6 RW-8 over tcp, where no descriptor can pass, notifications and writes without response work by messages")
    func tcp() async throws {
        let bus = try ConfiguredBus(listen: ["tcp:host=127.0.0.1,port=0", "unix:path=DIR/bus"])
        let simulator = try await Simulator(address: try bus.address("unix:"))
        let device = simulator.add(.sink())
        let central = Central(OptionsWorld([BluezManagerOptionBusAddressKey: try bus.address("tcp:").rawValue]))
        try await central.powerOn()
        let sink = try await central.find("Rig Sink")
        try await central.connect(sink)
        let notifying = try await central.characteristic(sinkUUID(0x13), of: sinkUUID(1), on: sink)
        #expect(try await central.setNotify(true, notifying) == nil)
        device.notify(notifying.uuid.uuidString, [1, 2, 3])
        try await central.next("notification") {
            if case .value(notifying, Data([1, 2, 3]), nil) = $0 { true } else { nil }
        }
        let command = try await central.characteristic(sinkUUID(0x12), of: sinkUUID(1), on: sink)
        let counter = try await central.characteristic(sinkUUID(0x1C), of: sinkUUID(1), on: sink)
        for _ in 0..<200 { sink.writeValue(Data([1]), for: command, type: .withoutResponse) }
        #expect(try await central.read(counter).get().littleEndian == 200)
        #expect(simulator.calls("AcquireWrite").isEmpty && simulator.calls("WriteValue").count == 200)
    }

    @Test("ST-6 the bus itself goes and comes back: resetting, then powered on, and everything works again")
    func busRestart() async throws {
        let address = "unix:abstract=bluezkit-test-\(UUID().uuidString)"
        var bus: ConfiguredBus? = try ConfiguredBus(listen: [address])
        var simulator: Simulator? = try await Simulator(address: BusAddress(address))
        simulator?.add(.heart())
        let central = Central(OptionsWorld([BluezManagerOptionBusAddressKey: address]))
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        try await central.connect(heart)
        simulator = nil
        bus = nil
        try await central.next("resetting") { if case .state(.resetting) = $0 { true } else { nil } }
        #expect(heart.state == .disconnected)
        // The old daemon holds the address until it has ended.
        let deadline = ContinuousClock.now + .seconds(world_deadline)
        while bus == nil, ContinuousClock.now < deadline { bus = try? ConfiguredBus(listen: [address]) }
        simulator = try await Simulator(address: BusAddress(address))
        simulator?.add(.heart())
        try await central.powerOn()
        let again = try await central.find("Rig Heart")
        try await central.connect(again)
        #expect(try await central.discoverServices(again).count == 3)
        #expect(central.count { if case .disconnected = $0 { true } else { false } } == 0)
        withExtendedLifetime((bus, simulator)) {}
    }
}
