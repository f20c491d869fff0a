import CoreBluetooth
import CoreBluetoothAsync
import Foundation
import Testing

/// The API that the app of a scenario uses. A scenario about neither is written once, for an app that both can make.
enum API: String, CaseIterable {
    case delegates, async

    /// An app with a manager that is powered on.
    func central(_ world: any World, options: [String: any Sendable] = [:]) async throws -> any CentralApp {
        let app: any CentralApp = self == .async ? AsyncCentralApp(world, options) : DelegateCentralApp(world, options)
        try await app.awaitState(.poweredOn)
        return app
    }
}

/// An app that is a central. It knows peripherals by their identifiers.
protocol CentralApp: Sendable {
    func awaitState(_ state: CBManagerState) async throws

    /// Scans, with all reports, until `stopScan`.
    /// - Returns: The names that are advertised.
    func scan(_ service: CBUUID) async throws -> EventLog<String>
    func stopScan() async
    func scanHasEnded() async throws -> Bool
    func find(_ name: String, _ service: CBUUID) async throws -> UUID
    /// Gets a peripheral that BlueZ knows.
    func retrieve(_ identifier: UUID) async throws
    func retrieveConnected(_ services: [CBUUID]) async throws -> [UUID]
    func object(of peripheral: UUID) throws -> ObjectIdentifier
    func state(of peripheral: UUID) throws -> CBPeripheralState

    func connect(_ peripheral: UUID) async throws
    func disconnect(_ peripheral: UUID) async throws
    /// Discovers a characteristic, and reads it.
    func read(_ characteristic: CBUUID, of service: CBUUID, on peripheral: UUID) async throws -> Data
    /// Discovers a characteristic, and subscribes to it.
    func values(of characteristic: CBUUID, of service: CBUUID, on peripheral: UUID) async throws -> EventLog<Data>
    /// Ends what `values` began.
    func unsubscribe(_ peripheral: UUID) async throws
    /// Reads again and again while `cause` makes the manager reset: what waits ends as its API says, and nothing else
    /// comes.
    func reset(reading peripheral: UUID, by cause: () async throws -> Void) async throws

    /// Lets go of all it has.
    func release() async throws
}

// MARK: Delegates

private final class DelegateCentralApp: CentralApp, @unchecked Sendable {  // holds: what changes is in boxes
    private let central: Central
    private let observers: ProtectedBox<[(Central.Event) -> Void]>
    private let peripherals = ProtectedBox<[UUID: CBPeripheral]>([:])
    private let subscriptions = ProtectedBox<[UUID: CBCharacteristic]>([:])

    init(_ world: any World, _ options: [String: any Sendable]) {
        let observers = ProtectedBox<[(Central.Event) -> Void]>([])
        self.observers = observers
        central = Central(world, options: options) { _, event in for note in observers.withLock({ $0 }) { note(event) }
        }
    }

    /// What `pick` makes of events from now on.
    private func log<T>(_ pick: @escaping (Central.Event) -> T?) -> EventLog<T> {
        let log = EventLog<T>()
        observers.withLock { $0.append { event in if let found = pick(event) { log.append(found) } } }
        return log
    }

    func awaitState(_ state: CBManagerState) async throws {
        try await central.next("state \(state.rawValue)") { if case .state(state) = $0 { true } else { nil } }
    }

    func scan(_ service: CBUUID) async throws -> EventLog<String> {
        let names = log { event in
            guard case .discovered(_, let data, _) = event else { return String?.none }
            return data[CBAdvertisementDataLocalNameKey] as? String ?? ""
        }
        central.manager.scanForPeripherals(
            withServices: [service], options: [CBCentralManagerScanOptionAllowDuplicatesKey: true])
        return names
    }

    func stopScan() async { central.manager.stopScan() }
    func scanHasEnded() async throws -> Bool { !central.manager.isScanning }

    func find(_ name: String, _ service: CBUUID) async throws -> UUID {
        note(try await central.find(name, services: [service]))
    }

