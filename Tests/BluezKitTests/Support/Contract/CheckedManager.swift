import BluezKitRestore
import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit

/// A central manager that is watched by a ``ContractChecker``.
final class CheckedManager: CBCentralManager, @unchecked Sendable {  // holds: the watch is safe
    private let watch: ContractWatch
    private let queue: DispatchQueue
    private var isMade = false
    /// Apps may scan on any thread.
    private let scan = ProtectedBox<ScanRequest?>(nil)

    init(delegate: any CBCentralManagerDelegate, queue: DispatchQueue, options: [String: Any], watch: ContractWatch) {
        (self.watch, self.queue) = (watch, queue)
        super.init(delegate: delegate, queue: queue, options: options)
        if book?.resumes == true { watch.resume() }
        mirror.onRequest = { [watch] in watch.requested($1, of: $0) }
        isMade = true
    }

    /// Another object is the delegate: there is nothing to compare any more.
    override var delegate: (any CBCentralManagerDelegate)? {
        get { super.delegate }
        set {
            if isMade { watch.stop() }
            super.delegate = newValue
        }
    }

    override func scanForPeripherals(withServices serviceUUIDs: [CBUUID]?, options: [String: Any]? = nil) {
        let option = options?[CBCentralManagerScanOptionAllowDuplicatesKey]
        let duplicates = (option as? NSNumber)?.boolValue ?? (option as? Bool) ?? false
        let solicited = options?[CBCentralManagerScanOptionSolicitedServiceUUIDsKey] as? [CBUUID] ?? []
        let request = ScanRequest(
            services: serviceUUIDs.flatMap { $0.isEmpty ? nil : $0 }, solicitedServices: solicited,
            allowsDuplicates: duplicates)
        // Equal parameters change nothing: then nothing is reported again (SC-2).
        let isNew = scan.withLock { scan in
            defer { scan = request }
            return scan?.isEquivalent(to: request) != true
        }
        if state == .poweredOn, isNew || !isScanning { watch.note(.scan(duplicates: duplicates)) }
        super.scanForPeripherals(withServices: serviceUUIDs, options: options)
    }

    override func stopScan() {
        guard state == .poweredOn else { return super.stopScan() }
        let number = watch.nextNumber()
        watch.note(.stopScan(number))
        super.stopScan()
        onceSettled { $0.note(.scanStopped(number)) }
    }

    override func connect(_ peripheral: CBPeripheral, options: [String: Any]? = nil) {
        let option = options?[CBConnectPeripheralOptionEnableAutoReconnect]
        let reconnects = (option as? NSNumber)?.boolValue ?? (option as? Bool) ?? false
        if state == .poweredOn { watch.note(.connect(watch.name(peripheral), reconnects: reconnects)) }
        super.connect(peripheral, options: options)
    }

    override func cancelPeripheralConnection(_ peripheral: CBPeripheral) {
        guard state == .poweredOn else { return super.cancelPeripheralConnection(peripheral) }
        let (number, name) = (watch.nextNumber(), watch.name(peripheral))
        watch.note(.cancel(name, number))
        super.cancelPeripheralConnection(peripheral)
        onceSettled { $0.note(.cancelled(name, number)) }
    }

    /// Callbacks that run while the app calls from elsewhere may not know of the call yet: those that follow must.
    private func onceSettled(_ body: @escaping @Sendable (ContractWatch) -> Void) {
        let isOnQueue = Central.queues.isHere
        if watch.isQueueHeld || isOnQueue && !watch.isQueueConcurrent { return body(watch) }
        queue.async(flags: .barrier) { [watch] in body(watch) }
    }
}

/// Feeds a ``ContractChecker`` with the calls and callbacks of one manager, and reports violations immediately, as
/// issues of the test.
final class ContractWatch: @unchecked Sendable {  // holds: what changes is under `lock`
    private let lock = NSLock()
    private var checker = ContractChecker()
    private var names = Names()
    /// The peripherals of attributes that were used. An attribute that is no longer valid does not reference its own.
    private var askedOf: [String: String] = [:]
    private var hasStopped = false
    private var number = 0
    private var queueHeld = false
    private let test = Test.current?.name ?? "outside of a test"
    private let report: @Sendable (String) -> Void
    private let isNotification: (@Sendable (Data) -> Bool)?
    let isQueueConcurrent: Bool

    /// - Parameters:
    ///   - report: Gets each violation; nil: an issue is recorded.
    ///   - isNotification: Distinguishes notifications from results of reads. Nil: they may be the same.
    ///   - isQueueConcurrent: Whether a callback may run while the app calls on the queue.
    init(
        report: (@Sendable (String) -> Void)? = nil, isNotification: (@Sendable (Data) -> Bool)? = nil,
        isQueueConcurrent: Bool = false
    ) {
        (self.isNotification, self.isQueueConcurrent) = (isNotification, isQueueConcurrent)
        checker.isExact = isNotification != nil
        let test = test
        self.report = report ?? { Issue.record("broken in \(test): \($0)") }
    }

