import BluezDBus
import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit

/// Connections that need a simulator to be seen.
@Suite struct LinkTests {
    private func found(
        _ name: String = "Rig Heart", in given: SimulatedWorld? = nil
    ) async throws -> (SimulatedWorld, Central, CBPeripheral) {
        let world = if let given { given } else { try await SimulatedWorld() }
        let central = Central(world)
        try await central.powerOn()
        return (world, central, try await central.find(name))
    }

    @Test("O-13 CN-7 cancelling a disconnected peripheral does nothing")
    func cancelsNothing() async throws {
        let (world, central, heart) = try await found()
        central.manager.cancelPeripheralConnection(heart)
        #expect(heart.state == .disconnected)
        try await central.connect(heart)
        #expect(central.count { if case .disconnected = $0 { true } else { false } } == 0)
        #expect(world.simulator.calls("Disconnect").isEmpty)
    }

    @Test("CN-4 connect while connecting gives no second callback; while connected no error")
    func connectsTwice() async throws {
        let (_, central, heart) = try await found()
        await central.perform { for _ in 0..<5 { central.manager.connect(heart) } }
        try await central.next("connection") { if case .connected = $0 { true } else { nil } }
        try await central.settle(heart)
        #expect(central.count { if case .connected = $0 { true } else { false } } == 1)
        central.manager.connect(heart)
        try await central.settle(heart)
        #expect(central.count { if case .failed = $0 { true } else { false } } == 0 && heart.state == .connected)
    }

    @Test("CN-5 several connects at once: those in range connect, the others wait")
    func several() async throws {
        let world = try await SimulatedWorld()
        for n in 1...8 {
            world.simulator.add(
                VirtualPeripheral("F0:00:00:00:01:0\(n)", VirtualAdvertisement(localName: "P\(n)"), services: []))
        }
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        world.heart.vanish()
        central.manager.connect(heart)
        var connected: Set<UUID> = []
        var peripherals: [CBPeripheral] = []
        for n in 1...8 { peripherals.append(try await central.find("P\(n)")) }
        for peripheral in peripherals { central.manager.connect(peripheral) }
        while connected.count < 8 {
            connected.insert(
                try await central.next("connection") { if case .connected(let p) = $0 { p.identifier } else { nil } })
        }
        #expect(heart.state == .connecting && !connected.contains(heart.identifier))
        world.heart.comeBack()
        try await central.next("connection") { if case .connected(heart) = $0 { true } else { nil } }
    }

    @Test("CN-2 LX-15 transient errors of BlueZ are retried without a callback")
    func retries() async throws {
        let (world, central, heart) = try await found(in: SimulatedWorld(.calm, times: .virtual))
        for (name, message) in [
            ("Failed", "le-connection-abort-by-local"), ("Failed", "Operation already in progress"),
            ("InProgress", "br-connection-busy"), ("Failed", "br-connection-canceled"),
        ] {
            world.simulator.inject(SimulatorFault("Connect", .fail(name: "org.bluez.Error.\(name)", message: message)))
        }
        try await central.connect(heart)
        #expect(world.simulator.calls("Connect").count == 5)
        #expect(central.count { if case .failed = $0 { true } else { false } } == 0)
    }

    @Test(
        "CN-2 LX-15 BlueZ loses a Connect that comes as the last link ends: after 7 s it is called off, and tried again"
    )
    func lost() async throws {
        let (world, central, heart) = try await found(in: SimulatedWorld(.calm, times: .virtual))
        try await central.connect(heart)
        try await central.disconnect(heart)
        world.simulator.inject(SimulatorFault("Connect", .ignore))
        try await central.connect(heart)
        // The one of the app's cancel, and the one that calls off.
        #expect(world.simulator.calls("Connect").count == 3 && world.simulator.calls("Disconnect").count == 2)
        #expect(central.count { if case .failed = $0 { true } else { false } } == 0)
    }

    // BlueZ 5.81 and later refuse each other one until then.
    @Test("CN-2 LX-15 a Connect that is never answered is called off after BlueZ's own time, and tried again")
    func unanswered() async throws {
        let (world, central, heart) = try await found(in: SimulatedWorld(.calm, times: .virtual))
        world.simulator.remember(world.heart)
        world.simulator.inject(SimulatorFault("Connect", .ignore))
        try await central.connect(heart)
        #expect(world.simulator.calls("Connect").count == 2 && world.simulator.calls("Disconnect").count == 1)
    }

    @Test("LX-15 BlueZ forgets the device in the middle of an attempt, without an answer: it is found and tried again")
    func forgotten() async throws {
        let (world, central, heart) = try await found()
        world.simulator.inject(SimulatorFault("Connect", times: 5, .ignore))
        central.manager.connect(heart)
        for count in 1...5 {
            _ = await world.simulator.waitForCalls("Connect", count: count)
            world.simulator.forgetDevice(world.heart)
        }
        try await central.next("connection") { if case .connected(heart) = $0 { true } else { nil } }
        #expect(central.count { if case .failed = $0 { true } else { false } } == 0)
    }

