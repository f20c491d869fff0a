import BluezDBus
import Foundation
import Testing

@testable import BluezKit

// `Connected` is true of a device that is connected by classic Bluetooth alone: a connect succeeded at once without an
// LE link, and the end of an LE link was not noticed while classic Bluetooth stayed. Now the kernel tells which link it
// is.
/// A device that has classic Bluetooth as well.
@Suite struct DualModeTests {
    private static let resolved = ("ServicesResolved", Value.bool(true))

    private final class Stage {
        let script: ScriptedBus
        let app: DetachedApp
        let path: String
        /// Which links the kernel has.
        let kernel: ProtectedBox<LinkBearers.Bearers>

        init(
            _ bearers: LinkBearers.Bearers, options: [String: Any] = [:], firstServices: Duration = .seconds(60),
            settled: Duration = .seconds(60)
        ) async throws {
            kernel = ProtectedBox(bearers)
            script = try await ScriptedBus {
                var timing = $0
                (timing.link.heldLoss, timing.gatt.mtu) = (.milliseconds(1), .milliseconds(1))
                (timing.link.silentLink, timing.gatt.firstServices) = (.milliseconds(5), firstServices)
                (timing.link.settled, timing.link.backOff, timing.link.longestBackOff) = (
                    settled, .seconds(60), .seconds(60)
                )
                return timing
            }
            app = DetachedApp(on: script.address, options: options, isRandom: false)
            path = ScriptedBus.path(app.device.identity)
            try await script.expect("GetAll").answer(ScriptedBus.adapter(isPowered: true))
            try await script.states.next("power") { $0 == .poweredOn ? true : nil }
            script.answerRoutinely([
                "RegisterAgent": [], "UnregisterAgent": [], "Get": [.variant(.bool(true))],
                "Introspect": [.string("<node/>")], "SetDiscoveryFilter": [], "StartDiscovery": [],
                "StopDiscovery": [],
            ])
            observe(script.session)
            try await app.settle()
        }

        func observe(_ session: Session) {
            session.queue.sync { [kernel] in
                session.central.store.links.source = { _, _ in kernel.withLock { $0 } }
            }
        }

        func set(_ bearers: LinkBearers.Bearers) { kernel.withLock { $0 = bearers } }

        /// BlueZ says that it is connected.
        func answerRead(_ others: [(String, Value)] = [DualModeTests.resolved]) async throws {
            try await script.expect("GetAll", at: path).answer(properties(others))
        }

        func properties(_ others: [(String, Value)], isConnected: Bool = true) -> Value {
            let properties = [("Class", Value.uint32(0x24_0404))] + others
            return .properties(ScriptedBus.properties(app.device.identity, connected: isConnected, properties))
        }

        /// An attempt begins, as the device advertises, in its link of classic Bluetooth or without one.
        func attempt(isConnected: Bool = true) async throws -> ScriptedBus.Call {
            app.manager.connect(app.peripheral)
            let others = isConnected ? [DualModeTests.resolved] : []
            try await script.expect("GetAll", at: path).answer(properties(others, isConnected: isConnected))
            if isConnected {
                try await expect()
                try script.change(path, BlueZ.device, [("RSSI", .int16(-50))])
            }
            return try await script.expect("Connect", at: path)
        }

        func reach(_ phase: LinkStateMachine.Phase) async throws {
            try await eventually("\(phase)") {
                script.turn { script.central.store.known(app.device.identity)?.connection?.phase } == phase
            }
        }

        func connect(_ others: [(String, Value)] = [DualModeTests.resolved]) async throws {
            app.manager.connect(app.peripheral)
            try await answerRead(others)
            try await waitFor("connected")
            _ = try await app.callbacks()
        }

        func addService() throws {
            let uuid = ("UUID", Value.string(GATTClientTests.Stage.uuid("180d")))
            try script.add(path + "/service0001", BlueZ.service, [uuid, ("Primary", .bool(true))])
        }

        func unresolve() throws { try script.change(path, BlueZ.device, [("ServicesResolved", .bool(false))]) }

        /// What the app has heard since the last time; nothing else was asked of BlueZ.
        func expect(_ events: String..., sourceLocation: SourceLocation = #_sourceLocation) async throws {
            try await script.expectNoCall(sourceLocation: sourceLocation)
            let came = try await app.callbacks()
            #expect(came == events, sourceLocation: sourceLocation)
        }

        func waitFor(_ event: String) async throws { try await app.log.next(event) { $0 == event ? true : nil } }
    }

    @Test("CN-2 connect waits for LE while there is only classic Bluetooth, and discovers what comes with the LE link")
    func connects() async throws {
        let stage = try await Stage(.classic)
        let attempt = try await stage.attempt()
        stage.set([.classic, .le])
        attempt.answer()
        // BlueZ does not signal this link.
        try await stage.answerRead()
        try await stage.waitFor("connected")
        stage.app.peripheral.discoverServices(nil)
        try await stage.script.expectNoCall()
        try stage.addService()
        try await stage.waitFor("services 1")
    }

