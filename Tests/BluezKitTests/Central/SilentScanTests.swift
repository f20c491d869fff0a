import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit

/// Scans that hear nothing: a controller that has fallen silent, and actual silence. The test controls the times of
/// ``ScanWatch``.
@Suite struct SilentScanTests {
    private struct Stage {
        let world: SimulatedWorld
        let central: Central
        let beacon: VirtualPeripheral
        var session: Session { central.manager.session }

        /// A scan that runs and has heard nothing yet. Calm: phones would break the silence.
        init(services: [CBUUID]? = nil, options: [String: Any] = [:]) async throws {
            world = try await SimulatedWorld(.calm)
            world.heart.advertise(false)
            world.sink.advertise(false)
            world.simulator.options.duplicateFilter = .none
            beacon = VirtualPeripheral(
                "F0:00:00:00:00:01",
                VirtualAdvertisement(
                    localName: "Beacon", serviceUUIDs: ["1815"], manufacturerData: [0x004C: [2, 21]]),
                interval: .seconds(3600))
            beacon.advertise(false)
            world.simulator.add(beacon)
            LogCapture.shared.forget()
            central = Central(world, options: options)
            try await central.powerOn()
            let (session, hour) = (session, Duration.seconds(3600))
            session.queue.sync { session.central.discovery.setWatchWindow(hour, first: hour) }
            central.manager.scanForPeripherals(withServices: services)
            await waitForStart(1)
        }

        /// Waits until BlueZ was called this often to scan.
        func waitForStart(_ count: Int) async {
            _ = await world.simulator.waitForCalls("StartDiscovery", count: count)
            settle()
        }

        /// What was on its way from BlueZ has come when this question is answered.
        func settle() { _ = central.manager.retrieveConnectedPeripherals(withServices: [CBUUID(string: "1815")]) }

        func passMinute() { pass { $0.watchTimerFired() } }
        func passFirstSeconds() { pass { $0.firstTimerFired() } }

        private func pass(_ fire: (DiscoveryController) -> Void) {
            settle()
            session.queue.sync {
                fire(session.central.discovery)
                session.blueZ.flush()
            }
            settle()
        }

        func hearBeacon() async throws {
            beacon.advertiseOnce()
            try await central.next("beacon") {
                if case .discovered(let p, _, _) = $0, p.name == "Beacon" { true } else { nil }
            }
        }

        func control(_ line: String) async throws { _ = try await world.control(line) }

        func next(_ state: CBManagerState) async throws {
            try await central.next("\(state)") { if case .state(state) = $0 { true } else { nil } }
        }

        var states: [CBManagerState] {
            central.events.compactMap { if case .state(let state) = $0 { state } else { nil } }
        }
        var discoveries: Int { central.count { if case .discovered = $0 { true } else { false } } }
        /// How often BlueZ was called to switch off or on.
        var powerCalls: Int { world.simulator.calls("Set", path: "/org/bluez/hci0").count }
        var starts: Int { world.simulator.calls("StartDiscovery").count }
        func logged(_ part: String) -> Int { LogCapture.shared.count(part) }
    }

    private static let restarted = "nothing for a minute: restarting discovery"
    private static let advice = "with BluezManagerOptionMayPowerCycleKey this program does so"
    private static let cycled = "nothing for two minutes: switching hci0 off and on"
    private static var mayPowerCycle: [String: Any] { [BluezManagerOptionMayPowerCycleKey: true] }

    private static func mayPowerCycle(resumes: Bool) -> [String: Any] {
        mayPowerCycle.merging([BluezManagerOptionResumeAfterResetKey: resumes]) { $1 }
    }

    @Test("SC-4 a silent scan is restarted: it continues and discovers, without other callbacks to the app")
    func restart() async throws {
        let stage = try await Stage()
        try await stage.hearBeacon()
        try await stage.control("rig deaf scan")
        stage.passMinute()
        #expect(stage.starts == 1, "the beacon was heard in this minute")
        stage.beacon.advertiseOnce()
        stage.passMinute()
        await stage.waitForStart(2)
        #expect(stage.logged(Self.restarted) == 1)
        // The beacon is not new, and neither it nor what BlueZ invalidates at the end of a discovery counts.
        stage.beacon.advertiseOnce(rssi: -60)
        stage.settle()
        #expect(stage.discoveries == 1)
        stage.beacon.advertisement.serviceData = ["FEAA": [1]]
        try await stage.hearBeacon()
        stage.passMinute()
        #expect(stage.central.manager.isScanning && stage.states == [.poweredOn])
        #expect(stage.starts == 2 && stage.powerCalls == 0)
    }

