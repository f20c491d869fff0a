import BluezKitSimulator
import CoreBluetooth
import BluezDBus
import Foundation
import Testing

@testable import BluezKit

// Events between a change and the moment at which the app was informed of it were ignored: another manager's connect
// cut the new link when the loss of the old one was reported; calls of an app that had not been informed yet of a
// reset, or of a new link, were carried out after it; an adopted link was not reported to managers that were
// connecting; a link that came up again while its loss was held back, or that BlueZ made for a call that had failed
// because it had briefly forgotten the device, stayed up without an owner. Now each of these is an event that is
// handled.
@Suite struct WrongMomentTests {
    private static let path = "/org/bluez/hci0/dev_F0_F1_F2_00_00_01"

    private func central(_ world: SimulatedWorld) async throws -> (Central, CBPeripheral) {
        let central = Central(world)
        try await central.powerOn()
        return (central, try await central.find("Rig Heart"))
    }

    /// Waits until `condition` holds on the bus queue.
    private func wait(_ central: Central, until condition: @escaping (Session) -> Bool) async throws {
        let session = central.manager.session
        try await eventually("what the test waits for holds on the bus queue") {
            session.queue.sync { condition(session) }
        }
    }

    /// An app that scans, where the device is not connected.
    private func scan() async throws -> (ScriptedBus, Central) {
        let bluez = try await ScriptedBus(serving: BlueZVersion(5, 66))
        try bluez.setConnected(false)
        let central = Central(bluez)
        try await central.powerOn()
        central.manager.scanForPeripherals(withServices: nil)
        try await bluez.skip(to: "StartDiscovery")
        return (bluez, central)
    }

    private func isUp(_ session: Session) -> Bool { session.central.connected.first?.connection?.isUp == true }

    @Test("O-10 O-15 O-43 DL-7 another manager connects while a disconnection is held back: it keeps its link")
    func otherManagerConnects() async throws {
        let world = try await SimulatedWorld(.calm, times: .virtual)  // while time stands still no one else answers
        let (a, heartOfA) = try await central(world)
        let (b, heartOfB) = try await central(world)
        try await a.connect(heartOfA)
        a.forgetRecords()
        await world.time?.stop()
        world.heart.disconnect()
        try await wait(a) { !isUp($0) }
        b.manager.connect(heartOfB)
        world.time?.pass()
        try await a.next("loss") { if case .disconnected(heartOfA, false, .some) = $0 { true } else { nil } }
        try await b.next("connection") { if case .connected(heartOfB) = $0 { true } else { nil } }
        try await b.settle(heartOfB)
        #expect(a.count { if case .connected = $0 { true } else { false } } == 0 && heartOfA.state == .disconnected)
        #expect(b.count { if case .disconnected = $0 { true } else { false } } == 0 && heartOfB.state == .connected)
        try await world.awaitConnections("heart", 1)
    }

    @Test(
        "CN-7 BlueZ forgets the device, hears it again and then handles our Connect: the link ends with the cancel",
        arguments: [false, true])
    func forgottenBeforeConnect(cancelsFirst: Bool) async throws {
        let (bluez, central) = try await scan()
        let properties = ScriptedBus.properties(Self.identity, [("RSSI", .int16(-50))])
        try bluez.add(ScriptedBus.path(Self.identity), BlueZ.device, properties)
        let peripheral = try await central.next("discovery") {
            if case .discovered(let found, _, _) = $0 { found } else { nil }
        }
        central.keep(peripheral)
        central.manager.connect(peripheral)
        let connect = try await bluez.skip(to: "Connect")
        try bluez.remove(ScriptedBus.path(Self.identity), BlueZ.device)
        try bluez.setConnected(true)
        try await central.next("connection") { if case .connected(peripheral) = $0 { true } else { nil } }
        bluez.refuseRoutinely("Disconnect", with: ScriptedBus.busy)
        // What is asked now is answered after that.
        if !cancelsFirst { connect.answer() }
        _ = central.manager.retrieveConnectedPeripherals(withServices: [CBUUID(string: "180D")])
        central.manager.cancelPeripheralConnection(peripheral)
        if cancelsFirst {
            try await central.next("disconnection") {
                if case .disconnected(peripheral, _, nil) = $0 { true } else { nil }
            }
            connect.answer()
        }
        try await bluez.skip(to: "Disconnect")
        // The bus has refused it, and does not refuse it again.
        bluez.answerRoutinely(["Disconnect": []])
        try await bluez.skip(to: "Disconnect")
    }

