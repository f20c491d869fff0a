import BluezKitSimulator
import CoreBluetoothAsync
import Foundation
import Testing

@testable import BluezKit

/// Time that is moved by a test. Of what the library waits for, each kind is here: bluetoothd's answer, a pause between
/// two connects, the end of a power-off, an app's own clock.
@Suite("Simulator: a clock of its own")
struct SimulatorClockTests {
    /// The same for each day: a gateway with one sensor, which goes away, comes back, and outlives bluetoothd.
    private static func day() async throws -> [String] {
        let clock = SimulatorClock()
        let simulator = try await Simulator(clock: clock)
        let heart = simulator.add(.heartRateSensor())
        let gateway = Gateway(simulator)
        heart.notifyRepeatedly("2A37", every: .seconds(300)) { [0, UInt8($0 % 200)] }
        await clock.advance(by: .seconds(6 * 3600))
        heart.vanish()
        await clock.advance(by: .seconds(3600))
        heart.comeBack()
        await clock.advance(by: .seconds(11 * 3600))
        try await simulator.restartDaemon()
        await clock.advance(by: .seconds(6 * 3600))
        return gateway.trace
    }

    @Test("a day passes in seconds; each one is the same, to the millisecond")
    func days() async throws {
        let first = try await Self.day()
        let values = first.count { $0.contains("value") }
        #expect((273...276).contains(values), "every five minutes but for an hour: \(values)")
        let others = first.filter { !$0.contains("value") }.map { $0.split(separator: " ", maxSplits: 1).last ?? "" }
        #expect(
            others == [
                "state 5", "found", "connected", "notifying", "disconnected 7", "connected", "notifying", "state 1",
                "state 5", "found", "connected", "notifying",
            ])
        let count = Int(ProcessInfo.processInfo.environment["BLUEZKIT_DAYS"] ?? "") ?? 2
        for number in 1..<max(count, 2) {
            let next = try await Self.day()
            let difference = zip(first, next).first { $0 != $1 }
            #expect(
                next.count == first.count && difference == nil, "day \(number): \(difference.map { "\($0)" } ?? "")")
        }
    }

    @Test("what comes next waits for the clock, and has happened when it has moved")
    func advance() async throws {
        let clock = SimulatorClock()
        let simulator = try await Simulator(clock: clock)
        let heart = simulator.add(.heartRateSensor())
        let gateway = Gateway(simulator)
        // Bluetooth is found to be on, soon, as that takes no time; an advertisement does.
        #expect([[], ["0.0 state 5"]].contains(gateway.trace))
        await clock.advance(by: .seconds(2))
        #expect(gateway.last == "notifying")
        for number in 0..<50 {
            heart.notify("2A37", [0, UInt8(number)])
            await clock.advance(by: .zero)
            #expect(gateway.last == "value \(number)")
        }
    }

    @Test("a connect to a peripheral that is away takes as long as it is away, and no time")
    func absent() async throws {
        let clock = SimulatorClock()
        let simulator = try await Simulator(clock: clock)
        let heart = simulator.add(.heartRateSensor())
        let gateway = Gateway(simulator)
        await clock.advance(by: .seconds(2))
        heart.vanish()
        await clock.advance(by: .seconds(3 * 3600))
        #expect(gateway.last == "disconnected 7" && simulator.calls("Connect").count > 20, "it tries for hours")
        // The first attempt began as the link ended, and BlueZ may have lost it.
        #expect(simulator.calls("Disconnect").count <= 1, "no other one is called off")
        heart.comeBack()
        await clock.advance(by: .seconds(120))
        #expect(gateway.last == "notifying")
    }

    @Test("bluetoothd that hangs is noticed after the library's own time limit")
    func hangs() async throws {
        let clock = SimulatorClock()
        let simulator = try await Simulator(clock: clock)
        simulator.add(.heartRateSensor())
        let gateway = Gateway(simulator)
        await clock.advance(by: .seconds(2))
        simulator.hangDaemon()
        gateway.read()
        await clock.advance(by: .seconds(5))
        #expect(gateway.last == "notifying")
        await clock.advance(by: .seconds(60))
        #expect(gateway.last == "state 1")
        simulator.continueDaemon()
        await clock.advance(by: .seconds(60))
        #expect(gateway.trace.contains { $0.hasSuffix("state 5") } && gateway.last == "notifying")
    }

    @Test("a plan of hours is carried out while it is awaited")
    func plan() async throws {
        let clock = SimulatorClock()
        let simulator = try await Simulator(clock: clock)
        let heart = simulator.add(.heartRateSensor())
        let gateway = Gateway(simulator)
        await clock.advance(by: .seconds(2))
        let start = clock.now
        let plan = FaultPlan([
            .vanish(at: .seconds(3600), for: .seconds(1800)), .hangDaemon(at: .seconds(7200), for: .seconds(5)),
        ])
        await simulator.run(plan, on: heart).waitForEnd()
        #expect(start.duration(to: clock.now) == .seconds(7205))
        #expect(gateway.trace.count { $0.contains("disconnected") } == 1 && gateway.last == "notifying")
    }

    @Test("time on the air is time of the clock")
    func air() async throws {
        let clock = SimulatorClock()
        var options = SimulatorOptions()
        options.linkParameters = LinkParameters()
        var timing = SimulatorTiming.real
        timing.attRoundTrip = .zero
        let simulator = try await Simulator(timing: timing, options: options, clock: clock)
        let heart = simulator.add(.heartRateSensor())
        let central = simulator.central()
        try await central.connect(to: heart.address)
        let (start, used) = (clock.now, heart.linkUsage?.time ?? .zero)
        for _ in 0..<100 { _ = try await central.read("2A38") }
        let air = (heart.linkUsage?.time ?? .zero) - used
        #expect(start.duration(to: clock.now) == air && air > .seconds(1))
    }

    // MARK: Code that takes a clock

    /// What an app does whose sensor sends nothing: it connects again.
    private static func watch(
        _ central: CentralManager, clock: some Clock<Duration>, onReconnect: @escaping @Sendable () -> Void
    ) async throws {
        try await central.waitUntilReady()
        var found: Peripheral?
        for try await discovery in central.scanForPeripherals(withServices: [CBUUID(string: "180D")]) {
            found = discovery.peripheral
            break
        }
        guard let sensor = found else { return }
        while true {
            try await central.connect(sensor)
            let service = try await sensor.discoverServices([CBUUID(string: "180D")])[0]
            let measurement = try await sensor.discoverCharacteristics([CBUUID(string: "2A37")], for: service)[0]
            let lastValue = Protected(clock.now)
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask {
                    for try await _ in sensor.values(for: measurement) { lastValue.withLock { $0 = clock.now } }
                }
                group.addTask {
                    while case let due = lastValue.withLock({ $0 }).advanced(by: .seconds(10)), due > clock.now {
                        try await clock.sleep(until: due, tolerance: nil)
                    }
                }
                try await group.next()
                group.cancelAll()
            }
            onReconnect()
            try await central.cancelPeripheralConnection(sensor)
        }
    }

    @Test("an app's own time limit, with async: ten seconds without a value")
    func ownLimit() async throws {
        let clock = SimulatorClock()
        let simulator = try await Simulator(clock: clock)
        let heart = simulator.add(.heartRateSensor())
        let central = CentralManager(options: [BluezManagerOptionBusAddressKey: simulator.address])
        let (start, times) = (clock.now, Protected<[Duration]>([]))
        let task = Task {
            try await Self.watch(central, clock: clock) { times.withLock { $0.append(start.duration(to: clock.now)) } }
        }
        heart.notifyRepeatedly("2A37", every: .seconds(5), count: 5) { [0, UInt8($0)] }
        await clock.advance(by: .seconds(34))
        #expect(times.withLock { $0 } == [.seconds(30)], "the last value came after 20 s")
        await clock.advance(by: .seconds(600))
        #expect(times.withLock { $0.count } > 40)
        task.cancel()
        _ = await task.result
    }

    @Test("sleepers wake in order, each when those before it are done")
    func sleepers() async throws {
        let clock = SimulatorClock()
        let woken = Protected<[Int]>([])
        let tasks = (0..<100).map { number in
            Task {
                try await clock.sleep(for: .milliseconds((number * 37) % 100))
                woken.withLock { $0.append((number * 37) % 100) }
            }
        }
        await clock.advance(by: .milliseconds(50))
        #expect(woken.withLock { $0 } == Array(0...50))
        for task in tasks where woken.withLock({ $0.count }) == 51 { task.cancel() }
        for task in tasks { _ = await task.result }
        #expect(woken.withLock { $0 } == Array(0...50), "who is cancelled does not go on")
    }

    @Test("time passes while something runs, and no longer")
    func run() async throws {
        let clock = SimulatorClock()
        let start = clock.now
        let value = try await clock.run {
            try await clock.sleep(for: .seconds(3600))
            return 7
        }
        #expect(value == 7 && start.duration(to: clock.now) == .seconds(3600))
        await #expect(throws: SimulatorClock.Failure.timeLimit(.seconds(60))) {
            try await clock.run(within: .seconds(60)) { try await clock.sleep(for: .seconds(61)) }
        }
        #expect(start.duration(to: clock.now) <= .seconds(3660))
        struct Own: Error {}
        await #expect(throws: Own.self) { try await clock.run { throw Own() } }
    }

    @Test("bluetoothd may be stopped at any moment of a run")
    func stoppedWithin() async throws {
        let clock = SimulatorClock()
        let simulator = try await Simulator(clock: clock)
        for _ in 0..<20 {
            try await clock.run {
                try await clock.sleep(for: .seconds(3))
                simulator.hangDaemon()
                try await clock.sleep(for: .seconds(2))
                simulator.continueDaemon()
            }
        }
        #expect(clock.now.offset >= .seconds(100))
    }

    @Test("a sleep that begins while nothing is due is no end of the time limit; one that is over returns at once")
    func lateSleeps() async throws {
        let clock = SimulatorClock()
        let simulator = try await Simulator(clock: clock)
        for number in 0..<300 {
            try await clock.run {
                try await Task.sleep(for: .microseconds(number * 10))
                try await clock.sleep(for: .milliseconds(1))
            }
        }
        try await clock.sleep(until: clock.now)
        try await clock.sleep(for: .zero)
        withExtendedLifetime(simulator) {}
    }

    @Test("a bus address without the bus's identifier has the same time")
    func bareAddress() async throws {
        let clock = SimulatorClock()
        let simulator = try await Simulator(clock: clock)
        simulator.add(.heartRateSensor())
        let gateway = Gateway(simulator, String(simulator.address.prefix { $0 != "," }))
        await clock.advance(by: .seconds(2))
        #expect(gateway.last == "notifying")
        simulator.killApp()
        simulator.setPowered(false)
        await clock.advance(by: .seconds(2))
        #expect(gateway.last == "notifying", "it hears nothing of what follows")
    }

    @Test("with the real clock everything is the same, and takes its time")
    func real() async throws {
        let clock = SimulatorClock.real
        let start = ContinuousClock.now
        await clock.advance(by: .milliseconds(20))
        try await clock.sleep(for: .milliseconds(20))
        let value = try await clock.run { 7 }
        #expect(value == 7 && ContinuousClock.now - start >= .milliseconds(40))
    }

    @Test("20 simulators beside each other have 20 times")
    func many() async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 1...20 {
                group.addTask {
                    let clock = SimulatorClock()
                    let simulator = try await Simulator(clock: clock)
                    let heart = simulator.add(.heartRateSensor())
                    let gateway = Gateway(simulator)
                    await clock.advance(by: .seconds(2))
                    heart.notifyRepeatedly("2A37", every: .seconds(number), count: 3) { [0, UInt8($0)] }
                    await clock.advance(by: .seconds(3 * number))
                    #expect(gateway.last == "value 2")
                }
            }
            try await group.waitForAll()
        }
    }
}