    @Test(
        "SC-4 a scan that hears nothing from its beginning is started again once, without a callback to the app",
        arguments: [nil, [CBUUID(string: "1815")]])
    func startAgain(services: [CBUUID]?) async throws {
        let stage = try await Stage(services: services)
        try await stage.control("rig deaf scan")
        stage.passFirstSeconds()
        await stage.waitForStart(2)
        try await stage.hearBeacon()
        stage.passMinute()
        stage.passFirstSeconds()
        #expect(stage.central.manager.isScanning && stage.states == [.poweredOn])
        #expect(stage.starts == 2 && stage.logged(Self.restarted) == 0)
    }

    @Test("a scan in true silence is restarted early once, and again only after something was heard")
    func startAgainOnce() async throws {
        let stage = try await Stage()
        stage.passFirstSeconds()
        await stage.waitForStart(2)
        stage.passFirstSeconds()
        #expect(stage.starts == 2)
        try await stage.hearBeacon()
        func pause(_ pauses: Bool) {
            stage.session.queue.sync {
                stage.session.central.discovery.pause(pauses)
                stage.session.blueZ.flush()
            }
            stage.settle()
        }
        pause(true)
        stage.passFirstSeconds()
        pause(false)
        await stage.waitForStart(3)
        stage.passFirstSeconds()
        await stage.waitForStart(4)
    }

    @Test("a scan that still hears devices that it has reported is not silent")
    func hearsOldNews() async throws {
        let stage = try await Stage()
        try await stage.hearBeacon()
        for minute in 1...3 {
            stage.passMinute()
            stage.beacon.advertiseOnce(rssi: Int16(-60 - minute))
        }
        stage.passMinute()
        #expect(stage.starts == 1 && stage.discoveries == 1 && stage.logged(Self.restarted) == 0)
    }

    @Test("LX-12 properties that BlueZ invalidates on a restart of discovery are not an advertisement")
    func takenBack() async throws {
        let stage = try await Stage(options: Self.mayPowerCycle)
        try await stage.hearBeacon()
        stage.passMinute()
        try await stage.control("rig deaf on")
        stage.passMinute()
        await stage.waitForStart(2)
        #expect(stage.discoveries == 1)
        stage.passMinute()
        try await stage.next(.resetting)
    }