    @Test("CN-7 BlueZ handles a Connect from before a cancel when the app connects again: the link is not ended")
    func forgottenAndConnectedAgain() async throws {
        let (bluez, central) = try await scan()
        let properties = ScriptedBus.properties(Self.identity, [("RSSI", .int16(-50))])
        func discover() async throws -> CBPeripheral {
            try bluez.add(ScriptedBus.path(Self.identity), BlueZ.device, properties)
            return try await central.next("discovery") {
                if case .discovered(let found, _, _) = $0 { found } else { nil }
            }
        }
        let peripheral = try await discover()
        central.keep(peripheral)
        central.manager.connect(peripheral)
        let connect = try await bluez.skip(to: "Connect")
        try bluez.remove(ScriptedBus.path(Self.identity), BlueZ.device)
        try await bluez.settle()
        central.manager.cancelPeripheralConnection(peripheral)
        try await central.next("disconnection") { if case .disconnected(peripheral, _, nil) = $0 { true } else { nil } }
        central.manager.stopScan()
        central.manager.scanForPeripherals(withServices: nil)
        bluez.turn {}  // the bus queue has dealt with it: the device is announced once
        #expect(try await discover() == peripheral)
        central.manager.connect(peripheral)
        let again = try await bluez.skip(to: "Connect")
        connect.answer()
        try await bluez.settle()
        try bluez.setConnected(true)
        again.answer()
        try await central.next("connection") { if case .connected(peripheral) = $0 { true } else { nil } }
        #expect(bluez.calls.all.map(\.member).filter { $0.hasSuffix("onnect") } == ["Connect", "Connect"])
    }

    // After a restart of bluetoothd some links were reported 6 s after the peer had them: as late as an attempt that
    // was answered and not followed by a signal, which counted as failed after 5 s. Why that came late is not known.
    @Test("D7 D10 BlueZ answers Connect and does not signal the link: it is asked, and the link is reported")
    func unsignalledLink() async throws {
        let bluez = try await ScriptedBus(serving: BlueZVersion(5, 66)) {
            var timing = $0
            // In time only because of the question: the attempt fails, and the next one is made, after the test.
            timing.link.settled = .seconds(3600)
            (timing.link.backOff, timing.link.longestBackOff) = (.seconds(3600), .seconds(3600))
            return timing
        }
        let (central, peripheral, connect) = try await attempt(bluez)
        try bluez.setConnected(true, isSignalled: false)
        connect.answer()
        try await central.next("connection") { if case .connected(peripheral) = $0 { true } else { nil } }
    }

    private static let identity = DeviceIdentity(address: 0xF000_0000_0001, isRandom: true)

