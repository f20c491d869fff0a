import BluezKitSimulator
import CoreBluetooth
import BluezDBus
import Foundation
import Testing

@testable import BluezKit

// A system bus refuses the calls of a connection that has 128 open ones, and the refusal was treated as absence: three
// known peripherals with 40 characteristics that were connected at the same time lost some of them without an error,
// discovery was never answered, and bonded peripherals were dropped from the preserved state. Now calls wait, refused
// or unanswered ones are repeated, and what remains unanswered is an error.
@Suite struct OpenCallTests {
    /// Four services with ten characteristics each.
    private func large(_ number: Int) -> VirtualPeripheral {
        let services = (0..<4).map { service in
            VirtualService(
                "F00\(service)",
                (0..<10).map { VirtualCharacteristic("FA\(service)\($0)", [.read, .notify], value: [UInt8($0)]) })
        }
        return VirtualPeripheral(
            "C0:00:00:00:01:\(hex(number))", VirtualAdvertisement(localName: "Large \(number)"), services: services)
    }

    private func hex(_ number: Int) -> String { (number < 16 ? "0" : "") + String(number, radix: 16, uppercase: true) }

    /// Of the characteristics that were found.
    private let paths = ProtectedBox<[String]>([])

    /// What the app finds of it: characteristics and descriptors.
    private func discoverAll(_ peripheral: CBPeripheral, _ central: Central) async throws -> (Int, Int) {
        var found = (0, 0)
        for service in try await central.discoverServices(peripheral) {
            for characteristic in try await central.discoverCharacteristics(service) {
                peripheral.discoverDescriptors(for: characteristic)
                try await central.next("descriptors") {
                    if case .descriptors(characteristic, nil) = $0 { true } else { nil }
                }
                let path = peripheral.path(of: characteristic)
                paths.withLock { $0.append(path) }
                found = (found.0 + 1, found.1 + (characteristic.descriptors?.count ?? 0))
            }
        }
        return found
    }

    /// Peripherals whose tables BlueZ knows, none of which is connected.
    private func known(_ count: Int, _ world: SimulatedWorld, _ central: Central) async throws -> [CBPeripheral] {
        try await central.powerOn()
        var peripherals: [CBPeripheral] = []
        for number in 0..<count {
            world.simulator.add(large(number))
            let peripheral = try await central.find("Large \(number)")
            try await central.connect(peripheral)
            #expect(try await discoverAll(peripheral, central) == (40, 40))
            try await central.disconnect(peripheral)
            peripherals.append(peripheral)
        }
        return peripherals
    }

    @Test("GD-1 known peripherals that are connected at the same time have all their attributes")
    func inOneGo() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        let peripherals = try await known(6, world, central)
        await central.perform { for peripheral in peripherals { central.manager.connect(peripheral) } }
        for _ in peripherals {
            let peripheral = try await central.next("connection") {
                if case .connected(let peripheral) = $0 { peripheral } else { nil }
            }
            central.keep(peripheral)
        }
        for peripheral in peripherals { #expect(try await discoverAll(peripheral, central) == (40, 40)) }
    }