    @Test(
        "CN-13 ERR-1 D9 the controller's connection limit is an error with its cause and all attempts; later it connects"
    )
    func limit() async throws {
        // Two attempts: in a busy world BlueZ may forget the device between them, and there would be a third.
        let (world, central, heart) = try await found(in: SimulatedWorld(.calm))
        for message in ["le-connection-abort-by-local", "le-connection-concurrent-connection-limit"] {
            world.simulator.inject(
                SimulatorFault("Connect", .fail(name: "org.bluez.Error.Failed", message: message)))
        }
        let start = Date()
        central.manager.connect(heart)
        let error = try await central.nextRecord("failure") { record -> NSError? in
            guard case .failed(heart, let error?) = record.event, record.peripheralState == .disconnected else {
                return nil
            }
            return (error as? CBError)?.code == .connectionLimitReached ? error as NSError : nil
        }
        let cause = try #require(error.userInfo[NSUnderlyingErrorKey] as? NSError)
        #expect(cause.localizedDescription.contains("concurrent-connection-limit"))
        let attempts = try #require(error.userInfo[BluezErrorAttemptsKey] as? [BluezConnectAttempt])
        #expect(
            attempts.map(\.message) == ["le-connection-abort-by-local", "le-connection-concurrent-connection-limit"])
        #expect(attempts[0].date > start && attempts[1].date > attempts[0].date)
        try await central.connect(heart)
    }

    @Test("CN-7 CN-8 cancel followed immediately by connect: one disconnect callback, then a new link")
    func reconnectsAtOnce() async throws {
        let (_, central, heart) = try await found()
        try await central.connect(heart)
        let state = await central.perform { () -> CBPeripheralState in
            central.manager.cancelPeripheralConnection(heart)
            central.manager.connect(heart)
            return heart.state
        }
        #expect(state == .connecting)
        try await central.next("disconnection") { if case .disconnected(heart, false, nil) = $0 { true } else { nil } }
        try await central.next("new link") { if case .connected(heart) = $0 { true } else { nil } }
        #expect(heart.state == .connected)
        #expect(central.count { if case .disconnected = $0 { true } else { false } } == 1)
        _ = try await central.discoverServices(heart)
    }

    @Test("CN-10 requests that are pending when the link ends get no answer, and the next link works")
    func pendingRequests() async throws {
        let (world, central, sink) = try await found("Rig Sink")
        try await central.connect(sink)
        let hello = try await central.characteristic(sinkUUID(0x10), of: sinkUUID(1), on: sink)
        world.simulator.inject(SimulatorFault("ReadValue", .ignore))
        await central.perform { for _ in 0..<10 { sink.readValue(for: hello) } }
        _ = await world.simulator.waitForCalls("ReadValue")
        world.sink.disconnect()
        try await central.next("end") { if case .disconnected(sink, _, _) = $0 { true } else { nil } }
        try await central.connect(sink)
        try await central.settle(sink)
        #expect(central.count { if case .value = $0 { true } else { false } } == 0)
    }

    // A test or a function that returned while it was connected ended with "API MISUSE", although nothing was left that
    // could have used the link. Only an app that keeps its manager is warned.
    @Test("CN-1 MIS-5 releasing a manager with its connected peripheral is an end in good order, and logs nothing")
    func endsInGoodOrder() async throws {
        let world = try await SimulatedWorld()
        let address = "F0:F1:F2:00:77:01"
        let lamp = VirtualPeripheral(address, VirtualAdvertisement(localName: "Lamp"))
        world.simulator.add(lamp)
        let central = Central(world)
        try await central.powerOn()
        let bus = central.manager.core.central.bus
        var found: CBPeripheral? = try await central.find("Lamp")
        try await central.connect(try #require(found))
        central.forgetRecords()
        found = nil
        central.release()
        try await eventually("the link has ended") { !lamp.isConnected }
        await withCheckedContinuation { continuation in
            bus.queue.asyncAfter(deadline: .now().later(by: bus.timing.link.release)) { continuation.resume() }
        }
        #expect(LogCapture.shared.count(address) == 0)
    }

    @Test("CN-1 MIS-5 releasing a pending peripheral withdraws the attempt without a callback")
    func releasesPending() async throws {
        let world = try await SimulatedWorld()
        world.simulator.timing.connectTimeout = .seconds(60)
        world.simulator.remember(world.heart)  // or BlueZ may forget it before the attempt, on a busy machine
        let central = Central(world)
        try await central.powerOn()
        var heart: CBPeripheral? = try await central.find("Rig Heart")
        world.heart.vanish()
        central.manager.connect(try #require(heart))
        _ = await world.simulator.waitForCalls("Connect")
        central.forgetRecords()
        heart = nil
        #expect(await world.simulator.waitForCalls("Disconnect") != nil)
        try await LogCapture.shared.expect("misuse", "Did you forget to keep a reference to it?")
        #expect(central.records.isEmpty)
    }

    @Test("AR-5 O-16 a delegate with the old disconnect variant only gets that one, once")
    func oldVariant() async throws {
        final class Old: NSObject, CBCentralManagerDelegate, Sendable {
            let log = EventLog<String>()
            func centralManagerDidUpdateState(_ central: CBCentralManager) { log.append("state") }
            func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) { log.append("up") }
            func centralManager(
                _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
            ) { log.append("down \(error == nil)") }
        }
        let (world, central, heart) = try await found()
        let old = Old()
        central.manager.delegate = old
        central.manager.connect(heart)
        _ = try await old.log.next("up") { $0 == "up" ? true : nil }
        world.heart.disconnect()
        _ = try await old.log.next("down") { $0 == "down false" ? true : nil }
        #expect(old.log.all == ["up", "down false"])
    }

    @Test("a start delay is respected")
    func startDelay() async throws {
        let (world, central, heart) = try await found()
        let start = ContinuousClock.now
        central.manager.connect(heart, options: [CBConnectPeripheralOptionStartDelayKey: NSNumber(value: 0.2)])
        #expect(heart.state == .connecting)
        try await central.next("connection") { if case .connected = $0 { true } else { nil } }
        #expect(ContinuousClock.now - start >= .milliseconds(200))
        withExtendedLifetime(world) {}  // optimized code would release it after its last use
    }

    @Test("MIS-2 RW-14 commands to a peripheral that is not connected are dropped, without a callback")
    func notConnected() async throws {
        let (world, central, heart) = try await found()
        heart.delegate = central
        heart.readRSSI()
        heart.discoverServices(nil)
        heart.openL2CAPChannel(0x80)
        #expect(!heart.canSendWriteWithoutResponse)
        try await LogCapture.shared.expect("misuse", "can only accept commands while in the connected state")
        try await central.connect(heart)
        try await central.settle(heart)
        #expect(central.count { if case .services = $0 { true } else { false } } == 0)
        withExtendedLifetime(world) {}  // optimized code would release it after its last use
    }

    @Test("MIS-8 requests with a nil delegate are logged and executed")
    func nilDelegate() async throws {
        let (_, central, heart) = try await found()
        try await central.connect(heart)
        heart.delegate = nil
        heart.discoverServices(nil)
        try await LogCapture.shared.expect("misuse", "delegate is nil")
        heart.delegate = central
        try await central.settle(heart)
        #expect(heart.services?.count == 3)
    }

    @Test("L2-10 a peripheral without L2CAP channels refuses them")
    func channels() async throws {
        let (_, central, heart) = try await found()
        try await central.connect(heart)
        heart.openL2CAPChannel(0x80)
        let error = try await central.next("answer") { if case .channel(nil, let error?) = $0 { error } else { nil } }
        #expect((error as? CBError)?.code == .connectionFailed)
    }

    @Test("IV-4 a new device name is reported, with the name already changed")
    func rename() async throws {
        let (world, central, heart) = try await found()
        try await central.connect(heart)
        try world.simulator.emit(
            path: "/org/bluez/hci0/dev_F0_F1_F2_00_00_01", interface: "org.freedesktop.DBus.Properties",
            member: "PropertiesChanged",
            arguments: [.string("org.bluez.Device1"), .properties(["Name": .string("New")]), .strings([])])
        try await central.next("name") { if case .name(heart) = $0 { heart.name == "New" ? true : nil } else { nil } }
    }

    // A name that BlueZ gives with an answer was taken over without a word, on a link as well.
    @Test("IV-4 a name that comes with an answer of BlueZ is reported if the app is connected and knew another one")
    func renamedInAnswer() async throws {
        let (world, central, heart) = try await found(in: SimulatedWorld(.calm))
        func answer(_ name: String) {
            central.queue.sync {
                central.manager.mirror.receive(.peripheral(heart.identity, .name(name, isNews: false)))
            }
        }
        func count() -> Int { central.count { if case .name = $0 { true } else { false } } }
        answer("Early")
        #expect(heart.name == "Early" && count() == 0)
        try await central.connect(heart)
        #expect(heart.name == "Rig Heart" && count() == 0)
        for _ in 0..<2 { answer("New") }
        #expect(heart.name == "New" && count() == 1)
        withExtendedLifetime(world) {}  // optimized code would release it after its last use
    }

    // BlueZ has told the name before that manager was there, so that it had none.
    @Test("O-43 a manager that connects to a link that is up knows the name of the peripheral")
    func namedInLink() async throws {
        let (world, central, heart) = try await found()
        try await central.connect(heart)
        let other = Central(world)
        try await other.powerOn()
        let copy = try #require(other.manager.retrievePeripherals(withIdentifiers: [heart.identifier]).first)
        try await other.connect(copy)
        #expect(copy.name == "Rig Heart")
    }
}