    @Test("CN-2 an answer to Connect that is about classic Bluetooth does not connect")
    func connectsClassic() async throws {
        let stage = try await Stage(.classic)
        try await stage.attempt().answer()
        try await stage.answerRead()
        try await stage.expect()
    }

    @Test(
        "CN-9 the end of the LE link is reported while classic Bluetooth stays; the next connect waits",
        arguments: [false, true])
    func ends(isSignalled: Bool) async throws {
        let stage = try await Stage([.classic, .le])
        try await stage.connect(isSignalled ? [] : [Self.resolved])
        stage.set(.classic)
        if isSignalled {
            try stage.script.emit(
                stage.path, "org.bluez.Bearer.LE1", "Disconnected", .string("org.bluez.Reason.Timeout"),
                .string("Connection timeout"))
        } else {
            try stage.unresolve()
        }
        try await stage.waitFor("disconnected, error")
        let code: CBError.Code = isSignalled ? .connectionTimeout : .peripheralDisconnected
        #expect(stage.app.ends.all == [code])
        _ = try await stage.app.callbacks()
        stage.app.manager.connect(stage.app.peripheral)
        try await stage.answerRead([])
        try await stage.expect()
    }

    @Test("CN-9 the end of classic Bluetooth is no disconnection, and what was discovered stays known")
    func classicEnds() async throws {
        let stage = try await Stage([.classic, .le])
        try await stage.connect()
        stage.set(.le)
        try stage.unresolve()
        try await stage.expect()
        let store = stage.script.central.store
        let isResolved = stage.script.turn { store.known(stage.app.device.identity)?.properties.areServicesResolved }
        #expect(isResolved == true)
        try stage.script.change(stage.path, BlueZ.device, [("Connected", .bool(false))])
        try await stage.waitFor("disconnected, error")
    }

    @Test(
        "CN-7 a cancel does not end classic Bluetooth with the LE link, or with the attempt", arguments: [false, true])
    func cancels(isUp: Bool) async throws {
        let stage = try await Stage(.classic)
        let attempt = try await stage.attempt()
        if isUp {
            stage.set([.classic, .le])
            attempt.answer()
            try await stage.answerRead()
            try await stage.waitFor("connected")
            _ = try await stage.app.callbacks()
        }
        stage.app.manager.cancelPeripheralConnection(stage.app.peripheral)
        try await stage.expect("disconnected")
    }

    // An LE link that joined classic Bluetooth before the device was heard was never noticed: BlueZ does not signal it,
    // and the device may not advertise in it. So connect waited without end; now the kernel is asked every two seconds.
    @Test(
        "CN-2 connect finds an LE link that joins classic Bluetooth without a signal or an advertisement",
        arguments: [false, true])
    func joins(classicReturns: Bool) async throws {
        let stage = try await Stage(.classic)
        stage.app.manager.connect(stage.app.peripheral)
        try await stage.answerRead()
        try await stage.expect()
        if classicReturns {
            for isConnected in [false, true] {
                stage.set(isConnected ? .classic : [])
                try stage.script.change(stage.path, BlueZ.device, [("Connected", .bool(isConnected))])
                try await stage.expect()
            }
        }
        stage.set([.classic, .le])
        try await stage.answerRead()
        try await stage.waitFor("connected")
    }

    // `ServicesResolved` stays false when classic Bluetooth has ended in an LE link that was not this app's then: its
    // services were never discovered. Now what BlueZ has of them counts after a while.
    @Test("services are discovered although the end of classic Bluetooth has reset ServicesResolved before connect")
    func discovers() async throws {
        let stage = try await Stage(.le, firstServices: .milliseconds(1))
        stage.app.manager.connect(stage.app.peripheral)
        let read = try await stage.script.expect("GetAll", at: stage.path)
        // Before the answer, so that it is there when the link is.
        try stage.addService()
        read.answer(stage.properties([]))
        try await stage.waitFor("connected")
        stage.app.peripheral.discoverServices(nil)
        try await stage.waitFor("services 1")
    }

    // Of what a process has left that has died only the address is known, and no `Class`: the kernel was not asked, and
    // the end of that link ended classic Bluetooth as well.
    @Test(
        "CN-7 what a dead process has left is ended unless classic Bluetooth would end with it",
        arguments: [false, true])
    func orphans(hasClassic: Bool) async throws {
        let stage = try await Stage(hasClassic ? [.classic, .le] : .le)
        let (central, device) = (stage.script.central, stage.app.device)
        let name = try #require(stage.script.turn { central.leaseName(of: device.path) })
        // Its file stays as its process ends.
        _ = try LinkLease.make(name, in: LinkLease.directory, for: device.identity.identifier)
        stage.script.turn { central.endOrphans() }
        if !hasClassic { try await stage.script.expect("Disconnect", at: stage.path).answer() }
        try await eventually("its file has gone") { !LinkLease.exists(name, in: LinkLease.directory) }
        try await stage.expect()
    }

