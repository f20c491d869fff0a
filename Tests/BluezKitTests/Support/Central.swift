import CoreBluetooth
import Foundation
import Testing

/// A central manager with a delegate that notes every callback: what came, in which order, on which queue, and what the
/// objects said at that moment. Tests wait for what they expect, with a generous deadline, and never sleep.
final class Central: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate, @unchecked Sendable {
    // holds: the log is safe; the rest is constant after init, or touched on `queue` only
    enum Event {
        case state(CBManagerState)
        case discovered(CBPeripheral, [String: Any], NSNumber)
        case connected(CBPeripheral)
        case failed(CBPeripheral, (any Error)?)
        case disconnected(CBPeripheral, isReconnecting: Bool, (any Error)?)
        case connectionEvent(CBConnectionEvent, CBPeripheral)
        case name(CBPeripheral)
        case modified(CBPeripheral, [CBService])
        case rssi(CBPeripheral, NSNumber, (any Error)?)
        case services(CBPeripheral, (any Error)?)
        case included(CBService, (any Error)?)
        case characteristics(CBService, (any Error)?)
        case descriptors(CBCharacteristic, (any Error)?)
        case value(CBCharacteristic, Data?, (any Error)?)
        case descriptorValue(CBDescriptor, (any Error)?)
        case written(CBCharacteristic, (any Error)?)
        case descriptorWritten(CBDescriptor, (any Error)?)
        case notifying(CBCharacteristic, Bool, (any Error)?)
        case ready(CBPeripheral)
        case channel(CBL2CAPChannel?, (any Error)?)
    }

    /// A callback and what could be seen inside it.
    struct Record {
        let event: Event
        let managerState: CBManagerState
        let isScanning: Bool
        let peripheralState: CBPeripheralState?
        let services: [CBService]?
        let wasOnQueue: Bool
        let depth: Int
    }

    /// Kept: a simulator ends when it is released.
    let world: any World
    let queue: DispatchQueue
    /// Runs inside each callback, on the queue, after it was noted.
    let onEvent: (@Sendable (Central, Event) -> Void)?
    private let onRestore: (@Sendable ([String: Any]) -> Void)?
    private(set) var manager: CBCentralManager!  // set in init, nil only after `release`

    private let log = EventLog<Record>()
    /// A record keeps its objects alive: an app that lets go of them does without.
    private let keepsRecords: Bool
    private var depth = 0
    static let queues = QueueMark()
    /// Compares all callbacks with all calls (the O- table).
    let watch: ContractWatch

    init(
        _ world: any World, queue: DispatchQueue = DispatchQueue(label: "test.central"),
        options: [String: Any] = [:], watch: ContractWatch = ContractWatch(), keepsRecords: Bool = true,
        onEvent: (@Sendable (Central, Event) -> Void)? = nil, onRestore: (@Sendable ([String: Any]) -> Void)? = nil
    ) {
        self.onRestore = onRestore
        self.watch = watch
        self.keepsRecords = keepsRecords
        self.world = world
        self.queue = queue
        self.onEvent = onEvent
        super.init()
        Self.queues.mark(queue)
        manager = CheckedManager(
            delegate: self, queue: queue, options: world.managerOptions.merging(options) { $1 }, watch: watch)
        isMade.signal()
    }

    private let isMade = DispatchSemaphore(value: 0)

    /// The first callback may come before the manager is known here.
    private func awaitManager() {
        isMade.wait()
        isMade.signal()
    }

    /// When links ended, according to the callback, and when it was made.
    let losses = ProtectedBox<[(time: CFAbsoluteTime, told: CFAbsoluteTime)]>([])
    private let kept = ProtectedBox<[CBPeripheral]>([])
    private let stateObserver = ProtectedBox<(@Sendable () -> Void)?>(nil)

    /// Holds a peripheral as an app would.
    func keep(_ peripheral: CBPeripheral) { kept.withLock { $0.append(peripheral) } }

    /// Calls `body` inside each `didUpdateState` from now on.
    func observeStates(_ body: @escaping @Sendable () -> Void) { stateObserver.withLock { $0 = body } }

    /// Releases the manager.
    func release() { queue.sync { releaseOnQueue() } }

    /// The same, on the queue or while it is held.
    func releaseOnQueue() {
        manager = nil
        watch.note(.released)
    }

    // MARK: Waiting