    @Test(
        "attributes whose query is refused for a while are found in the end",
        arguments: [
            "LimitsExceeded", "NoReply",
        ])
    func refusedForAWhile(error: String) async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        let peripheral = try await known(1, world, central)[0]
        let effect = SimulatorFault.Effect.fail(name: "org.freedesktop.DBus.Error." + error, message: "")
        // The device, a service and a characteristic.
        let characteristic = try #require(paths.withLock { $0.first })
        let service = AttributeTable.service(of: characteristic)
        let device = try #require(ObjectPath(service)?.parent?.rawValue)
        for path in [device, service, characteristic] {
            for member in ["GetAll", "Introspect"] {
                world.simulator.inject(SimulatorFault(member, path: path, times: 3, effect))
            }
        }
        try await central.connect(peripheral)
        #expect(try await discoverAll(peripheral, central) == (40, 40))
    }

    @Test("GD-1 an attribute that cannot be queried makes discovery fail; the next discovery asks again")
    func refusedForEver() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        let peripheral = try await known(1, world, central)[0]
        let limit = "org.freedesktop.DBus.Error.LimitsExceeded"
        let path = try #require(world.simulator.calls("Connect").last?.path)
        world.simulator.inject(
            SimulatorFault("Introspect", path: path, times: nil, .fail(name: limit, message: "too many")))
        let session = central.manager.session
        session.queue.sync { session.blueZ.timing.daemon.busyRetry = .milliseconds(1) }
        try await central.connect(peripheral)
        peripheral.discoverServices(nil)
        let error = try await central.next("services") {
            if case .services(peripheral, let error) = $0 { [error] } else { nil }
        }
        #expect((error[0] as? CBError)?.code == .outOfSpace)
        #expect(peripheral.services == nil)
        world.simulator.clearFaults()
        #expect(try await discoverAll(peripheral, central) == (40, 40))
    }

    @Test("GD-1 attributes that BlueZ announces during the connect are read when the link is up")
    func toldDuringConnect() async throws {
        var timing = SimulatorTiming.fast
        timing.connectTimeout = .seconds(60)
        let world = try await SimulatedWorld(timing: timing)
        let (central, simulator) = (Central(world), world.simulator)
        let peripheral = try await known(1, world, central)[0]
        let path = try #require(simulator.calls("Connect").last?.path)
        let device = try #require(simulator.peripheral("C0:00:00:00:01:00"))
        device.advertise(false)
        let limit = "org.freedesktop.DBus.Error.LimitsExceeded"
        simulator.inject(SimulatorFault("Introspect", path: path, times: 3, .fail(name: limit, message: "too many")))
        let asked = simulator.calls("Introspect", path: path).count
        central.manager.connect(peripheral)
        _ = try #require(await simulator.waitForCalls("Introspect", path: path, count: asked + 4))
        device.advertise(true)
        try await central.next("connection") { if case .connected(peripheral) = $0 { true } else { nil } }
        #expect(try await discoverAll(peripheral, central) == (40, 40))
    }

    @Test(
        "R-16 a hundred preserved peripherals are queried at once, and a bonded one whose query is refused is kept",
        arguments: ["LimitsExceeded", "Failed"])
    func manyRestored(refusal: String) async throws {
        let world = try await SimulatedWorld()
        let directory = try TemporaryDirectory()
        let program = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
        let records = (0..<100).map { number -> String in
            let peripheral = large(number)
            world.simulator.add(peripheral)
            world.simulator.remember(peripheral, bonded: true)
            let identifier = "426C7A4B-0100-8000-8000-" + peripheral.address.filter { $0 != ":" }
            return """
                {"identifier":"\(identifier)","name":"D","adapter":"hci0","state":"connecting","isBonded":true,"options":{}}
                """
        }
        try """
        {"version":1,"role":"central","identifier":"many","app":"\(program)","boot":"x","saved":"2026-11-22T10:00:00Z",
        "peripherals":[\(records.joined(separator: ","))],"services":[]}
        """.write(toFile: directory.path + "/central-many.json", atomically: true, encoding: .utf8)
        let effect = SimulatorFault.Effect.fail(name: "org.freedesktop.DBus.Error.\(refusal)", message: "")
        for address in (0..<20).map({ large($0).address }) {
            let path = "/org/bluez/hci0/dev_" + address.replacing(":", with: "_")
            world.simulator.inject(SimulatorFault("GetAll", path: path, times: 1, effect))
        }
        let central = Central(
            world,
            options: [
                CBCentralManagerOptionRestoreIdentifierKey: "many",
                BluezManagerOptionStateDirectoryKey: directory.path,
            ])
        try await central.powerOn()
        let restoration = try #require(central.manager.restoration)
        #expect(restoration.peripherals.count == 100)
        #expect(restoration.peripherals.filter { $0.outcome == .dropped }.isEmpty)
    }

    // Calm: others would do something in each second that passes.
    @Test(
        "IV-1 R-16 a restored app does not hear that services have changed because BlueZ's answer was refused",
        arguments: [false, true])
    func refusedWhileRestored(isSubscribed: Bool) async throws {
        let world = try await SimulatedWorld(.calm, times: .virtual)
        let directory = try TemporaryDirectory()
        let before = Central(world, options: directory.centralOptions)
        try await before.powerOn()
        let heart = try await before.find("Rig Heart")
        try await before.connect(heart)
        let known = try await before.characteristic(CBUUID(string: "2A37"), of: CBUUID(string: "180D"), on: heart)
        if isSubscribed { #expect(try await before.setNotify(true, known) == nil) }
        let service = AttributeTable.service(of: heart.path(of: known))
        // Killed, as far as the disk knows.
        let copy = try TemporaryDirectory(copying: directory)
        let asked = world.simulator.calls("GetAll", path: service).count
        let refusal = SimulatorFault.Effect.fail(name: "org.freedesktop.DBus.Error.LimitsExceeded", message: "too many")
        world.simulator.inject(SimulatorFault("GetAll", path: service, times: nil, refusal))
        // Of another session, as in another process.
        let (after, restored) = try await Central.restored(
            world, options: copy.centralOptions.merging([BluezManagerOptionAdapterKey: "hci0"]) { $1 })
        if isSubscribed {
            // It is subscribed to again before anything else is done, and that waits for the second round of questions.
            let session = after.manager.session
            let round = session.queue.sync { session.blueZ.timing.daemon.busyRetries + 1 }
            _ = try #require(
                await world.simulator.waitForCalls("GetAll", path: service, count: asked + round + 1))
        } else {
            restored.discoverServices(nil)
            let error = try await after.next("services") {
                if case .services(restored, let error) = $0 { [error] } else { nil }
            }
            #expect((error[0] as? CBError)?.code == .outOfSpace)
        }
        world.simulator.clearFaults()
        let found = try await after.characteristic(CBUUID(string: "2A37"), of: CBUUID(string: "180D"), on: restored)
        #expect(try await after.setNotify(true, found) == nil)
        #expect(after.count { if case .modified = $0 { true } else { false } } == 0)
    }

    @Test("CN-7 a link whose Disconnect the bus refuses at first ends with its cancel, and not before its callback")
    func disconnect() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        try await central.connect(heart)
        let effect = SimulatorFault.Effect.fail(name: "org.freedesktop.DBus.Error.LimitsExceeded", message: "")
        world.simulator.inject(SimulatorFault("Disconnect", times: 3, effect))
        try await central.disconnect(heart)
        #expect(!world.heart.isConnected)
        try await central.connect(central.find("Rig Heart"))
    }

    @Test("CN-7 a link whose Disconnect is refused for good: the log says so, and the next connect and cancel end it")
    func refusedDisconnect() async throws {
        _ = LogCapture.shared
        let world = try await SimulatedWorld()
        let times = ShortTimes(on: world.busAddress) {
            $0.daemon.busyRetry = .milliseconds(1)
            $0.link.closing = .seconds(4)
        }
        defer { withExtendedLifetime(times) {} }
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        try await central.connect(heart)
        let effect = SimulatorFault.Effect.fail(name: "org.freedesktop.DBus.Error.LimitsExceeded", message: "")
        world.simulator.inject(SimulatorFault("Disconnect", times: nil, effect))
        try await central.disconnect(heart)
        try await LogCapture.shared.expect("\(world.heart.address) may stay connected", "LimitsExceeded")
        #expect(world.heart.isConnected)
        world.simulator.clearFaults()
        try await central.connect(heart)
        try await central.disconnect(heart)
        #expect(!world.heart.isConnected)
    }

    @Test("CN-7 a link that ends soon after its Disconnect was refused for good leaves no lease of an orphan")
    func lateEnd() async throws {
        _ = LogCapture.shared
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        let session = central.manager.session
        session.queue.sync {
            session.blueZ.timing.daemon.busyRetry = .milliseconds(1)
            session.blueZ.timing.link.closing = .seconds(60)
        }
        let heart = try await central.find("Rig Heart")
        try await central.connect(heart)
        let effect = SimulatorFault.Effect.fail(name: "org.freedesktop.DBus.Error.LimitsExceeded", message: "")
        world.simulator.inject(SimulatorFault("Disconnect", times: nil, effect))
        let bus = try #require(session.queue.sync { session.bus?.serverGUID })
        func leases() throws -> [String] {
            try FileManager.default.contentsOfDirectory(atPath: #require(LinkLease.directory)).filter {
                $0.hasPrefix(bus)
            }
        }
        #expect(try leases().count == 1)
        central.manager.cancelPeripheralConnection(heart)
        try await LogCapture.shared.expect("\(world.heart.address) may stay connected", "LimitsExceeded")
        world.heart.disconnect()
        try await central.next("disconnection") { if case .disconnected(heart, _, _) = $0 { true } else { nil } }
        #expect(try leases().isEmpty)
    }

    private let refusedAtFirst = SimulatorFault(
        "Disconnect", times: 3, .fail(name: "org.freedesktop.DBus.Error.LimitsExceeded", message: ""))

    // Calm: others would do something in each second that passes.
    @Test(
        "ST-6 a link that bluetoothd kept while it hung ends before poweredOn, although its Disconnect is refused at first"
    )
    func staleLink() async throws {
        let world = try await SimulatedWorld(.calm, times: .virtual)
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        try await central.connect(heart)
        let location = try await central.characteristic(CBUUID(string: "2A38"), of: CBUUID(string: "180D"), on: heart)
        world.simulator.inject(refusedAtFirst)
        try await world.control("bluetoothd hang")
        heart.readValue(for: location)
        try await central.next("resetting") { if case .state(.resetting) = $0 { true } else { nil } }
        try await world.control("bluetoothd continue")
        try await central.powerOn()
        #expect(!world.heart.isConnected)
    }

    @Test("CN-14 a link that a refused pairing has made useless ends, although its Disconnect is refused at first")
    func refusedPairing() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        try await world.control("sink pairing justworks")
        let sink = try await central.find("Rig Sink")
        try await central.connect(sink)
        let secret = try await central.characteristic(sinkUUID(0x16), of: sinkUUID(1), on: sink)
        world.simulator.inject(refusedAtFirst)
        #expect((try await central.read(secret).failure as? CBATTError)?.code == .insufficientAuthentication)
        let end = try await central.next("disconnection") {
            if case .disconnected(sink, _, let error) = $0 { [error] } else { nil }
        }[0]
        #expect((end as? CBError)?.code == .encryptionTimedOut)
        #expect(world.simulator.calls("Disconnect").count == 4)
    }

    @Test("CE-1 a peer whose properties are refused at first is reported")
    func connectionEvent() async throws {
        let world = try await SimulatedWorld()
        let (watcher, central) = (Central(world), Central(world))
        for app in [watcher, central] { try await app.powerOn() }
        let heart = try await central.find("Rig Heart")
        watcher.manager.registerForConnectionEvents(options: [.peripheralUUIDs: [heart.identifier]])
        _ = watcher.manager.retrieveConnectedPeripherals(withServices: [])  // the bus queue has dealt with it
        let path = "/org/bluez/hci0/dev_" + world.heart.address.replacingOccurrences(of: ":", with: "_")
        let effect = SimulatorFault.Effect.fail(name: "org.freedesktop.DBus.Error.LimitsExceeded", message: "")
        world.simulator.inject(SimulatorFault("GetAll", path: path, times: 3, effect))
        try await central.connect(heart)
        try await watcher.next("connection event") {
            if case .connectionEvent(.peerConnected, let peer) = $0, peer.identifier == heart.identifier {
                true
            } else {
                nil
            }
        }
    }
}
