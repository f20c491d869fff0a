import CoreBluetooth
import Synchronization

/// What a scan looks for.
struct ScanParameters: Equatable, Sendable {
    var services: [Data]
    var solicited: [Data]
    var allowsDuplicates: Bool

    init(services: [CBUUID]?, solicited: [CBUUID]?, allowsDuplicates: Bool) {
        self.services = services?.map(\.data) ?? []
        self.solicited = solicited?.map(\.data) ?? []
        self.allowsDuplicates = allowsDuplicates
    }

    /// As in CoreBluetooth, order, repetitions and spelling of the services make no difference.
    static func == (one: ScanParameters, other: ScanParameters) -> Bool {
        one.allowsDuplicates == other.allowsDuplicates && areSame(one.services, other.services)
            && areSame(one.solicited, other.solicited)
    }

    private static func areSame(_ one: [Data], _ other: [Data]) -> Bool {
        Set(one.map { CBUUID(data: $0) }) == Set(other.map { CBUUID(data: $0) })
    }

    /// What was preserved; nil: no scan.
    init?(restored dictionary: [String: Any]) {
        let services = dictionary[CBCentralManagerRestoredStateScanServicesKey] as? [CBUUID]
        let options = dictionary[CBCentralManagerRestoredStateScanOptionsKey] as? [String: Any]
        guard services != nil || options != nil else { return nil }
        self.init(
            services: services, solicited: options?[CBCentralManagerScanOptionSolicitedServiceUUIDsKey] as? [CBUUID],
            allowsDuplicates: (options?[CBCentralManagerScanOptionAllowDuplicatesKey] as? NSNumber)?.boolValue ?? false)
    }

    var options: [String: Any] {
        var options: [String: Any] = [:]
        if allowsDuplicates { options[CBCentralManagerScanOptionAllowDuplicatesKey] = true }
        if !solicited.isEmpty {
            options[CBCentralManagerScanOptionSolicitedServiceUUIDsKey] = solicited.map { CBUUID(data: $0) }
        }
        return options
    }
}

#if !os(macOS)
/// What one consumer of connection events looks for. The manager has one registration: that of the last one that lives.
struct ConnectionEventFilter {
    weak var subscription: EventSubscription<ConnectionEvent, Never>?
    let services: [Data]
    let identifiers: [UUID]
}
#endif

/// The delegate of the `CBCentralManager`. Used on its queue only, by its callbacks and by ``CentralCore``, which runs
/// there.
final class CentralDelegate: NSObject, CBCentralManagerDelegate {
    private(set) var manager: CBCentralManager?
    private(set) weak var core: CentralCore?
    private(set) var peripherals: [UUID: PeripheralDelegate] = [:]
    let channels = ChannelTable()
    /// The pairing questions that the app's handlers answer, by peripheral.
    private var questions: [UUID: Task<Void, Never>] = [:]
    /// The tasks that wait for what the system knows.
    var retrievals: [UInt64: CheckedContinuation<[Peripheral], Never>] = [:]

    private var states = EventHub<CBManagerState, Never>()
    var events = EventHub<CentralManagerEvent, Never>()
    private var scan: ScanParameters?
    private var scans = EventHub<ScanData, any Error>()
    /// Those that came before the state was known.
    private var waitingScans: [WaitingScan] = []

    /// One that is let go of is not begun.
    private struct WaitingScan {
        weak var subscription: EventSubscription<ScanData, any Error>?
        let parameters: ScanParameters
    }
    private var restored: Restoration<RestoredCentralState>
    #if !os(macOS)
    private var connectionEvents: (hub: EventHub<ConnectionEvent, Never>, filters: [ConnectionEventFilter]) = (
        EventHub(), []
    )
    #endif

    init(_ restored: Once<RestoredCentralState>) {
        self.restored = Restoration(restored)
        super.init()
    }

    func start(_ core: CentralCore, options: [String: Any]?) {
        self.core = core
        manager = CBCentralManager(delegate: self, queue: core.executor.queue, options: withoutResuming(options))
    }

    /// The app has released the manager.
    func shutDown() {
        if let manager, manager.isScanning { manager.stopScan() }
        manager = nil
        endQuestions()
        channels.closeAll()
        endScans(BluetoothError.managerReleased)
        for peripheral in peripherals.values { peripheral.close(BluetoothError.managerReleased) }
        peripherals = [:]
        states.close()
        events.close()
        restored.end()
        #if !os(macOS)
        connectionEvents.hub.close()
        #endif
    }