    /// The next event, after those that were taken already, of which `pick` makes something.
    @discardableResult
    func next<T>(
        _ what: String, within seconds: Double = world_deadline, _ pick: @escaping (Event) -> T?
    ) async throws -> T {
        try await log.next(what, within: seconds) { pick($0.event) }
    }

    func nextRecord<T>(
        _ what: String, within seconds: Double = world_deadline, _ pick: @escaping (Record) -> T?
    ) async throws -> T {
        try await log.next(what, within: seconds, pick)
    }

    var records: [Record] { log.all }
    var events: [Event] { records.map(\.event) }
    func count(_ predicate: (Event) -> Bool) -> Int { events.filter(predicate).count }
    func forgetRecords() { log.forget() }

    /// Waits until everything posted so far, on the bus queue and on this one, was delivered: two questions with an
    /// answer pass through both.
    func settle(_ peripheral: CBPeripheral) async throws {
        await perform { peripheral.readRSSI() }
        try await next("RSSI, to settle") { if case .rssi = $0 { true } else { nil } }
    }

    /// Runs `body` on the manager's queue.
    @discardableResult
    func perform<T>(_ body: @escaping @Sendable () -> T) async -> T {
        // holds: the body has returned its value when the continuation resumes
        nonisolated(unsafe) var result: T?
        await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
            queue.async {
                result = body()
                continuation.resume()
            }
        }
        return result!
    }

    private func note(_ event: Event, _ peripheral: CBPeripheral? = nil) {
        awaitManager()
        depth += 1
        let record = Record(
            event: event, managerState: manager?.state ?? .unknown, isScanning: manager?.isScanning ?? false,
            peripheralState: peripheral?.state, services: peripheral?.services,
            wasOnQueue: Self.queues.isHere, depth: depth)
        watch.check(record)
        if keepsRecords { log.append(record) }
        onEvent?(self, event)
        depth -= 1
    }

    // MARK: Callbacks

    func centralManager(_ central: CBCentralManager, willRestoreState dictionary: [String: Any]) {
        onRestore?(dictionary)
    }

    func centralManagerDidUpdateState(_ central: CBCentralManager) {
        awaitManager()
        stateObserver.withLock { $0 }?()
        note(.state(central.state))
    }
    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) { note(.discovered(peripheral, advertisementData, RSSI), peripheral) }
    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        peripheral.delegate = self
        note(.connected(peripheral), peripheral)
    }
    func centralManager(_ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?) {
        note(.failed(peripheral, error), peripheral)
    }
    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
    ) {
        losses.withLock { $0.append((timestamp, CFAbsoluteTimeGetCurrent())) }
        note(.disconnected(peripheral, isReconnecting: isReconnecting, error), peripheral)
    }
    func centralManager(
        _ central: CBCentralManager, connectionEventDidOccur event: CBConnectionEvent, for peripheral: CBPeripheral
    ) { note(.connectionEvent(event, peripheral), peripheral) }
    func peripheralDidUpdateName(_ peripheral: CBPeripheral) { note(.name(peripheral), peripheral) }
    func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {
        note(.modified(peripheral, invalidatedServices), peripheral)
    }
    func peripheral(_ peripheral: CBPeripheral, didReadRSSI RSSI: NSNumber, error: (any Error)?) {
        note(.rssi(peripheral, RSSI, error), peripheral)
    }
    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        note(.services(peripheral, error), peripheral)
    }
    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverIncludedServicesFor service: CBService, error: (any Error)?
    ) { note(.included(service, error), peripheral) }
    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) { note(.characteristics(service, error), peripheral) }
    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverDescriptorsFor characteristic: CBCharacteristic, error: (any Error)?
    ) { note(.descriptors(characteristic, error), peripheral) }
    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) { note(.value(characteristic, characteristic.value, error), peripheral) }
    func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor descriptor: CBDescriptor, error: (any Error)?) {
        note(.descriptorValue(descriptor, error), peripheral)
    }
    func peripheral(_ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?)
    {
        note(.written(characteristic, error), peripheral)
    }
    func peripheral(_ peripheral: CBPeripheral, didWriteValueFor descriptor: CBDescriptor, error: (any Error)?) {
        note(.descriptorWritten(descriptor, error), peripheral)
    }
    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic,
        error: (any Error)?
    ) { note(.notifying(characteristic, characteristic.isNotifying, error), peripheral) }
    func peripheralIsReady(toSendWriteWithoutResponse peripheral: CBPeripheral) { note(.ready(peripheral), peripheral) }
    func peripheral(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
        note(.channel(channel, error), peripheral)
    }
}
