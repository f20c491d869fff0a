import BluezKitSimulator
import BluezDBus
import Foundation
import Testing

@testable import BluezKit

/// What later versions of BlueZ do otherwise than 5.66.
@Suite struct NewerBlueZTests {
    // MARK: 5.87 crashes at the first advertisement of a scan with services

    @Test("SC-1 bluetoothd 5.87 survives a scan with services, and only devices with those are reported")
    func filteredScan() async throws {
        let world = try await SimulatedWorld(SimulatorOptions(version: .v5_87))
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart", services: [CBUUID(string: "180D")])
        try await central.connect(heart)
        #expect(world.simulator.calls("StartDiscovery").count > 0)
        #expect(central.count { if case .state(.resetting) = $0 { true } else { false } } == 0)
        #expect(central.count { if case .discovered(let found, _, _) = $0 { found != heart } else { false } } == 0)
    }

    @Test("D10 a bluetoothd of an unknown version that crashes of a scan with services gets a third one without them")
    func unknownVersion() async throws {
        var options = SimulatorOptions(version: .v5_87)
        options.modalias = "bluetooth:v0001p0001d0001"
        let world = try await SimulatedWorld(options)
        let central = Central(world)
        try await central.powerOn()
        for _ in 0..<2 {
            central.manager.scanForPeripherals(withServices: [CBUUID(string: "180D")])
            try await central.next("resetting") { if case .state(.resetting) = $0 { true } else { nil } }
            try await world.simulator.startDaemon()
            try await central.powerOn()
        }
        let heart = try await central.find("Rig Heart", services: [CBUUID(string: "180D")])
        try await central.connect(heart)
        #expect(central.count { if case .state(.resetting) = $0 { true } else { false } } == 2)
        try await LogCapture.shared.expect("ended twice in a row within seconds of a scan")
    }

    // MARK: Sockets for subscribers, from 5.76 on

    @Test("UP-9 an indication by socket counts until the central has confirmed it", arguments: [79, 80])
    func confirmation(minor: Int) async throws {
        let victim = try await Victim(version: BlueZVersion(5, minor))
        let manager = try #require(victim.publisher.manager)
        let socket = try #require(try await victim.fake.acquire(victim.path(victim.indicating)))
        defer { close(socket) }
        _ = try await victim.publisher.nextSubscription()
        func fill() -> Int {
            var sent = 0
            while sent < 1000, manager.updateValue(Data([1]), for: victim.indicating, onSubscribedCentrals: nil) {
                sent += 1
            }
            return sent
        }
        guard minor >= 80 else {
            // Nothing tells of a confirmation: what is in the socket is done.
            for _ in 0..<3 * UpdateWindow.limit {
                while !manager.updateValue(Data([1]), for: victim.indicating, onSubscribedCentrals: nil) {
                    try await victim.publisher.next("readiness") { if case .ready = $0 { true } else { nil } }
                }
            }
            return
        }
        #expect(fill() == UpdateWindow.limit)
        for _ in 0..<UpdateWindow.limit / 2 { #expect(send(socket, [1], 1, 0) == 1) }
        try await victim.publisher.next("readiness") { if case .ready = $0 { true } else { nil } }
        #expect(fill() == UpdateWindow.limit / 2)
        // The others end with the socket.
        shutdown(socket, Int32(SHUT_RDWR))
        try await victim.publisher.next("readiness") { if case .ready = $0 { true } else { nil } }
        _ = try await victim.publisher.nextUnsubscription()
    }

    /// A central that has subscribed by socket.
    private func subscription() async throws -> (
        SimulatedWorld, Publisher, CBMutableCharacteristic, CBCentral
    ) {
        let world = try await SimulatedWorld(SimulatorOptions(version: .v5_82))
        let publisher = Publisher(world)
        try await publisher.powerOn()
        let notifying = local(0x110, .notify)
        try await publisher.add(localService(0x100, [notifying]))
        try await publisher.advertise()
        try await world.connect()
        _ = try await world.control("central subscribe \(notifying.uuid.line)")
        return (world, publisher, notifying, try await publisher.nextSubscription().0)
    }

    @Test("ST-6 the sockets end before bluetoothd's name does: no didUnsubscribeFrom, only .resetting")
    func crash() async throws {
        let (world, publisher, _, _) = try await subscription()
        world.simulator.killDaemon()
        try await publisher.next("resetting") { if case .state(.resetting) = $0 { true } else { nil } }
        #expect(publisher.count { if case .unsubscribed = $0 { true } else { false } } == 0)
    }

    @Test("UP-7 a central that unsubscribes is reported, by the end of its socket")
    func unsubscription() async throws {
        let (world, publisher, characteristic, central) = try await subscription()
        _ = try await world.control("central unsubscribe \(characteristic.uuid.line)")
        let (left, _) = try await publisher.nextUnsubscription()
        #expect(left.identifier == central.identifier)
    }

    // MARK: Links

    @Test("RW-8 the MTU of a second link is the one that was exchanged, also if BlueZ was asked before")
    func mtu() async throws {
        var timing = SimulatorTiming.fast
        timing.serviceRediscovery = .milliseconds(300)
        let world = try await SimulatedWorld(SimulatorOptions(), timing: timing)
        let central = Central(world)
        try await central.powerOn()
        let sink = try await central.find("Rig Sink")
        try await central.connect(sink)
        let services = try await central.discoverServices(sink)
        #expect(!services.isEmpty)
        let limit = sink.maximumWriteValueLength(for: .withoutResponse)
        #expect(limit > 20)
        try await central.disconnect(sink)
        // Answered while the link is up, and nothing is exchanged yet.
        world.simulator.inject(
            SimulatorFault("org.freedesktop.DBus.Properties.GetAll", times: nil, .delay(.milliseconds(60))))
        try await central.connect(sink)
        _ = try await central.discoverServices(sink)
        #expect(sink.maximumWriteValueLength(for: .withoutResponse) == limit)
    }

    @Test(
        "CN-14 a refused pairing ends with the same error, whether or not BlueZ tells who ended the link",
        arguments: [SimulatorVersion.v5_66, .v5_83])
    func refusedPairing(version: SimulatorVersion) async throws {
        let world = try await SimulatedWorld(SimulatorOptions(version: version))
        let central = Central(world)
        try await central.powerOn()
        let (sink, secret) = try await Self.secret(central)
        central.forgetRecords()
        #expect((try await central.read(secret).failure as? CBATTError)?.code == .insufficientAuthentication)
        let end = try await central.next("disconnection") {
            if case .disconnected(sink, _, let error) = $0 { [error] } else { nil }
        }
        #expect((end[0] as? CBError)?.code == .encryptionTimedOut)
    }

    @Test(
        "CN-14 the bond is known when the value arrives that needed it, also where BlueZ announces it later",
        arguments: [SimulatorVersion.v5_66, .v5_82])
    func lateBond(version: SimulatorVersion) async throws {
        let world = try await SimulatedWorld(SimulatorOptions(version: version))
        let central = Central(world)
        try await central.powerOn()
        central.manager.pairing = .justWorks
        let (sink, secret) = try await Self.secret(central)
        _ = try await central.read(secret).get()
        try await expectAtOnce("it is bonded") { central.manager.retrieveBondedPeripherals() == [sink] }
    }

    private static func secret(_ central: Central) async throws -> (CBPeripheral, CBCharacteristic) {
        try await central.world.control("sink pairing justworks")
        let sink = try await central.find("Rig Sink")
        try await central.connect(sink)
        return (sink, try await central.characteristic(sinkUUID(0x16), of: sinkUUID(1), on: sink))
    }
}