    func retrieve(_ identifier: UUID) async throws {
        _ = note(try #require(central.manager.retrievePeripherals(withIdentifiers: [identifier]).first))
    }

    func retrieveConnected(_ services: [CBUUID]) async throws -> [UUID] {
        central.manager.retrieveConnectedPeripherals(withServices: services).map(note)
    }

    private func note(_ peripheral: CBPeripheral) -> UUID {
        peripherals.withLock { $0[peripheral.identifier] = peripheral }
        return peripheral.identifier
    }

    private func known(_ identifier: UUID) throws -> CBPeripheral {
        try #require(peripherals.withLock { $0[identifier] })
    }

    func object(of peripheral: UUID) throws -> ObjectIdentifier { ObjectIdentifier(try known(peripheral)) }
    func state(of peripheral: UUID) throws -> CBPeripheralState { try known(peripheral).state }
    func connect(_ peripheral: UUID) async throws { try await central.connect(known(peripheral)) }
    func disconnect(_ peripheral: UUID) async throws { try await central.disconnect(known(peripheral)) }

    func read(_ characteristic: CBUUID, of service: CBUUID, on peripheral: UUID) async throws -> Data {
        try await central.read(central.characteristic(characteristic, of: service, on: known(peripheral))).get()
    }

    func values(of characteristic: CBUUID, of service: CBUUID, on peripheral: UUID) async throws -> EventLog<Data> {
        let found = try await central.characteristic(characteristic, of: service, on: known(peripheral))
        subscriptions.withLock { $0[peripheral] = found }
        let values = log { if case .value(found, let value?, nil) = $0 { value } else { Data?.none } }
        #expect(try await central.setNotify(true, found) == nil)
        return values
    }

    func unsubscribe(_ peripheral: UUID) async throws {
        let characteristic = try #require(subscriptions.withLock { $0.removeValue(forKey: peripheral) })
        #expect(try await central.setNotify(false, characteristic) == nil)
    }

    func reset(reading peripheral: UUID, by cause: () async throws -> Void) async throws {
        let characteristic = try #require(try known(peripheral).services?.first?.characteristics?.first)
        let losses = try await LossWatch(central.world)
        central.forgetRecords()
        try await cause()
        if central.manager.state == .poweredOn { try known(peripheral).readValue(for: characteristic) }
        try await awaitState(.resetting)
        // An adapter that is pulled may have answered before.
        let others = central.events.filter {
            if case .state = $0 { false } else if case .value(_, _, nil) = $0 { false } else { true }
        }
        let lost = others.compactMap { if case .disconnected(let peer, _, _) = $0 { peer.identifier } else { nil } }
        #expect(others.isEmpty || losses.isEarly && lost.count == others.count && Set(lost).count == lost.count)
    }

    func release() async throws {
        central.forgetRecords()
        observers.withLock { $0 = [] }
        peripherals.withLock { $0 = [:] }
        subscriptions.withLock { $0 = [:] }
        central.release()
    }
}

// MARK: async

private final class AsyncCentralApp: CentralApp {
    private struct State {
        var manager: CentralManager?
        var peripherals: [UUID: CoreBluetoothAsync.Peripheral] = [:]
        var scan: Task<Void, any Error>?
        var subscriptions: [UUID: Task<Void, any Error>] = [:]
    }

    private let world: any World
    private let state: ProtectedBox<State>
    private let states = EventLog<CBManagerState>()
    private let hasEnded: Task<Void, Never>

    init(_ world: any World, _ options: [String: any Sendable]) {
        self.world = world
        let manager = CentralManager(options: world.managerOptions.merging(options) { _, new in new })
        let sequence = manager.states
        hasEnded = Task { [states] in for await state in sequence { states.append(state) } }
        state = ProtectedBox(State(manager: manager))
    }