    // MARK: Consumers

    func addStates(_ subscription: EventSubscription<CBManagerState, Never>) {
        guard let manager else { return subscription.finish(throwing: nil) }
        subscription.send(manager.state)
        states.add(subscription)
    }

    func addRestoration(_ subscription: EventSubscription<RestoredCentralState, Never>) {
        restored.add(subscription, isDecided: manager?.state != .unknown)
    }

    func pruneEvents() {
        states.prune()
        events.prune()
        restored.prune()
    }

    func addScan(_ subscription: EventSubscription<ScanData, any Error>, _ parameters: ScanParameters) {
        guard let manager else { return subscription.finish(throwing: BluetoothError.managerReleased) }
        switch manager.state {
        case .unknown: waitingScans.append(WaitingScan(subscription: subscription, parameters: parameters))
        case .poweredOn:
            if subscription.isEnded { return }
            if let scan, scan != parameters { scans.finish(throwing: BluetoothError.scanReplaced) }
            scans.add(subscription)
            if scan == parameters {
                if parameters.allowsDuplicates { return }
                // The scan has reported peripherals that the new consumer has yet to hear of: another one reports them
                // again.
                manager.stopScan()
            }
            scan = parameters
            manager.scanForPeripherals(
                withServices: parameters.services.isEmpty ? nil : parameters.services.map { CBUUID(data: $0) },
                options: parameters.options)
        default: subscription.finish(throwing: BluetoothError.unavailable(manager.state))
        }
    }

    func pruneScans() {
        waitingScans.removeAll { $0.subscription?.isEnded != false }
        scans.prune()
        guard scans.isEmpty, scan != nil else { return }
        scan = nil
        if let manager, manager.state == .poweredOn { manager.stopScan() }
    }

    private func endScans(_ error: any Error) {
        endWaitingScans(error)
        scan = nil
        scans.finish(throwing: error)
    }

    private func endWaitingScans(_ error: any Error) {
        for scan in waitingScans { scan.subscription?.finish(throwing: error) }
        waitingScans = []
    }

    #if !os(macOS)
    func addConnectionEvents(
        _ subscription: EventSubscription<ConnectionEvent, Never>, _ services: [Data], _ identifiers: [UUID]
    ) {
        connectionEvents.hub.add(subscription)
        connectionEvents.filters.append(
            ConnectionEventFilter(subscription: subscription, services: services, identifiers: identifiers))
        registerForConnectionEvents()
    }

    /// Possible only while Bluetooth is on, so this is also done when that comes to be.
    private func registerForConnectionEvents() {
        guard let manager, manager.state == .poweredOn, let last = connectionEvents.filters.last else { return }
        manager.registerForConnectionEvents(options: [
            .serviceUUIDs: last.services.map { CBUUID(data: $0) }, .peripheralUUIDs: last.identifiers,
        ])
    }

    func pruneConnectionEvents() {
        let count = connectionEvents.filters.count
        connectionEvents.hub.prune()
        connectionEvents.filters.removeAll { $0.subscription?.isEnded ?? true }
        guard count != connectionEvents.filters.count, let manager, manager.state == .poweredOn else { return }
        if connectionEvents.filters.isEmpty { manager.registerForConnectionEvents(options: nil) }
        registerForConnectionEvents()
    }

    func centralManager(
        _ central: CBCentralManager, connectionEventDidOccur event: CBConnectionEvent, for peripheral: CBPeripheral
    ) {
        guard !connectionEvents.hub.isEmpty, let handle = handle(peripheral) else { return }
        connectionEvents.hub.send(ConnectionEvent(event: event, peripheral: handle))
    }
    #endif

    // MARK: Peripherals

    /// The app's object of a peripheral: always the same one as long as the app keeps it.
    func handle(_ peripheral: CBPeripheral) -> Peripheral? {
        guard let core else { return nil }
        let identifier = peripheral.identifier
        let delegate = peripherals[identifier] ?? PeripheralDelegate(peripheral, of: self)
        peripherals[identifier] = delegate
        delegate.adopt(peripheral)
        let handle = delegate.handle ?? Peripheral(identifier: identifier, core: core)
        delegate.handle = handle
        delegate.updateHandle()
        return handle
    }

    func didRetrieve(_ found: [CBPeripheral], _ request: UInt64) {
        guard let continuation = retrievals.removeValue(forKey: request) else { return }
        continuation.resume(returning: manager == nil ? [] : found.compactMap { handle($0) })
    }

