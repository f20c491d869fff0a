import CoreBluetooth
import CoreBluetoothAsync
import Foundation
import Testing

@testable import BluezKit

/// One bad peripheral among good ones, and the good ones are measured: whatever one peripheral does, the apps of the
/// others notice nothing. In the simulator and against the real bluetoothd, by delegates and with `async`.
extension Scenarios {
    @Suite struct StrangersScenarios {
        enum Kind: String, CaseIterable {
            /// Demands a pairing, which is refused; its app connects again whenever the link ends.
            case locked
            /// Changes its services while they are read.
            case changing
            /// Answers a read never.
            case silent
            /// Notifies a lot. bluetoothd handles calls of programs only when no link has anything for it
            /// (`queue_dispatch` in gdbus/mainloop.c), and in the rig it takes longer for these values than they for
            /// their way: how long it keeps every program waiting, measured by a `Ping`, is no delay of ours.
            case flooding
            case vanishing, slow
        }

        // Slow: in the rig, four seconds of measurements for each kind, and BlueZ takes its time to make links and end
        // them.
        @Test(
            "a bad peripheral delays no value and no read of another one by a second",
            arguments: Kind.allCases, API.allCases)
        func others(_ kind: Kind, _ api: API) async throws {
            let world = try await Worlds.make()
            try await world.control("sink pairing justworks")
            try await world.control("sink forget")
            try await world.forget("F0:F1:F2:00:00:02")
            let good: any GoodApp = api == .async ? try await AsyncApp(world) : try await DelegateApp(world)
            // Ten a second; in the simulator, whose time is a hundredth, fifty.
            try await world.control("heart beat \(Worlds.isRig ? 10 : 0.5)")
            let bad = BadApp(kind, world)
            try await bad.began.next("it is connected") { $0 }
            // What the bad peripheral does, it does each time; a busy machine does not.
            var delays = (read: Duration.zero, gap: Duration.zero)
            for _ in 0..<10 {
                let isSlowedDown = kind == .flooding && Worlds.isRig
                delays = try await measure(good, ticks: Worlds.isRig ? 40 : 20, despiteBlueZ: isSlowedDown) { tick in
                    let (turn, rest) = tick.quotientAndRemainder(dividingBy: Worlds.isRig ? 10 : 2)
                    if rest == 0 { await misbehave(kind, world, isOdd: turn % 2 == 1) }
                }
                print("strangers: \(kind), \(api): worst read \(delays.read), worst gap between values \(delays.gap)")
                if max(delays.read, delays.gap) < .seconds(1) { break }
            }
            try await world.control("heart beat 0")
            #expect(delays.read < .seconds(1) && delays.gap < .seconds(1))
            await bad.release()
            _ = try? await world.control("sink return")
            _ = try? await world.control("sink services remove")
        }

        /// - Parameter isOdd: Turns each time.
        private func misbehave(_ kind: Kind, _ world: any World, isOdd: Bool) async {
            let line: String? =
                switch kind {
                case .changing: "sink services \(isOdd ? "remove" : "add")"
                case .silent: isOdd ? nil : "sink services add"
                case .vanishing: "sink \(isOdd ? "return" : "vanish")"
                case .flooding: "sink burst 0013 200 20 400"
                case .locked, .slow: nil
                }
            // The service may be there already, and a burst needs a link.
            if let line { _ = try? await world.control(line) }
        }

        /// With each value that comes, reads another one.
        /// - Parameter despiteBlueZ: Whether to deduct what a `Ping` to bluetoothd takes at the same time.
        private func measure(
            _ app: any GoodApp, ticks: Int, despiteBlueZ: Bool, each tick: @escaping @Sendable (Int) async -> Void
        ) async throws -> (read: Duration, gap: Duration) {
            _ = try await app.values.next("the first value") { $0 }
            let before = app.values.all.count
            let misbehaving = EventLog<Int>()
            // Not in between: some of what it does takes longer than a value.
            let driver = Task {
                for number in 0..<ticks {
                    guard try await misbehaving.next("a tick", { $0 }) >= 0 else { return }
                    await tick(number)
                }
            }
            var worst = Duration.zero
            for number in 0..<ticks {
                _ = try await app.values.next("a value") { $0 }
                misbehaving.append(number)
                let start = ContinuousClock.now
                async let answered = {
                    if despiteBlueZ { await bluetoothdHandlesCalls() }
                    return ContinuousClock.now
                }()
                try await app.read()
                let end = ContinuousClock.now
                worst = max(worst, min(despiteBlueZ ? await answered : start, end).duration(to: end))
            }
            misbehaving.append(-1)
            _ = await driver.result
            let times = app.values.all.dropFirst(before - 1)
            let gaps = zip(times, times.dropFirst()).map { $0.duration(to: $1) }
            return (worst, gaps.max() ?? .zero)
        }
    }
}