    /// Outstanding callbacks, except those about peripherals that the app has released.
    var owed: [String] { lock.withLock { checker.owed(to: names.ofLiving) } }

    /// Whether the caller keeps the manager's queue from running in the meantime, which is equivalent to being on it.
    var isQueueHeld: Bool {
        get { lock.withLock { queueHeld } }
        set { lock.withLock { queueHeld = newValue } }
    }

    func stop() { lock.withLock { hasStopped = true } }

    func nextNumber() -> Int {
        lock.withLock {
            number += 1
            return number
        }
    }

    func name(_ object: AnyObject) -> String { lock.withLock { names.name(object) } }

    func note(_ call: ContractChecker.Call) { lock.withLock { checker.note(call) } }

    /// Inside `willRestoreState`.
    func restored(_ peripheral: CBPeripheral) {
        lock.withLock {
            let characteristics = (peripheral.services ?? []).flatMap { $0.characteristics ?? [] }
            let notifying = characteristics.filter(\.isNotifying).map {
                (names.name($0), $0.service.map { names.name($0) })
            }
            checker.note(
                .restored(
                    names.name(peripheral), isConnected: peripheral.state == .connected,
                    notifying: Dictionary(uniqueKeysWithValues: notifying)))
        }
    }

    func resume() { lock.withLock { checker.resumes = true } }

    func allowRepetition() { lock.withLock { checker.allowRepetition() } }

    func requested(_ asked: AttributeRequest, of peripheral: CBPeripheral) {
        let attribute = asked.attribute.flatMap(peripheral.attribute)
        lock.withLock {
            let request: ContractChecker.Request
            let name = attribute.map { names.name($0) } ?? "none"
            switch asked {
            case .discoverServices: request = .services
            case .discoverIncludedServices: request = .included(name)
            case .discoverCharacteristics: request = .characteristics(name)
            case .discoverDescriptors: request = .descriptors(name)
            case .read, .readDescriptor: request = .read(name)
            case .write, .writeDescriptor: request = .write(name)
            case .setNotify: request = .notify(name)
            case .readRSSI: request = .rssi
            case .writeWithoutResponse, .resubscribe: return
            }
            let service =
                switch attribute {
                case let service as CBService: service
                case let characteristic as CBCharacteristic: characteristic.service
                case let descriptor as CBDescriptor: descriptor.characteristic?.service
                default: CBService?.none
                }
            if let attribute = request.attribute { askedOf[attribute] = names.name(peripheral) }
            checker.note(.request(names.name(peripheral), request, service: service.map { names.name($0) }))
        }
    }

    /// What the objects that the app holds say, and must not. On the manager's queue, or while it is held.
    func inspect(_ manager: CBCentralManager, _ peripherals: some Collection<CBPeripheral>) -> [String] {
        lock.withLock {
            // Before `willRestoreState` nothing is known of what comes with it.
            if checker.managerState == .unknown, manager.state == .unknown { return [] }
            var broken: [String] = []
            if manager.state != checker.managerState { broken.append("ST-3 the state is \(manager.state), untold") }
            if manager.isScanning != checker.isScanning { broken.append("O-6 isScanning is \(manager.isScanning)") }
            for peripheral in peripherals {
                let id = names.name(peripheral)
                let (state, states) = (peripheral.state, checker.states(of: id))
                if !states.contains(state) {
                    let must = states.map { "\($0)" }.sorted().joined(separator: " or ")
                    broken.append("CN-3 CN-7 the state of \(id) is \(state), and must be \(must)")
                }
                if peripheral.services != nil, !checker.mayHaveServices(id) {
                    broken.append("CN-11 \(id) has services without a link")
                }
                for characteristic in (peripheral.services ?? []).flatMap({ $0.characteristics ?? [] })
                where characteristic.isNotifying != checker.isNotifying(names.name(characteristic), of: id) {
                    broken.append("NT-1 NT-7 isNotifying is \(characteristic.isNotifying), untold")
                }
            }
            return broken
        }
    }

    /// A callback, on the manager's queue.
    func check(_ record: Central.Record) {
        let broken: [String] = lock.withLock {
            if hasStopped { return [] }
            let view = ContractChecker.View(
                peripheralState: record.peripheralState, hasServices: record.services != nil,
                isOnQueue: record.wasOnQueue, depth: record.depth,
                isKnownError: record.event.error.map { $0 is CBError || $0 is CBATTError } ?? true,
                isValid: record.event.error != nil || record.event.isOfPresentLink)
            return checker.check(event(record.event), view)
        }
        for violation in broken { report(violation) }
    }

