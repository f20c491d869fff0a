import CoreBluetooth
import Foundation

/// One app with one manager. A script says what it calls; its queue is held meanwhile, so that what the app knows and
/// what it asks for follow each other as the contract's rules have it, and its objects can be compared with them.
final class ModelApp: @unchecked Sendable {  // holds: what changes is touched on the queue, or while it is held
    private let turn: HeldQueue
    private(set) var central: Central?
    let watch: ContractWatch
    let directory: TemporaryDirectory?
    private let report: @Sendable (String) -> Void
    /// Peripherals by their number.
    private var kept: [Int: CBPeripheral] = [:]
    private var stale: [Int: CBCharacteristic] = [:]
    private var habit = Script.Habit.none
    /// How often it may still act on its own.
    private var energy = 0
    /// Called with each callback.
    private let trace: (String) -> Void
    private let addresses: [UUID: Int]
    /// The last notification of each characteristic, by its object: each has a higher number than the one before.
    private var heard: [String: UInt32] = [:]
    /// How often each came.
    private(set) var notes: [String: [UInt32: Int]] = [:]

    /// - Parameter directory: The state directory; nil: no preservation, and the app does not resume after a reset.
    init(
        _ world: ModelWorld, identifiers: [UUID], name: String, directory: TemporaryDirectory?,
        trace: @escaping (String) -> Void, report: @escaping @Sendable (String) -> Void
    ) {
        (self.directory, self.trace) = (directory, trace)
        turn = HeldQueue(name)
        addresses = Dictionary(uniqueKeysWithValues: identifiers.enumerated().map { ($1, $0) })
        self.report = { report("\(name): \($0)") }
        // What is read has one byte.
        watch = ContractWatch(report: self.report, isNotification: { $0.count == 4 })
        var options: [String: Any] = [:]
        if let directory {
            options[CBCentralManagerOptionRestoreIdentifierKey] = "model"
            options[BluezManagerOptionStateDirectoryKey] = directory.path
        }
        // On its queue: no callback comes before it is known.
        turn.queue.sync {
            central = Central(
                world, queue: turn.queue, options: options, watch: watch, keepsRecords: false,
                onEvent: { [weak self] in self?.handle($1) }, onRestore: { [weak self] in self?.restore($0) })
        }
    }

    // MARK: The queue

    /// Runs `body` while nothing else runs on the queue, and compares afterwards what the objects say.
    func act<T>(_ body: (ModelApp) -> T) async -> T {
        await turn.run {
            watch.isQueueHeld = true
            let result = body(self)
            inspect("after a call")
            watch.isQueueHeld = false
            return result
        }
    }

    func setBusy(_ busy: Bool) async { await turn.setBusy(busy) }
    var isBusy: Bool { turn.isBusy }

    private func inspect(_ moment: @autoclosure () -> String) {
        guard let manager = central?.manager else { return }
        for violation in watch.inspect(manager, kept.values) { report("\(violation), \(moment())") }
    }

    // MARK: Calls

    func perform(_ step: Script.Step, identifiers: [UUID]) {
        guard let manager = central?.manager else { return }
        let peripheral = step.numbers.count > 1 ? kept[step.numbers[1]] : nil
        let choice = step.numbers.count > 2 ? step.numbers[2] : 0
        switch step.verb {
        case .free: free()
        case .scan: manager.scanForPeripherals(withServices: nil)
        case .scanAll:
            manager.scanForPeripherals(withServices: nil, options: [CBCentralManagerScanOptionAllowDuplicatesKey: true])
        case .scanSensors: manager.scanForPeripherals(withServices: [ModelWorld.service])
        case .stop: manager.stopScan()
        case .get: keep(manager.retrievePeripherals(withIdentifiers: [identifiers[step.numbers[1]]]).first)
        case .drop: drop(step.numbers[1])
        case .connect: if let peripheral { manager.connect(peripheral) }
        case .autoconnect:
            if let peripheral {
                manager.connect(peripheral, options: [CBConnectPeripheralOptionEnableAutoReconnect: true])
            }
        case .connectLater:
            if let peripheral { manager.connect(peripheral, options: [CBConnectPeripheralOptionStartDelayKey: 0.03]) }
        case .cancel: if let peripheral { manager.cancelPeripheralConnection(peripheral) }
        case .connected: manager.retrieveConnectedPeripherals(withServices: [ModelWorld.service])
        case .events:
            manager.registerForConnectionEvents(options: [.serviceUUIDs: [ModelWorld.service]])
        case .habit: (habit, energy) = (Script.Habit(rawValue: step.numbers[1]) ?? .none, 8)
        case .readStale: if let peripheral, let old = stale[step.numbers[1]] { peripheral.readValue(for: old) }
        default: if let peripheral { request(step.verb, peripheral, choice) }
        }
    }

