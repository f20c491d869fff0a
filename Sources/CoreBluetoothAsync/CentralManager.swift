public import CoreBluetooth
import Synchronization

/// The central role with Swift concurrency: scans for peripherals, connects to them, and tells what happens to
/// Bluetooth.
///
/// ```swift
/// let central = CentralManager()
/// for try await found in central.scanForPeripherals(withServices: [CBUUID(string: "180D")]) {
///     try await central.connect(found.peripheral)
///     let measurement = try await found.peripheral.discoverCharacteristic(
///         CBUUID(string: "2A37"), in: CBUUID(string: "180D"))
///     for try await data in found.peripheral.values(for: measurement) { print(data) }
/// }
/// ```
///
/// All methods may be called from any task and any actor. Operations begin in the order of their calls. Cancelling a
/// task cancels what it waits for, with `CancellationError`: a pending connect is called off, a scan is stopped, a
/// request that was not made yet is never made. A time limit is therefore the caller's own, with a task group.
///
/// Releasing the manager ends everything, as with `CBCentralManager`: its scan, its connections, all sequences, and
/// whatever its peripherals wait for, with ``BluetoothError/managerReleased``.
public final class CentralManager: Sendable {
    let core: CentralCore

    /// Makes a `CBCentralManager`. It works at once; the first operation waits until the state of Bluetooth is known.
    /// - Parameter options: As in `CBCentralManager(delegate:queue:options:)`.
    public init(options: sending [String: Any]? = nil) {
        core = CentralCore()
        core.start(options: options)
    }

    deinit { core.post { $0.delegate.shutDown() } }

    // MARK: State

    /// The current state. ``states`` has its changes.
    public var state: CBManagerState { core.state.withLock { $0 } }

    /// The current state of Bluetooth, and then each change. After `.poweredOff` and below, nothing that was begun
    /// before exists any more, with a restore identifier as well: connections and sequences have ended with
    /// ``BluetoothError/unavailable(_:)``, and are begun again when it is on. Only what was restored, while Bluetooth
    /// has not been on yet, waits for it.
    public var states: EventSequence<CBManagerState, Never> { core.sequence { $0.addStates($1) } }

    /// Waits until Bluetooth is on.
    /// - Throws: ``BluetoothError/unavailable(_:)`` if it is switched off, not permitted, or does not exist.
    public func waitUntilReady() async throws { try await states.waitUntilReady() }

    /// What happens to the manager and its peripherals, whether or not a task waits for it.
    public var events: EventSequence<CentralManagerEvent, Never> { core.sequence { $0.events.add($1) } }

    /// What was preserved from an earlier run of this program, if it gave `CBCentralManagerOptionRestoreIdentifierKey`
    /// in both. Has one element or none, then ends. The first consumer that takes it gets it, however late it comes;
    /// not after a restart of bluetoothd, which has ended it.
    ///
    /// The manager keeps the restored peripherals connected until then.
    public var restoredState: EventSequence<RestoredCentralState, Never> {
        core.sequence(once: core.restored) { $0.addRestoration($1) }
    }

    // MARK: Scanning

    /// Scans until the sequence ends or is released. Switching Bluetooth off ends it with
    /// ``BluetoothError/unavailable(_:)``.
    ///
    /// A manager has one scan. One with the same parameters, in any order of the services, shares it; one with other
    /// parameters replaces it, and the first sequence ends with ``BluetoothError/scanReplaced``.
    /// - Parameters:
    ///   - serviceUUIDs: Reports peripherals that advertise one of these; nil or empty: all.
    ///   - allowDuplicates: Whether to report each packet that is received, instead of each peripheral once, and once
    ///     more when another sequence begins to share the scan.
    ///   - solicitedServiceUUIDs: Reports also peripherals that solicit one of these.
    ///   - bufferSize: How many reports wait at most; see ``EventSequence``.
    public func scanForPeripherals(
        withServices serviceUUIDs: [CBUUID]? = nil, allowDuplicates: Bool = false,
        solicitedServiceUUIDs: [CBUUID]? = nil, bufferSize: Int = 256
    ) -> EventSequence<ScanData, any Error> {
        core.scan(
            ScanParameters(
                services: serviceUUIDs, solicited: solicitedServiceUUIDs, allowsDuplicates: allowDuplicates),
            bufferSize: bufferSize)
    }

    // MARK: Peripherals

    /// The peripherals with these identifiers that this machine knows, whether they are near or not. Empty unless
    /// Bluetooth is on.
    public func retrievePeripherals(withIdentifiers identifiers: [UUID]) async -> [Peripheral] {
        try? await states.awaitKnownState(state)
        return await core.retrieve { $0.retrievePeripherals(withIdentifiers: identifiers) }
    }

    /// The peripherals that are connected to this machine, by whichever program, and have one of these services.
    /// Connect to them before use. Empty unless Bluetooth is on, and if the task is cancelled.
    public func retrieveConnectedPeripherals(
        withServices serviceUUIDs: [CBUUID], isolation: isolated (any Actor)? = #isolation
    ) async -> [Peripheral] {
        let data = serviceUUIDs.map(\.data)
        try? await states.awaitKnownState(state)
        return await core.retrieveFromSystem {
            $0.retrieveConnectedPeripherals(withServices: data.map { CBUUID(data: $0) })
        }
    }