    private var manager: CentralManager { get throws { try #require(state.withLock { $0.manager }) } }

    func awaitState(_ state: CBManagerState) async throws {
        try await states.next("state \(state.rawValue)") { $0 == state ? true : nil }
    }

    func scan(_ service: CBUUID) async throws -> EventLog<String> {
        let log = EventLog<String>()
        let scan = try manager.scanForPeripherals(withServices: [service], allowDuplicates: true)
        let task = Task { for try await found in scan { log.append(found.advertisementData.localName ?? "") } }
        state.withLock { $0.scan = task }
        return log
    }

    func stopScan() async { state.withLock { $0.scan }?.cancel() }

    func scanHasEnded() async throws -> Bool {
        let scan = try #require(state.withLock { $0.scan })
        return await thrown { try await within { try await scan.value } } is BluetoothError
    }

    func find(_ name: String, _ service: CBUUID) async throws -> UUID {
        note(try await Scenarios.AsyncCentralScenarios.find(name, service, manager))
    }

    func retrieve(_ identifier: UUID) async throws {
        let found = try await within { [manager = try manager] in
            await manager.retrievePeripherals(withIdentifiers: [identifier])
        }
        _ = note(try #require(found.first))
    }

    func retrieveConnected(_ services: [CBUUID]) async throws -> [UUID] {
        try await within { [manager = try manager] in
            await manager.retrieveConnectedPeripherals(withServices: services)
        }.map(note)
    }

    private func note(_ peripheral: CoreBluetoothAsync.Peripheral) -> UUID {
        state.withLock { $0.peripherals[peripheral.identifier] = peripheral }
        return peripheral.identifier
    }

    private func known(_ identifier: UUID) throws -> CoreBluetoothAsync.Peripheral {
        try #require(state.withLock { $0.peripherals[identifier] })
    }

    func object(of peripheral: UUID) throws -> ObjectIdentifier { ObjectIdentifier(try known(peripheral)) }
    func state(of peripheral: UUID) throws -> CBPeripheralState { try known(peripheral).state }

    func connect(_ peripheral: UUID) async throws {
        try await within(3 * world_deadline) { [manager = try manager, peripheral = try known(peripheral)] in
            try await manager.connect(peripheral)
        }
    }

    func disconnect(_ peripheral: UUID) async throws {
        try await within { [manager = try manager, peripheral = try known(peripheral)] in
            try await manager.cancelPeripheralConnection(peripheral)
        }
    }

    func read(_ characteristic: CBUUID, of service: CBUUID, on peripheral: UUID) async throws -> Data {
        try await within { [peripheral = try known(peripheral)] in
            try await peripheral.readValue(for: peripheral.discoverCharacteristic(characteristic, in: service))
        }
    }

    func values(of characteristic: CBUUID, of service: CBUUID, on peripheral: UUID) async throws -> EventLog<Data> {
        let (known, log) = (try known(peripheral), EventLog<Data>())
        let found = try await within {
            let found = try await known.discoverCharacteristic(characteristic, in: service)
            try await known.setNotifyValue(true, for: found)
            return found
        }
        let consumer = Task { for try await value in known.values(for: found) { log.append(value) } }
        state.withLock { $0.subscriptions[peripheral] = consumer }
        return log
    }

    func unsubscribe(_ peripheral: UUID) async throws {
        let consumer = try #require(state.withLock { $0.subscriptions.removeValue(forKey: peripheral) })
        consumer.cancel()
        _ = await consumer.result
    }

    func reset(reading peripheral: UUID, by cause: () async throws -> Void) async throws {
        let (known, losses) = (try known(peripheral), try await LossWatch(world))
        try await cause()
        let error = await thrown { try await within { while true { _ = try await known.readRSSI() } } }
        // An adapter may go off before it is gone.
        let end = error as? BluetoothError
        let isReset = end == .unavailable(.resetting) || end == .unavailable(.poweredOff)
        let code = (error as? CBError)?.code
        let isLoss = code == .peripheralDisconnected || code == .notConnected  // between two calls
        #expect(isReset || losses.isEarly && isLoss, "\(String(describing: error))")
        try await awaitState(.resetting)
    }

    func release() async throws {
        state.withLock {
            $0.scan?.cancel()
            for consumer in $0.subscriptions.values { consumer.cancel() }
            $0 = State()
        }
        try await within { [hasEnded] in await hasEnded.value }
    }
}