    /// A channel whose task was cancelled is closed when what this returns is released.
    func open(_ channel: CBL2CAPChannel) -> L2CAPChannel? { core.map { channels.add(channel, $0) } }

    /// The app has released its object. CoreBluetooth ends the connection of a peripheral that is released.
    func release(_ identifier: UUID) {
        guard let delegate = peripherals[identifier], delegate.handle == nil else { return }
        peripherals[identifier] = nil
        delegate.close(CBError(.operationCancelled))
    }

    // MARK: Pairing

    /// Has one of the app's handlers answer a question about a peripheral.
    func ask(_ peripheral: CBPeripheral, _ answer: @escaping @Sendable (Peripheral) async -> Void) {
        guard let handle = handle(peripheral) else { return }
        endQuestion(of: peripheral.identifier)
        questions[peripheral.identifier] = Task { await answer(handle) }
    }

    func endQuestion(of peripheral: UUID) { questions.removeValue(forKey: peripheral)?.cancel() }

    private func endQuestions() {
        for question in questions.values { question.cancel() }
        questions = [:]
    }

    // MARK: Callbacks

    func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {
        let found = dict[CBCentralManagerRestoredStatePeripheralsKey] as? [CBPeripheral] ?? []
        let handles = found.compactMap { handle($0) }
        for peripheral in found { peripherals[peripheral.identifier]?.keepEarlyValues() }
        scan = ScanParameters(restored: dict)
        let channels = central.endedChannels(in: dict)
        restored.once.put(
            RestoredCentralState(
                peripherals: handles, parameters: scan,
                // It has a consumer before the first report, and ends when the app lets go of it.
                scan: scan.flatMap { scan in core?.scan(scan) { $0.scans.add($1) } },
                endedChannels: Dictionary(
                    handles.compactMap { handle in channels[handle.identifier].map { (handle, $0) } }
                ) { first, _ in first }))
    }

    func centralManagerDidUpdateState(_ central: CBCentralManager) {
        let state = central.state
        core?.state.withLock { $0 = state }
        if state != .poweredOn {
            endQuestions()
            // What the system still answers are objects from before.
            for continuation in retrievals.values { continuation.resume(returning: []) }
            retrievals = [:]
        }
        if state == .poweredOn {
            restored.hasBeenOn = true
            for delegate in peripherals.values { delegate.bluetoothIsOn() }
            // The app has let go of the restored one meanwhile.
            if scans.isEmpty, central.isScanning { central.stopScan() }
        } else if restored.hasBeenOn {
            let error = BluetoothError.unavailable(state)
            endScans(error)
            if state != .poweredOff { restored.end() }
            for delegate in peripherals.values { delegate.reset(error, isInvalid: state != .poweredOff) }
        } else {
            let error = BluetoothError.unavailable(state)
            endWaitingScans(error)
            for delegate in peripherals.values { delegate.suspend(error) }
        }
        states.send(state)
        events.send(.didUpdateState(state))
        restored.decide()
        #if !os(macOS)
        if state == .poweredOn { registerForConnectionEvents() }
        #endif
        let scans = waitingScans
        waitingScans = []
        for scan in scans {
            if let subscription = scan.subscription { addScan(subscription, scan.parameters) }
        }
    }

    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) {
        guard !scans.isEmpty, let handle = handle(peripheral) else { return }
        let rssi = RSSI.intValue
        scans.send(
            ScanData(
                peripheral: handle, advertisementData: AdvertisementData(advertisementData),
                rssi: rssi == 127 ? nil : rssi))
    }

    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        guard let delegate = peripherals[peripheral.identifier] else { return }
        let isNews = !delegate.isConnected  // not where further options were given
        delegate.didConnect()
        if isNews, let handle = delegate.handle { events.send(.didConnectPeripheral(handle)) }
    }

    func centralManager(_ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?) {
        guard let delegate = peripherals[peripheral.identifier] else { return }
        delegate.didEnd(error ?? CBError(.connectionFailed))
        if let handle = delegate.handle { events.send(.didFailToConnect(handle, error)) }
    }

    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
    ) {
        guard let delegate = peripherals[peripheral.identifier] else { return }
        delegate.didEnd(error ?? CBError(.operationCancelled), isReconnecting: isReconnecting)
        if let handle = delegate.handle {
            events.send(.didDisconnectPeripheral(handle, isReconnecting: isReconnecting, error))
        }
    }
}