    private func event(_ event: Central.Event) -> ContractChecker.Event {
        func id(_ object: AnyObject) -> String { names.name(object) }
        func holder(_ attribute: CBAttribute, _ service: CBService?) -> String {
            service?.peripheral.map(id) ?? askedOf[id(attribute)] ?? "none"
        }
        switch event {
        case .state(let state): return .state(state)
        case .discovered(let peripheral, let data, _): return .discovered(id(peripheral), keys: Self.kinds(data))
        case .connected(let peripheral): return .connected(id(peripheral))
        case .failed(let peripheral, let error): return .failed(id(peripheral), hasError: error != nil)
        case .disconnected(let peripheral, let isReconnecting, let error):
            return .disconnected(id(peripheral), isReconnecting: isReconnecting, hasError: error != nil)
        case .name(let peripheral): return .name(id(peripheral))
        case .modified(let peripheral, let services): return .modified(id(peripheral), services: Set(services.map(id)))
        case .rssi(let peripheral, _, _): return .answer(id(peripheral), .rssi)
        case .services(let peripheral, _): return .answer(id(peripheral), .services)
        case .included(let service, _): return .answer(holder(service, service), .included(id(service)))
        case .characteristics(let service, _): return .answer(holder(service, service), .characteristics(id(service)))
        case .descriptors(let characteristic, _):
            return .answer(holder(characteristic, characteristic.service), .descriptors(id(characteristic)))
        case .value(let characteristic, let value, let error):
            return .value(
                holder(characteristic, characteristic.service), id(characteristic), hasError: error != nil,
                isNotification: error == nil ? value.flatMap { isNotification?($0) } : isNotification.map { _ in false }
            )
        case .descriptorValue(let descriptor, _):
            return .answer(holder(descriptor, descriptor.characteristic?.service), .read(id(descriptor)))
        case .written(let characteristic, _):
            return .answer(holder(characteristic, characteristic.service), .write(id(characteristic)))
        case .descriptorWritten(let descriptor, _):
            return .answer(holder(descriptor, descriptor.characteristic?.service), .write(id(descriptor)))
        case .notifying(let characteristic, let isNotifying, _):
            return .notifying(
                holder(characteristic, characteristic.service), id(characteristic), isNotifying,
                service: characteristic.service.map(id))
        case .ready(let peripheral): return .ready(id(peripheral), canSend: peripheral.canSendWriteWithoutResponse)
        case .channel, .connectionEvent: return .other
        }
    }

    /// SC-6: the kinds of information in an advertisement. Every service is one of its own.
    private static func kinds(_ data: [String: Any]) -> Set<String> { Set(data.keys) }
}

/// Names for objects that distinguish each from earlier ones at its address. Holds none of them.
private struct Names {
    private struct Entry { weak var object: AnyObject?; let name: String }
    private var entries: [ObjectIdentifier: Entry] = [:]
    private var count = 0

    var ofLiving: [String] { entries.values.filter { $0.object != nil }.map(\.name) }

    mutating func name(_ object: AnyObject) -> String {
        if let entry = entries[ObjectIdentifier(object)], entry.object === object { return entry.name }
        count += 1
        let name = "\(type(of: object)) \(count)"
        entries[ObjectIdentifier(object)] = Entry(object: object, name: name)
        return name
    }
}

extension Central.Event {
    /// Whether the attribute that it is about is reached from its peripheral.
    fileprivate var isOfPresentLink: Bool {
        switch self {
        case .included(let service, _), .characteristics(let service, _): service.isReachable
        case .descriptors(let it, _), .value(let it, _, _), .written(let it, _), .notifying(let it, _, _):
            it.isReachable
        case .descriptorValue(let it, _), .descriptorWritten(let it, _): it.characteristic?.isReachable == true
        default: true
        }
    }

    /// The error that the app was handed.
    fileprivate var error: (any Error)? {
        switch self {
        case .failed(_, let error), .disconnected(_, _, let error), .rssi(_, _, let error), .services(_, let error),
            .included(_, let error), .characteristics(_, let error), .descriptors(_, let error),
            .value(_, _, let error), .descriptorValue(_, let error), .written(_, let error),
            .descriptorWritten(_, let error), .notifying(_, _, let error), .channel(_, let error):
            error
        default: nil
        }
    }
}

extension CBService {
    fileprivate var isReachable: Bool {
        let services = peripheral?.services ?? []
        return services.contains { $0 === self || $0.includedServices?.contains { $0 === self } == true }
    }
}

extension CBCharacteristic {
    fileprivate var isReachable: Bool {
        service?.isReachable == true && service?.characteristics?.contains { $0 === self } == true
    }
}