    // Only the first `Disconnect` of a cancel asked which links there are; others ended classic Bluetooth.
    @Test("CN-7 a cancel after an attempt without an LE link does not end classic Bluetooth")
    func cancelsLater() async throws {
        let stage = try await Stage(.classic, settled: .milliseconds(1))
        try await stage.attempt().answer()
        try await stage.answerRead()
        try await stage.reach(.backingOff)
        stage.app.manager.cancelPeripheralConnection(stage.app.peripheral)
        try await stage.expect("disconnected")
        let (central, device) = (stage.script.central, stage.app.device)
        let isLeased = stage.script.turn { central.isLeased(device) }
        #expect(!isLeased)
    }

    @Test("CN-7 an attempt that makes its link as it is called off does not end classic Bluetooth, which has returned")
    func linkAfterCancel() async throws {
        let stage = try await Stage(.classic)
        let attempt = try await stage.attempt()
        stage.set([])
        try stage.script.change(stage.path, BlueZ.device, [("Connected", .bool(false))])
        try await stage.expect()
        stage.app.manager.cancelPeripheralConnection(stage.app.peripheral)
        let end = try await stage.script.expect("Disconnect", at: stage.path)
        stage.set([.classic, .le])
        try stage.script.change(stage.path, BlueZ.device, [("Connected", .bool(true))])
        try await stage.expect("disconnected")
        attempt.answer()
        end.answer()
        try await stage.expect()
    }

    @Test("CN-7 a link that comes late, of a device that BlueZ has forgotten, does not end classic Bluetooth")
    func lateLink() async throws {
        let stage = try await Stage(.classic)
        let attempt = try await stage.attempt()
        try stage.script.remove(stage.path, BlueZ.device)
        try await stage.expect()
        stage.app.manager.cancelPeripheralConnection(stage.app.peripheral)
        try await stage.expect("disconnected")
        attempt.answer()
        try await stage.expect()
    }

    enum Moment: CaseIterable { case attempting, settling, backingOff }

    // BlueZ may choose classic Bluetooth for a `Connect`: that link was left as if another program used it.
    @Test("CN-7 a cancel ends the link of classic Bluetooth that its own attempt has made", arguments: Moment.allCases)
    func cancelsOwn(at moment: Moment) async throws {
        let stage = try await Stage([], settled: moment == .backingOff ? .milliseconds(1) : .seconds(60))
        let attempt = try await stage.attempt(isConnected: false)
        stage.set(.classic)
        try stage.script.change(stage.path, BlueZ.device, [("Connected", .bool(true))])
        try await stage.expect()
        if moment != .attempting {
            attempt.answer()
            try await stage.answerRead()
            try await stage.reach(moment == .settling ? .settling : .backingOff)
        }
        stage.app.manager.cancelPeripheralConnection(stage.app.peripheral)
        try await stage.script.expect("Disconnect", at: stage.path).answer()
        try await stage.expect("disconnected")
    }

    @Test("CN-7 a cancel leaves a link of classic Bluetooth that the device has made while an attempt ran")
    func cancelsIncoming() async throws {
        let stage = try await Stage([])
        _ = try await stage.attempt(isConnected: false)
        stage.set([.classic, .incoming])
        try stage.script.change(stage.path, BlueZ.device, [("Connected", .bool(true))])
        try await stage.expect()
        stage.app.manager.cancelPeripheralConnection(stage.app.peripheral)
        try await stage.expect("disconnected")
    }

    @Test("CN-7 a cancel leaves a link of classic Bluetooth that has come when that of an attempt had ended")
    func cancelsNext() async throws {
        let stage = try await Stage([], settled: .milliseconds(1))
        let attempt = try await stage.attempt(isConnected: false)
        stage.set(.classic)
        try stage.script.change(stage.path, BlueZ.device, [("Connected", .bool(true))])
        attempt.answer()
        try await stage.answerRead()
        try await stage.reach(.backingOff)
        stage.script.answerRoutinely(["GetAll": [stage.properties([Self.resolved])]])
        stage.set([])
        try stage.script.change(stage.path, BlueZ.device, [("Connected", .bool(false))])
        stage.set(.classic)
        try stage.script.change(stage.path, BlueZ.device, [("Connected", .bool(true))])
        try await stage.expect()
        stage.app.manager.cancelPeripheralConnection(stage.app.peripheral)
        try await stage.expect("disconnected")
    }