// MARK: - Apps

/// An app that uses the heart.
private protocol GoodApp: Sendable {
    /// When its values have come.
    var values: EventLog<ContinuousClock.Instant> { get }
    func read() async throws
}

private final class DelegateApp: GoodApp, @unchecked Sendable {  // holds: constant after init
    let values = EventLog<ContinuousClock.Instant>()
    private let central: Central
    private let location: CBCharacteristic

    init(_ world: any World) async throws {
        let measurement = ProtectedBox<CBCharacteristic?>(nil)
        central = Central(world) { [values] _, event in
            if case .value(let characteristic, _, nil) = event, characteristic === measurement.withLock({ $0 }) {
                values.append(.now)
            }
        }
        try await central.powerOn()
        let heart = try await central.find("Rig Heart", services: [CBUUID(string: "180D")])
        try await central.connect(heart)
        let found = try await central.characteristic(CBUUID(string: "2A37"), of: CBUUID(string: "180D"), on: heart)
        location = try await central.characteristic(CBUUID(string: "2A38"), of: CBUUID(string: "180D"), on: heart)
        measurement.withLock { $0 = found }
        #expect(try await central.setNotify(true, found) == nil)
    }

    func read() async throws { _ = try await central.read(location).get() }
}

private final class AsyncApp: GoodApp {
    let values = EventLog<ContinuousClock.Instant>()
    private let central: CentralManager
    private let heart: CoreBluetoothAsync.Peripheral
    private let location: Characteristic
    private let consumer: Task<Void, any Error>

    init(_ world: any World) async throws {
        let central = CentralManager(options: world.managerOptions)
        let heart = try await Scenarios.AsyncCentralScenarios.find("Rig Heart", CBUUID(string: "180D"), central)
        try await within { try await central.connect(heart) }
        let measurement = try await within {
            try await heart.discoverCharacteristic(CBUUID(string: "2A37"), in: CBUUID(string: "180D"))
        }
        location = try await within {
            try await heart.discoverCharacteristic(CBUUID(string: "2A38"), in: CBUUID(string: "180D"))
        }
        consumer = Task { [values] in for try await _ in heart.values(for: measurement) { values.append(.now) } }
        (self.central, self.heart) = (central, heart)
    }

    deinit { consumer.cancel() }

    func read() async throws { _ = try await within { [heart, location] in try await heart.readValue(for: location) } }
}

/// An app that uses the sink as documented, and connects again whenever its link ends.
private final class BadApp: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate, @unchecked Sendable {
    // holds: touched on the queue only, after init
    let began = EventLog<Bool>()
    private let kind: Scenarios.StrangersScenarios.Kind
    private let queue = DispatchQueue(label: "test.bad")
    private var manager: CBCentralManager?
    private var sink: CBPeripheral?

    init(_ kind: Scenarios.StrangersScenarios.Kind, _ world: any World) {
        self.kind = kind
        super.init()
        queue.sync { manager = CBCentralManager(delegate: self, queue: queue, options: world.managerOptions) }
    }

    /// The manager ends with its links.
    func release() async {
        await withCheckedContinuation { done in
            queue.async { [self] in
                (manager, sink) = (nil, nil)
                done.resume()
            }
        }
    }

    func centralManagerDidUpdateState(_ central: CBCentralManager) {
        guard central.state == .poweredOn else { return }
        let identifier = DeviceIdentity(address: 0xF0F1_F200_0002, isRandom: true).identifier
        sink = central.retrievePeripherals(withIdentifiers: [identifier]).first
        sink?.delegate = self
        if let sink { central.connect(sink) }
    }

    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        began.append(true)
        peripheral.discoverServices(nil)
    }

    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
    ) { central.connect(peripheral) }

    func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {
        peripheral.discoverServices(nil)
    }

    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        for service in peripheral.services ?? [] { peripheral.discoverCharacteristics(nil, for: service) }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        let wanted: Int =
            switch kind {
            case .locked: 0x16
            case .changing, .silent: 0x22
            case .flooding: 0x13
            case .vanishing: 0x10
            case .slow: 0x1B
            }
        for characteristic in service.characteristics ?? [] where characteristic.uuid == sinkUUID(wanted) {
            if kind == .flooding {
                peripheral.setNotifyValue(true, for: characteristic)
            } else {
                peripheral.readValue(for: characteristic)
            }
        }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        if kind == .slow || kind == .vanishing, error == nil { peripheral.readValue(for: characteristic) }
    }
}