/// An app that wants the values of one sensor, and notes what it hears, with the simulator's time.
private final class Gateway: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate, @unchecked Sendable {
    // holds: what changes is used on the manager's queue, or locked
    private let clock: SimulatorClock
    private let queue = DispatchQueue(label: "gateway")
    private let lines = Protected<[String]>([])
    private var central: CBCentralManager?
    private var sensor: CBPeripheral?

    init(_ simulator: Simulator, _ address: String? = nil) {
        clock = simulator.clock
        super.init()
        central = CBCentralManager(
            delegate: self, queue: queue, options: [BluezManagerOptionBusAddressKey: address ?? simulator.address])
    }

    /// `SECONDS EVENT`
    var trace: [String] { lines.withLock { $0 } }
    /// The last event, without its time.
    var last: String? { trace.last.flatMap { $0.split(separator: " ", maxSplits: 1).last.map(String.init) } }

    private func note(_ text: String) {
        let milliseconds = Int(clock.now.offset / .milliseconds(1))
        lines.withLock { $0.append("\(Double(milliseconds) / 1000) \(text)") }
    }

    /// Reads something, so that a call is under way.
    func read() { queue.sync { sensor?.readRSSI() } }

    func centralManagerDidUpdateState(_ central: CBCentralManager) {
        note("state \(central.state.rawValue)")
        if central.state == .poweredOn { central.scanForPeripherals(withServices: [CBUUID(string: "180D")]) }
    }

    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) {
        note("found")
        central.stopScan()
        sensor = peripheral
        peripheral.delegate = self
        central.connect(peripheral)
    }

    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        note("connected")
        peripheral.discoverServices([CBUUID(string: "180D")])
    }

    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
    ) {
        note("disconnected \((error as? CBError)?.errorCode ?? 0)")
        central.connect(peripheral)
    }

    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        for service in peripheral.services ?? [] { peripheral.discoverCharacteristics(nil, for: service) }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        for characteristic in service.characteristics ?? [] where characteristic.properties.contains(.notify) {
            peripheral.setNotifyValue(true, for: characteristic)
        }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        note(characteristic.isNotifying ? "notifying" : "not notifying")
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        note("value \(characteristic.value?.last ?? 0)")
    }
}