    private func request(_ verb: Script.Verb, _ peripheral: CBPeripheral, _ choice: Int) {
        let services = peripheral.services ?? []
        let characteristics = services.flatMap { $0.characteristics ?? [] }
        func pick<T>(_ of: [T]) -> T? { of.isEmpty ? nil : of[choice % of.count] }
        switch verb {
        case .services: peripheral.discoverServices(nil)
        case .sensorService: peripheral.discoverServices([ModelWorld.service])
        case .characteristics: for service in services { peripheral.discoverCharacteristics(nil, for: service) }
        case .included: for service in services { peripheral.discoverIncludedServices(nil, for: service) }
        case .descriptors: for characteristic in characteristics { peripheral.discoverDescriptors(for: characteristic) }
        case .rssi: peripheral.readRSSI()
        case .read: pick(characteristics).map { peripheral.readValue(for: $0) }
        case .write: pick(characteristics).map { peripheral.writeValue(Data([1]), for: $0, type: .withResponse) }
        case .command: pick(characteristics).map { peripheral.writeValue(Data([2]), for: $0, type: .withoutResponse) }
        case .subscribe, .unsubscribe:
            pick(characteristics.filter { !$0.properties.isDisjoint(with: [.notify, .indicate]) }).map {
                peripheral.setNotifyValue(verb == .subscribe, for: $0)
            }
        case .readDescriptor: pick(descriptors(characteristics)).map { peripheral.readValue(for: $0) }
        case .writeDescriptor:
            pick(descriptors(characteristics).filter { $0.uuid != CBUUID(string: "2902") }).map {
                peripheral.writeValue(Data([3]), for: $0)
            }
        default: break
        }
    }

    private func descriptors(_ of: [CBCharacteristic]) -> [CBDescriptor] { of.flatMap { $0.descriptors ?? [] } }

    private func keep(_ peripheral: CBPeripheral?) {
        guard let peripheral, let number = addresses[peripheral.identifier] else { return }
        if let known = kept[number], known !== peripheral, !known.isReset {
            report("ID-3 another object for the same peripheral")
        }
        kept[number] = peripheral
        peripheral.delegate = central
    }

    private func drop(_ number: Int) { (kept[number], stale[number]) = (nil, nil) }

    /// Releases the manager, and then everything else.
    func free() {
        central?.releaseOnQueue()
        central = nil
        (kept, stale) = ([:], [:])
    }

    /// Performs no automatic actions any more.
    func rest() { (habit, energy) = (.none, 0) }

    // MARK: Callbacks

    private func restore(_ state: [String: Any]) {
        trace("willRestoreState \(state.keys.sorted())")
        for peripheral in state[CBCentralManagerRestoredStatePeripheralsKey] as? [CBPeripheral] ?? [] {
            watch.restored(peripheral)
            keep(peripheral)
        }
        if central?.manager.isScanning == true {
            let options = state[CBCentralManagerRestoredStateScanOptionsKey] as? [String: Any]
            let option = options?[CBCentralManagerScanOptionAllowDuplicatesKey] as? NSNumber
            watch.note(.scan(duplicates: option?.boolValue == true))
        }
        inspect("inside willRestoreState")
    }

    private func handle(_ event: Central.Event) {
        if case .state(let state) = event, state != .poweredOn, state != .poweredOff, directory == nil {
            (kept, stale) = ([:], [:])  // they cannot be used any more
        }
        if case .value(let characteristic, let value?, nil) = event { note(value, characteristic) }
        if case .characteristics(let service, nil) = event, let first = service.characteristics?.first,
            let peripheral = service.peripheral, let number = addresses[peripheral.identifier]
        {
            stale[number] = first
        }
        trace(event.name)
        inspect("inside \(event.name)")
        act(on: event)
        inspect("at the end of \(event.name)")
    }