    @Test(
        "CN-7 a cancel leaves a link of classic Bluetooth that has come after the LE link, or after a failed attempt",
        arguments: [false, true])
    func cancelsAfter(isUp: Bool) async throws {
        let stage = try await Stage([])
        let attempt = try await stage.attempt(isConnected: false)
        if isUp {
            stage.set(.le)
            try stage.script.change(stage.path, BlueZ.device, [("Connected", .bool(true))])
            try await stage.waitFor("connected")
            attempt.answer()
            _ = try await stage.app.callbacks()
        } else {
            attempt.refuse()
            try await stage.reach(.backingOff)
        }
        stage.set(isUp ? [.classic, .le] : .classic)
        try stage.script.change(stage.path, BlueZ.device, [("Connected", .bool(true))])
        try await stage.expect()
        if !isUp {
            // The next attempt.
            try stage.script.change(stage.path, BlueZ.device, [("RSSI", .int16(-50))])
            try await stage.answerRead()
            try await stage.script.expect("Connect", at: stage.path)
        }
        stage.app.manager.cancelPeripheralConnection(stage.app.peripheral)
        try await stage.expect("disconnected")
    }

    @Test("retrieveConnectedPeripherals leaves out what is connected by classic Bluetooth alone")
    func retrieves() async throws {
        let stage = try await Stage(.classic)
        let (dual, plain) = (stage.app.device.identity, DetachedCentral.identity(1))
        let found = EventLog<Set<DeviceIdentity>>()
        // holds: the call is for any thread but the bus queue's
        nonisolated(unsafe) let store = stage.script.central.store
        for bearers: LinkBearers.Bearers in [.classic, .le, [.classic, .le], []] {
            stage.set(bearers)
            DispatchQueue.global().async { found.append(Set(store.knownDevices(.connected).map(\.identity))) }
            try await stage.script.expect("GetManagedObjects").answer(
                ScriptedBus.objects([
                    (
                        ScriptedBus.path(dual),
                        ScriptedBus.properties(dual, connected: true, [("Class", .uint32(0x24_0404))])
                    ),
                    (ScriptedBus.path(plain), ScriptedBus.properties(plain, connected: true)),
                ]))
            let devices = try await found.next("the devices") { $0 }
            #expect(devices == (bearers == .classic ? [plain] : [dual, plain]))
        }
    }

    /// An app that says what it hears, in order.
    private final class App: NSObject, CBCentralManagerDelegate {
        let log = EventLog<String>()
        /// A peripheral that no app holds is not connected any longer.
        private var peripherals: [CBPeripheral] = []

        func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {
            peripherals = dict[CBCentralManagerRestoredStatePeripheralsKey] as? [CBPeripheral] ?? []
            log.append("restored")
        }

        func centralManagerDidUpdateState(_ central: CBCentralManager) { log.append("\(central.state)") }
        func centralManager(
            _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
        ) {
            log.append("disconnected")
        }
    }

    @Test("RS-3 an LE link that has ended while classic Bluetooth stayed is not restored")
    func restores() async throws {
        let directory = try TemporaryDirectory()
        let stage = try await Stage([.classic, .le], options: directory.centralOptions)
        try await stage.connect()
        // Killed, as far as the disk knows.
        let copy = try TemporaryDirectory(copying: directory)
        stage.set(.classic)
        let app = App()
        // Of another session, as in another process.
        let manager = CBCentralManager(
            delegate: app, queue: DispatchQueue(label: "test.restoration"),
            options: stage.script.managerOptions.merging(copy.centralOptions) { $1 }
                .merging([BluezManagerOptionAdapterKey: "hci0"]) { $1 })
        stage.observe(manager.session)
        try await stage.script.expect("GetAll", at: ScriptedBus.hci0).answer(ScriptedBus.adapter(isPowered: true))
        try await stage.answerRead()
        try await app.log.next("the end of the link") { $0 == "disconnected" ? true : nil }
        #expect(app.log.all == ["restored", "poweredOn", "disconnected"])
        #expect(manager.restoration?.peripherals.first?.outcome == .disconnected)
    }

    @Test("the kernel is asked only about devices that may have both bearers")
    func others() async throws {
        let stage = try await Stage(.classic)
        let links = stage.script.central.store.links
        func bearers(hasClass: Bool, isRandom: Bool) -> LinkBearers.Bearers {
            var properties = DeviceProperties()
            (properties.hasClass, properties.identity) = (hasClass, DetachedCentral.identity(1, isRandom: isRandom))
            return stage.script.turn { links.bearers(of: properties) }
        }
        #expect(bearers(hasClass: true, isRandom: false) == .classic)
        #expect(bearers(hasClass: true, isRandom: true).isEmpty && bearers(hasClass: false, isRandom: false).isEmpty)
    }
}