    @Test(
        "a filtered scan may be silent among other devices: it is unfiltered for a while, and nothing is switched off")
    func filtered() async throws {
        let stage = try await Stage(services: [CBUUID(string: "1234")], options: Self.mayPowerCycle)
        for minute in 1...13 {
            stage.beacon.advertiseOnce(rssi: Int16(-60 - minute))
            stage.passMinute()
            if minute == 1 { await stage.waitForStart(2) }
            if minute == 11 { #expect(stage.starts == 2) }
            if minute == 12 { await stage.waitForStart(3) }
        }
        #expect(stage.powerCalls == 0 && stage.discoveries == 0)
        #expect(stage.logged("the scan has heard nothing") == 0)
        // The filter is in force again.
        let devices = stage.world.simulator.knownDevices()
        #expect(devices.contains("F0:00:00:00:00:01"))
        stage.world.simulator.forgetDevice(stage.beacon)
        stage.beacon.advertiseOnce()
        #expect(stage.world.simulator.knownDevices().isEmpty)
    }

    @Test("without the option a silent adapter is not switched off, and the log suggests it once")
    func notAllowed() async throws {
        let stage = try await Stage()
        try await stage.control("rig deaf power")
        stage.passMinute()
        await stage.waitForStart(2)
        for _ in 0..<3 { stage.passMinute() }
        #expect(stage.powerCalls == 0 && stage.states == [.poweredOn] && stage.central.manager.isScanning)
        #expect(stage.logged(Self.restarted) == 1 && stage.logged(Self.advice) == 1)
    }

    @Test(
        "D10 ST-6 with the option a silent adapter is power-cycled, and the scan is resumed or left to the app",
        arguments: [false, true])
    func powerCycle(resumes: Bool) async throws {
        let stage = try await Stage(options: Self.mayPowerCycle(resumes: resumes))
        try await stage.control("rig deaf power")
        for _ in 0..<2 { stage.passMinute() }
        let wasScanning = try await stage.central.nextRecord("resetting") {
            if case .state(.resetting) = $0.event { $0.isScanning } else { nil }
        }
        #expect(wasScanning == resumes)
        try await stage.next(.poweredOn)
        #expect(stage.central.manager.isScanning == resumes)
        if !resumes { stage.central.manager.scanForPeripherals(withServices: nil) }
        await stage.waitForStart(3)
        try await stage.hearBeacon()
        #expect(stage.states == [.poweredOn, .resetting, .poweredOn])
        #expect(stage.powerCalls == 2 && stage.logged(Self.cycled) == 1)
        #expect(stage.logged(Self.restarted) == 1 && stage.logged(Self.advice) == 0)
    }

    @Test("an adapter that stays silent after a power cycle is left alone until something is heard")
    func trueSilence() async throws {
        let stage = try await Stage(options: Self.mayPowerCycle(resumes: true))
        try await stage.control("rig deaf on")
        for _ in 0..<2 { stage.passMinute() }
        try await stage.next(.resetting)
        try await stage.next(.poweredOn)
        await stage.waitForStart(3)
        for _ in 0..<5 { stage.passMinute() }
        #expect(stage.powerCalls == 2 && stage.logged(Self.cycled) == 1)
        #expect(stage.states == [.poweredOn, .resetting, .poweredOn])
        await stage.waitForStart(4)
        try await stage.control("rig deaf off")
        try await stage.hearBeacon()
        try await stage.control("rig deaf power")
        for _ in 0..<3 { stage.passMinute() }
        try await stage.next(.resetting)
        try await stage.next(.poweredOn)
        #expect(stage.powerCalls == 4)
    }

    @Test(
        "a silent adapter is not switched off if there is a link, a connect request, or a central using published services"
    )
    func connections() async throws {
        let stage = try await Stage(options: Self.mayPowerCycle)
        let central = stage.central
        stage.world.heart.advertise(true)
        let heart = try await central.next("heart") {
            if case .discovered(let p, _, _) = $0, p.name == "Rig Heart" { p } else { nil }
        }
        /// A doubt about one scan does not count for the next.
        func silentScan() {
            central.manager.stopScan()
            LogCapture.shared.forget()
            central.manager.scanForPeripherals(withServices: nil)
            for _ in 0..<3 { stage.passMinute() }
            #expect(stage.logged(Self.advice) == 1 && stage.logged(Self.cycled) == 0 && stage.powerCalls == 0)
        }
        try await central.connect(heart)
        try await stage.control("rig deaf on")
        silentScan()
        #expect(heart.state == .connected)
        try await central.disconnect(heart)
        stage.world.heart.vanish()
        central.manager.connect(heart)
        silentScan()
        #expect(heart.state == .connecting)
        try await central.disconnect(heart)
        let publisher = Publisher(stage.world)
        try await publisher.powerOn()
        let beat = local(0x41, [.notify])
        try await publisher.add(localService(0x40, [beat]))
        try await publisher.advertise()
        try await stage.world.connect()
        try await stage.control("central subscribe \(beat.uuid.line)")
        _ = try await publisher.nextSubscription()
        silentScan()
        #expect(stage.states == [.poweredOn])
        try await stage.control("central disconnect")
        _ = try await publisher.nextUnsubscription()
        for _ in 0..<2 { stage.passMinute() }
        #expect(stage.powerCalls == 0, "the steps for this scan are used up")
    }

    @Test("an adapter that cannot be switched off stays on; one that does not switch on again is off")
    func fails() async throws {
        let stage = try await Stage(options: Self.mayPowerCycle)
        let simulator = stage.world.simulator
        let blocked = SimulatorFault("Set", .fail(name: "org.bluez.Error.Blocked", message: "Blocked through rfkill"))
        simulator.inject(blocked)
        for _ in 0..<2 { stage.passMinute() }
        try await LogCapture.shared.expect("could not power off hci0", "org.bluez.Error.Blocked")
        #expect(stage.states == [.poweredOn] && stage.powerCalls == 1)
        try await stage.control("rig power off")
        try await stage.next(.poweredOff)
        try await stage.control("rig power on")
        try await stage.next(.poweredOn)
        stage.central.manager.scanForPeripherals(withServices: nil)
        await stage.waitForStart(3)
        try await stage.hearBeacon()
        // The first is for going off.
        simulator.inject(SimulatorFault("Set", .delay(.milliseconds(1))))
        simulator.inject(blocked)
        for _ in 0..<3 { stage.passMinute() }
        try await stage.next(.resetting)
        try await stage.next(.poweredOff)
        try await LogCapture.shared.expect("could not power on hci0", "org.bluez.Error.Blocked")
    }
}