    private func note(_ value: Data, _ characteristic: CBCharacteristic) {
        guard value.count == 4 else { return }
        let number = value.reduce(0) { $0 << 8 | UInt32($1) }
        let name = watch.name(characteristic)
        if let last = heard[name], number <= last { report("O-24 notification \(number) after \(last)") }
        heard[name] = number
        let address = characteristic.service?.peripheral.flatMap { addresses[$0.identifier] } ?? -1
        notes["\(address) \(characteristic.uuid)", default: [:]][number, default: 0] += 1
    }

    private func act(on event: Central.Event) {
        guard energy > 0, let central, let manager = central.manager else { return }
        let before = energy
        energy -= 1
        switch (habit, event) {
        case (.reconnects, .disconnected(let peripheral, isReconnecting: false, _)): manager.connect(peripheral)
        case (.explores, .connected(let peripheral)): peripheral.discoverServices(nil)
        case (.explores, .services(let peripheral, nil)):
            for service in peripheral.services ?? [] { peripheral.discoverCharacteristics(nil, for: service) }
        case (.explores, .characteristics(let service, nil)):
            for characteristic in service.characteristics ?? [] {
                service.peripheral?.setNotifyValue(true, for: characteristic)
                service.peripheral?.readValue(for: characteristic)
            }
        case (.explores, .modified(let peripheral, _)): peripheral.discoverServices(nil)
        case (.cancels, .connected(let peripheral)): manager.cancelPeripheralConnection(peripheral)
        case (.restarts, .connected(let peripheral)):
            manager.cancelPeripheralConnection(peripheral)
            manager.connect(peripheral)
        case (.dropsWhenLost, .disconnected(let peripheral, _, _)), (.dropsWhenConnected, .connected(let peripheral)):
            addresses[peripheral.identifier].map(drop)
        case (.frees, .connected): free()
        case (.collects, .discovered(let peripheral, _, _)):
            keep(peripheral)
            manager.connect(peripheral)
        default: energy = before
        }
    }

    // MARK: How it is going

    /// Differences from the required final state, in a world without failures.
    var complaint: String? {
        guard let manager = central?.manager else { return nil }
        if manager.state != .poweredOn { return "the state is \(manager.state)" }
        if let owed = watch.owed.first { return "owed: \(owed)" }
        for (number, peripheral) in kept where peripheral.state != .connected && peripheral.state != .disconnected {
            return "peripheral \(number) is \(peripheral.state)"
        }
        return nil
    }

    var isScanning: Bool { central?.manager.isScanning == true }

    /// Peripherals that it is connected to, by number.
    var connected: [Int] { kept.filter { $0.value.state == .connected }.keys.sorted() }

    /// Characteristics that notify it, by the numbers of their peripherals.
    var notifying: [(peripheral: Int, uuid: CBUUID)] {
        kept.flatMap { number, peripheral in
            (peripheral.services ?? []).flatMap { $0.characteristics ?? [] }.filter(\.isNotifying).map {
                (number, $0.uuid)
            }
        }
    }
}

extension CBPeripheral {
    /// From before a reset. Apps know it by `didUpdateState`.
    fileprivate var isReset: Bool { state == .disconnected }
}

extension Central.Event {
    /// The callback, without its arguments.
    var name: String { Mirror(reflecting: self).children.first?.label ?? "\(self)" }
}

/// An app's queue, which is held while the app is busy or calls something.
final class HeldQueue: @unchecked Sendable {  // holds: used by one task
    let queue: DispatchQueue
    private(set) var isBusy = false

    init(_ name: String) { queue = DispatchQueue(label: "model.\(name)") }

    /// Runs `body` while nothing else runs on the queue.
    func run<T>(_ body: () -> T) async -> T {
        if !isBusy { await hold() }
        defer { if !isBusy { queue.resume() } }
        return body()
    }

    func setBusy(_ busy: Bool) async {
        guard busy != isBusy else { return }
        if busy { await hold() }
        isBusy = busy
        if !busy { queue.resume() }
    }

    private func hold() async {
        await withCheckedContinuation { continuation in
            queue.async { [queue] in
                queue.suspend()
                continuation.resume()
            }
        }
    }
}
