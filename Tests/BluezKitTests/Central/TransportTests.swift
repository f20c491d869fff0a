import BluezKitSimulator
import CoreBluetooth
import BluezDBus
import Foundation
import Testing

@testable import BluezKit
@testable import BluezKitRestore

/// Unusual kinds of buses, and how an app behaves when its bus is lost.
@Suite struct TransportTests {
    @Test("D6 RW-8 over tcp, which cannot transfer descriptors, notifications and writes without response use messages")
    func tcp() async throws {
        let bus = try ConfiguredBus(listen: ["tcp:host=127.0.0.1,port=0", "unix:path=DIR/bus"])
        let simulator = try await Simulator(options: .busy, address: try bus.address("unix:").rawValue)
        let device = simulator.add(.rigSink())
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

    @Test("ST-6 the bus itself is lost and comes back: resetting, then powered on, and everything works again")
    func busRestart() async throws {
        let host = Host()
        try await host.start()
        let central = Central(host.world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        try await central.connect(heart)
        host.kill()
        try await central.next("resetting") { if case .state(.resetting) = $0 { true } else { nil } }
        #expect(heart.state == .disconnected)
        try await host.start()
        try await central.powerOn()
        let again = try await central.find("Rig Heart")
        try await central.connect(again)
        #expect(try await central.discoverServices(again).count == 3)
        #expect(central.count { if case .disconnected = $0 { true } else { false } } == 0)
    }

    enum Resuming: CaseIterable { case byIdentifier, byOption }

    @Test(
        "D10 ST-6 O-44 the bus is restarted: a manager that resumes has scan and connects again, another one nothing",
        arguments: Resuming.allCases)
    func busRestartCentral(_ kind: Resuming) async throws {
        let host = Host()
        let directory = try TemporaryDirectory()
        try await host.start(sink: false)
        let resuming = Central(host.world, options: options(kind, .central, directory))
        let other = Central(host.world)
        var hearts: [CBPeripheral] = []
        for central in [resuming, other] {
            try await central.powerOn()
            hearts.append(try await central.find("Rig Heart"))
        }
        for (central, heart) in zip([resuming, other], hearts) {
            try await central.connect(heart)
            let beat = try await central.characteristic(CBUUID(string: "2A37"), of: CBUUID(string: "180D"), on: heart)
            #expect(try await central.setNotify(true, beat) == nil)
            let sink = try #require(central.manager.retrievePeripherals(withIdentifiers: [Self.sink]).first)
            central.keep(sink)
            central.manager.connect(sink)
            central.manager.scanForPeripherals(withServices: [CBUUID(string: "1815")])
            central.forgetRecords()
        }
        host.kill()
        for (central, heart) in zip([resuming, other], hearts) {
            let isScanning = try await central.nextRecord("resetting") {
                if case .state(.resetting) = $0.event { $0.isScanning } else { nil }
            }
            #expect(isScanning == (central === resuming))
            #expect(heart.state == (central === resuming ? .connecting : .disconnected) && heart.services == nil)
        }
        let simulator = try await host.start()
        simulator.add(
            VirtualPeripheral(
                "F0:00:00:00:00:01", VirtualAdvertisement(localName: "Beacon", serviceUUIDs: ["1815"])))
        try await other.powerOn()
        try await resuming.powerOn()
        var awaited: Set<String> = ["heart", "sink", "Beacon"]
        while !awaited.isEmpty {
            let come = try await resuming.next("\(awaited)") { event -> String? in
                switch event {
                case .connected(hearts[0]): "heart"
                case .connected(let peripheral) where peripheral.identifier == Self.sink: "sink"
                case .discovered(let peripheral, _, _): peripheral.name
                default: nil
                }
            }
            #expect(awaited.remove(come) != nil, "\(come)")
        }
        // When the link is up, everything is requested again.
        let beat = try await resuming.characteristic(
            CBUUID(string: "2A37"), of: CBUUID(string: "180D"), on: hearts[0])
        #expect(!beat.isNotifying)
        #expect(try await resuming.setNotify(true, beat) == nil)
        #expect(resuming.count { if case .disconnected = $0 { true } else { false } } == 0)
        // The other one was informed of states only (there may be no adapter for a while), and its objects are no
        // longer valid. A beat may have come before the bus was gone.
        let told = other.events.drop { if case .state(.resetting) = $0 { false } else { true } }
        #expect(!other.manager.isScanning)
        #expect(told.count > 1 && told.allSatisfy { if case .state = $0 { true } else { false } }, "\(told)")
        other.manager.connect(hearts[1])
        #expect(hearts[1].state == .disconnected)
        let again = try #require(other.manager.retrievePeripherals(withIdentifiers: [hearts[1].identifier]).first)
        #expect(again !== hearts[1])
        try await other.connect(again)
    }

    @Test(
        "D10 ST-6 the bus is restarted: services and advertisement return only for a manager that resumes",
        arguments: Resuming.allCases)
    func busRestartPeripheral(_ kind: Resuming) async throws {
        let host = Host()
        let directory = try TemporaryDirectory()
        try await host.start()
        let resuming = Publisher(host.world, options: options(kind, .peripheral, directory))
        let other = Publisher(host.world)
        let beat = local(0x41, [.read, .notify])
        for (publisher, service) in [(resuming, localService(0x40, [beat])), (other, localService(0x42, []))] {
            try await publisher.powerOn()
            #expect(try await publisher.add(service) == nil)
            let name = publisher === resuming ? "Kit" : "Other"
            #expect(try await publisher.advertise([CBAdvertisementDataLocalNameKey: name]) == nil)
        }
        host.kill()
        for publisher in [resuming, other] {
            let isAdvertising = try await publisher.nextRecord("resetting") {
                if case .state(.resetting) = $0.event { $0.isAdvertising } else { nil }
            }
            #expect(isAdvertising == (publisher === resuming))
        }
        let simulator = try await host.start()
        try await other.powerOn()
        try await resuming.powerOn()
        _ = await simulator.waitForCalls("RegisterAdvertisement")
        try await eventually("it is on the air") {
            try await simulator.control("central advertisement 00:B1:5E:00:00:01").contains("name=Kit")
        }
        try await simulator.control("central connect 00:B1:5E:00:00:01")
        let services = try await simulator.control("central services")
        #expect(services.contains(sinkUUID(0x40).line) && !services.contains(sinkUUID(0x42).line))
        try await simulator.control("central subscribe \(beat.uuid.line)")
        let (_, characteristic) = try await resuming.nextSubscription()
        #expect(characteristic === beat && resuming.manager.isAdvertising && !other.manager.isAdvertising)
        #expect(simulator.calls("RegisterAdvertisement").count == 1)
        // Nothing is reported twice.
        for publisher in [resuming, other] {
            #expect(publisher.count { if case .added = $0 { true } else { false } } == 1)
            #expect(publisher.count { if case .advertising = $0 { true } else { false } } == 1)
        }
    }

    @Test(
        "D10 R-7 the bus is restarted while the app is not running: a connected peripheral is connecting, and connects")
    func busRestartWhileDead() async throws {
        let host = Host()
        let directory = try TemporaryDirectory()
        let heart = Scenarios.RestorationScenarios.heart
        let arguments = ["--restore", "app", "--state-dir", directory.path]
        try await host.start()
        let probe = try Probe(host.world, arguments)
        try await probe.next("state poweredOn")
        probe.send("scan all")
        probe.send("connect \(heart)")
        try await probe.next("connected \(heart)")
        try await probe.kill()
        host.kill()
        try await host.start()
        let again = try Probe(host.world, arguments)
        try await again.next("restored", "scanning=true", "\(heart):connecting:-")
        try await again.next("state poweredOn")
        try await again.next("connected \(heart)", "same=true")
        #expect(!again.callbacks.contains("disconnected"))
    }

    private static var sink: UUID { DeviceIdentity(address: 0xF0F1_F200_0002, isRandom: true).identifier }

    private func options(_ kind: Resuming, _ role: Snapshot.Role, _ directory: TemporaryDirectory) -> [String: Any] {
        switch kind {
        case .byOption: [BluezManagerOptionResumeAfterResetKey: true]
        case .byIdentifier:
            [
                role == .central
                    ? CBCentralManagerOptionRestoreIdentifierKey : CBPeripheralManagerOptionRestoreIdentifierKey: "app",
                BluezManagerOptionStateDirectoryKey: directory.path,
            ]
        }
    }
}

/// A bus that is killed and started again at its address, each time with a new bluetoothd and new peripherals.
private final class Host: @unchecked Sendable {  // holds: used by one test, step by step
    private let address = "unix:abstract=bluezkit-test-\(UUID().uuidString)"
    private var bus: ConfiguredBus?
    private var simulator: Simulator?
    private let times: ShortTimes
    var world: OptionsWorld { OptionsWorld([BluezManagerOptionBusAddressKey: address]) }

    init() { times = ShortTimes(on: BusAddress(address)) }

    @discardableResult
    func start(sink: Bool = true) async throws -> Simulator {
        // The old daemon holds the address until it has ended.
        let deadline = ContinuousClock.now + .seconds(world_deadline)
        while bus == nil {
            do { bus = try ConfiguredBus(listen: [address]) } catch {
                guard ContinuousClock.now < deadline else { throw error }
            }
        }
        let simulator = try await Simulator(options: .busy, address: address)
        simulator.add(.rigHeart())
        if sink { simulator.add(.rigSink()) }
        self.simulator = simulator
        return simulator
    }

    /// The bus exits, and bluetoothd with it.
    func kill() { (bus, simulator) = (nil, nil) }
}