    /// Connects, and waits for it without limit: until the peripheral is in range. Several tasks may connect to one
    /// peripheral; if all of them are cancelled before it is connected, the attempt is called off: also one that was
    /// restored, or an automatic reconnection that they have waited for.
    ///
    /// As long as a reference to the peripheral exists, it remains connected.
    /// - Parameters:
    ///   - peripheral: One that this manager has found, retrieved or restored.
    ///   - options: As in `CBCentralManager.connect(_:options:)`. With `CBConnectPeripheralOptionEnableAutoReconnect`,
    ///     a lost connection is made again automatically; ``events`` tells of it. If it is connected or being
    ///     connected, or was restored so, they replace the ones before; nil leaves those.
    /// - Throws: `CBError` if there can be no connection, it was ended by ``cancelPeripheralConnection(_:)`` meanwhile,
    ///   or the peripheral is another manager's (`CBError.unknownDevice`);
    ///   ``BluetoothError/unavailable(_:)`` if Bluetooth is not on, or goes off.
    public func connect(_ peripheral: Peripheral, options: sending [String: Any]? = nil) async throws {
        let options = Parcel(options)
        try await states.awaitKnownState(state)
        try await core.connect(peripheral, options)
    }

    /// Ends the connection, or the attempt to make one, and waits for it. Operations that are under way throw
    /// `CBError.operationCancelled`. If there is no connection, it does nothing. One that was restored, while Bluetooth
    /// has not been on yet, is called off without waiting, and ends when it is; if the program ends before that, it is
    /// restored again.
    ///
    /// Cancelling the task ends only the waiting.
    /// - Throws: ``BluetoothError/unavailable(_:)`` if Bluetooth is not on: then there is no connection either.
    public func cancelPeripheralConnection(_ peripheral: Peripheral) async throws {
        try await core.disconnect(peripheral)
    }

    #if !os(macOS)
    /// Connections and disconnections of peripherals that match, by whichever program: `registerForConnectionEvents`. A
    /// manager has one such registration; the last one counts whose sequence has not ended.
    /// - Parameters:
    ///   - services: Matches peripherals that have one of them.
    ///   - peripherals: Matches the peripherals with these identifiers.
    public func connectionEvents(
        matchingServices services: [CBUUID] = [], peripherals: [UUID] = []
    ) -> EventSequence<ConnectionEvent, Never> {
        let services = services.map(\.data)
        return core.sequence(
            add: { $0.addConnectionEvents($1, services, peripherals) }, onEnd: { $0.pruneConnectionEvents() })
    }
    #endif
}

/// What happened to a ``CentralManager`` or one of its peripherals.
public enum CentralManagerEvent: Sendable {
    /// The state of Bluetooth has changed.
    case didUpdateState(CBManagerState)
    /// The peripheral is connected.
    case didConnectPeripheral(Peripheral)
    /// A connection could not be made.
    case didFailToConnect(Peripheral, (any Error)?)
    /// The connection has ended, because of the error, or without one because the app has asked for it.
    case didDisconnectPeripheral(Peripheral, isReconnecting: Bool, (any Error)?)
}

#if !os(macOS)
/// A peripheral was connected to or disconnected from this machine, by whichever program.
public struct ConnectionEvent: Sendable {
    /// What has happened.
    public let event: CBConnectionEvent
    /// The peer, which need not be connected to this manager.
    public let peripheral: Peripheral
}
#endif

/// What a ``CentralManager`` had under way when its program ended.
public struct RestoredCentralState: Sendable {
    /// Peripherals that are connected or being connected. Those that are not kept are disconnected.
    public let peripherals: [Peripheral]
    /// The scan, which continues: iterate it, or let go of it, which ends it. Nil if there was none.
    public let scan: EventSequence<ScanData, any Error>?
    /// The PSMs of the L2CAP channels that were open, by peripheral. They have ended with the earlier process; open
    /// them again if they are needed. Empty on Apple's systems, which do not tell.
    public let endedChannels: [Peripheral: [CBL2CAPPSM]]
    private let scanServices: [Data]
    /// Whether the scan reports each packet.
    public let scanAllowsDuplicates: Bool

    init(
        peripherals: [Peripheral], parameters: ScanParameters?, scan: EventSequence<ScanData, any Error>?,
        endedChannels: [Peripheral: [CBL2CAPPSM]]
    ) {
        (self.peripherals, self.scan, self.endedChannels) = (peripherals, scan, endedChannels)
        scanServices = parameters?.services ?? []
        scanAllowsDuplicates = parameters?.allowsDuplicates ?? false
    }

    /// The services that were scanned for; nil without a scan, or if it was for all.
    public var scanServiceUUIDs: [CBUUID]? {
        scanServices.isEmpty ? nil : scanServices.map { CBUUID(data: $0) }
    }
}