    /// An app's attempt to connect, which waits for its answer.
    private func attempt(_ bluez: ScriptedBus) async throws -> (Central, CBPeripheral, ScriptedBus.Call) {
        try bluez.setConnected(false)
        let central = Central(bluez)
        try await central.powerOn()
        let peripheral = try #require(
            central.manager.retrievePeripherals(withIdentifiers: [Self.identity.identifier]).first)
        central.manager.connect(peripheral)
        return (central, peripheral, try await bluez.skip(to: "Connect"))
    }

    @Test("CN-7 the controller makes the link of an attempt that is being cancelled: BlueZ is asked to end it")
    func linkOfCancelledAttempt() async throws {
        let bluez = try await ScriptedBus(serving: BlueZVersion(5, 66))
        let (central, peripheral, connect) = try await attempt(bluez)
        bluez.stopAnswering("Disconnect")
        try await central.disconnect(peripheral)
        let first = try await bluez.skip(to: "Disconnect")
        // The two have crossed: the first `Disconnect` has found no link.
        try bluez.setConnected(true)
        let second = try await bluez.skip(to: "Disconnect")
        try bluez.setConnected(false)
        bluez.answerRoutinely(["Disconnect": []])
        for call in [connect, first, second] { call.answer() }
        // The next attempt is one like any other.
        central.manager.connect(peripheral)
        try await bluez.skip(to: "Connect")
        try bluez.setConnected(true)
        try await central.next("connection") { if case .connected(peripheral) = $0 { true } else { nil } }
    }

    @Test("CN-4 CN-12 connect to a peripheral whose loss has not been reported yet: it is reported, nothing reconnects")
    func connectsWhileLossIsHeld() async throws {
        let world = try await SimulatedWorld(.calm, times: .virtual)  // while time stands still no one else answers
        let (central, heart) = try await central(world)
        try await central.connect(heart)
        central.forgetRecords()
        await world.time?.stop()
        world.heart.disconnect()
        try await wait(central) { !isUp($0) }
        central.manager.connect(heart)
        world.time?.pass()
        try await central.next("loss") { if case .disconnected(heart, false, .some) = $0 { true } else { nil } }
        #expect(heart.state == .disconnected)
        try await central.connect(heart)
        try await central.settle(heart)
        #expect(central.count { if case .connected = $0 { true } else { false } } == 1)
    }

    @Test(
        "O-18 O-19 off and on again while the app's queue is busy: what it requested before it was informed is undone")
    func bluetoothFlaps() async throws {
        let world = try await SimulatedWorld()
        let (central, heart) = try await central(world)
        let sink = try await central.find("Rig Sink")
        try await central.settled()
        central.queue.suspend()
        world.simulator.setPowered(false)
        try await wait(central) { $0.adapter.state == .poweredOff }
        world.simulator.setPowered(true)
        try await wait(central) { $0.adapter.state == .poweredOn }
        central.manager.connect(heart)
        central.manager.connect(sink, options: [CBConnectPeripheralOptionStartDelayKey: 0.1])
        central.manager.cancelPeripheralConnection(sink)
        central.manager.scanForPeripherals(withServices: nil)
        central.queue.resume()
        try await central.powerOn()
        #expect(heart.state == .disconnected && sink.state == .disconnected && !central.manager.isScanning)
        try await central.connect(sink)
        try await awaitRest(world)
        #expect(world.simulator.calls("Connect").count == 1)
        #expect(central.count { if case .disconnected = $0 { true } else { false } } == 0)
    }

    @Test(
        "O-18 O-20 bluetoothd restarts while the app's queue is busy: what a manager that does not resume requested is undone"
    )
    func daemonRestarts() async throws {
        let world = try await SimulatedWorld()
        let (central, heart) = try await central(world)
        let sink = try await central.find("Rig Sink").identifier
        try await central.settled()
        let session = central.manager.session
        session.queue.sync { session.blueZ.timing.adapter.staleLinks = .milliseconds(50) }
        let scans = world.simulator.calls("StartDiscovery").count
        central.queue.suspend()
        world.simulator.killDaemon()
        try await wait(central) { $0.adapter.state == .resetting }
        try await world.simulator.startDaemon()
        try await wait(central) { $0.adapter.state == .poweredOn }
        central.manager.connect(heart)
        central.manager.scanForPeripherals(withServices: nil)
        #expect(heart.state == .connecting && central.manager.isScanning)
        central.queue.resume()
        try await central.next("reset") { if case .state(.resetting) = $0 { true } else { nil } }
        try await central.powerOn()
        #expect(heart.state == .disconnected && !central.manager.isScanning)
        // One for which BlueZ needs no scan; an attempt for the heart would be made before it.
        world.simulator.remember(world.sink)
        let known = try #require(central.manager.retrievePeripherals(withIdentifiers: [sink]).first)
        try await central.connect(known)
        try await awaitRest(world)
        #expect(world.simulator.calls("Connect").allSatisfy { $0.path != Self.path })
        #expect(world.simulator.calls("StartDiscovery").count == scans)
        #expect(central.count { if case .disconnected = $0 { true } else { false } } == 0)
    }

    /// Waits until BlueZ does not scan.
    private func awaitRest(_ world: SimulatedWorld) async throws {
        let client = try await BusClient(world.simulator.busAddress)
        try await eventually("BlueZ does not scan without a request") {
            try await client.property("/org/bluez/hci0", "org.bluez.Adapter1", "Discovering") != .bool(true)
        }
    }

    @Test("SC-1 O-19 a scan that was requested before Bluetooth was switched off and on, and starts after it: it ends")
    func lateStart() async throws {
        let world = try await SimulatedWorld(.calm, times: .virtual)  // while time stands still no one else answers
        let central = Central(world)
        try await central.powerOn()
        // Time to switch off and on in, as it stands still.
        await world.time?.stop()
        world.simulator.inject(SimulatorFault("StartDiscovery", .delay(.seconds(1))))
        central.manager.scanForPeripherals(withServices: nil)
        try await world.awaitCall("StartDiscovery")
        world.simulator.setPowered(false)
        world.simulator.setPowered(true)
        world.time?.pass()
        try #require(await world.simulator.waitForCalls("StopDiscovery") != nil)
        try await awaitRest(world)
        // Nothing of it affects the next one.
        try await central.powerOn()
        _ = try await central.find("Rig Heart")
    }

    @Test("CN-15 O-19 off and on again while a Connect is on its way to BlueZ: no unrequested link stays up")
    func lateConnect() async throws {
        let world = try await SimulatedWorld()
        // BlueZ forgets devices that it has only heard when it is switched off.
        world.simulator.remember(world.heart)
        let (central, heart) = try await central(world)
        world.simulator.inject(SimulatorFault("Connect", .delay(.seconds(1))))
        central.manager.connect(heart)
        try #require(await world.simulator.waitForCalls("Connect") != nil)
        world.simulator.setPowered(false)
        world.simulator.setPowered(true)
        let calls = try #require(await world.simulator.waitForCalls("Disconnect"))
        #expect(calls.map(\.path) == [Self.path])
    }

    @Test("CN-10 CN-11 AR-7 requests from before a disconnection are not carried out on the next link")
    func requestsOfTheOldLink() async throws {
        let world = try await SimulatedWorld()
        let (central, heart) = try await central(world)
        central.manager.connect(heart, options: [CBConnectPeripheralOptionEnableAutoReconnect: true])
        try await central.next("connection") { if case .connected(heart) = $0 { true } else { nil } }
        let services = try await central.discoverServices(heart, [CBUUID(string: "180D")])
        let found = try await central.discoverCharacteristics(try #require(services.first))
        let location = try #require(found.first { $0.uuid == CBUUID(string: "2A38") })
        let rate = try #require(found.first { $0.uuid == CBUUID(string: "2A37") })
        central.queue.suspend()
        let connects = world.simulator.calls("Connect").count
        world.heart.disconnect()
        _ = await world.simulator.waitForCalls("Connect", count: connects + 1)
        try await wait(central, until: isUp)
        heart.readValue(for: location)
        heart.setNotifyValue(true, for: rate)
        central.queue.resume()
        try await central.next("loss") { if case .disconnected(heart, true, .some) = $0 { true } else { nil } }
        try await central.next("connection") { if case .connected(heart) = $0 { true } else { nil } }
        try await central.settle(heart)
        #expect(central.count { if case .value = $0 { true } else { false } } == 0)
        #expect(central.count { if case .notifying = $0 { true } else { false } } == 0)
        #expect(!world.heart.isSubscribed(to: "2A37"))
        // A cancel is not mistaken for one of the link before.
        try await central.disconnect(heart)
        try await world.awaitConnections("heart", 0)
    }

    /// An app that is restored, and holds what it is given.
    private final class Restored: NSObject, CBCentralManagerDelegate, @unchecked Sendable {
        // holds: the boxes are locked
        let peripherals = ProtectedBox<[CBPeripheral]>([])
        func centralManagerDidUpdateState(_ central: CBCentralManager) {}
        func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {
            let found = dict[CBCentralManagerRestoredStatePeripheralsKey] as? [CBPeripheral] ?? []
            peripherals.withLock { $0 = found }
        }
    }

    @Test("O-43 DL-7 a link that is adopted is announced to the manager that is connecting", arguments: [0, 30])
    func adopted(delay: Int) async throws {
        let world = try await SimulatedWorld()
        let (before, after) = (try TemporaryDirectory(), try TemporaryDirectory())
        let holder = Central(world, options: before.centralOptions)
        try await holder.powerOn()
        let heart = try await holder.find("Rig Heart")
        try await holder.connect(heart)
        _ = try await holder.discoverServices(heart)
        try FileManager.default.copyItem(atPath: before.file("app"), toPath: after.file("app"))
        world.simulator.inject(
            SimulatorFault("GetAll", path: Self.path, times: nil, .delay(.milliseconds(delay))))
        let identifier = heart.identifier
        // Of another session than the holder's, as in another process.
        let session: [String: Any] = [BluezManagerOptionAdapterKey: "hci0"]
        let other = Central(world, options: session) { central, event in
            guard case .state(.poweredOn) = event,
                let heart = central.manager.retrievePeripherals(withIdentifiers: [identifier]).first
            else { return }
            central.keep(heart)
            central.manager.connect(heart)
        }
        let app = Restored()
        let manager = CBCentralManager(
            delegate: app, queue: DispatchQueue(label: "test.restored"),
            options: world.managerOptions.merging(session) { $1 }.merging(after.centralOptions) { $1 })
        try await other.next("connection") { if case .connected = $0 { true } else { nil } }
        try await eventually("the manager is restored") { manager.restoration != nil }
        #expect(manager.restoration?.peripherals.count == 1)
    }

    @Test(
        "LX-16 `Connected` flickers: the disconnection is reported, and no unused link stays up",
        arguments: [true, false])
    func flickers(reconnects: Bool) async throws {
        let world = try await SimulatedWorld()
        let (central, heart) = try await central(world)
        central.manager.connect(heart, options: [CBConnectPeripheralOptionEnableAutoReconnect: reconnects])
        try await central.next("connection") { if case .connected(heart) = $0 { true } else { nil } }
        for isConnected in [false, true] {
            try world.simulator.emit(
                path: Self.path, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged",
                arguments: [
                    .string("org.bluez.Device1"), .properties([("Connected", .bool(isConnected))]), .strings([]),
                ])
        }
        try await central.next("loss") { if case .disconnected(heart, reconnects, .some) = $0 { true } else { nil } }
        if reconnects {
            try await central.next("connection") { if case .connected(heart) = $0 { true } else { nil } }
            #expect(try await central.discoverServices(heart).count == 3)
        } else {
            try await world.awaitConnections("heart", 0)
        }
    }

    @Test("LX-16 O-43 `Connected` flickers before `didConnect`: the link is this process's, and ends with the cancel")
    func flickersOnAndOn() async throws {
        let bluez = try await ScriptedBus(serving: BlueZVersion(5, 66))
        let (central, peripheral, _) = try await attempt(bluez)
        // Resolved already, so that `didConnect` waits for the MTU: BlueZ's answer comes after the next signals.
        try bluez.change(
            ScriptedBus.path(Self.identity), BlueZ.device,
            [("ServicesResolved", .bool(true)), ("Connected", .bool(true))])
        for isConnected in [false, true] { try bluez.setConnected(isConnected) }
        try await central.next("connection") { if case .connected(peripheral) = $0 { true } else { nil } }
        central.manager.cancelPeripheralConnection(peripheral)
        try await bluez.skip(to: "Disconnect")
    }
}

extension Central {
    /// Waits until what was called has reached the bus queue, and what that has posted has been delivered.
    fileprivate func settled() async throws {
        manager.session.queue.sync {}
        await perform {}
    }
}
