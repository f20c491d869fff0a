import CoreBluetooth

/// The delegate of a `CBPeripheral`, and everything that waits for it. Used on the manager's queue only.
final class PeripheralDelegate: NSObject, CBPeripheralDelegate {
    typealias Continuation = CheckedContinuation<Answer, any Error>
    private typealias Requests = RequestQueue<Operation>
    /// The answer that opens a channel says which one only if it is no error, so channels have a queue of their own.
    private enum Lane: Int, CaseIterable { case attributes, channels }

    /// Whether `peripheral` can be used.
    private enum Standing {
        case valid
        /// It belongs to a system service that has gone: another object has to be retrieved.
        case invalid
        /// It was restored, and waits for Bluetooth: it is ended when that is on.
        case calledOff
    }

    /// What the app holds. When that is released, so is this.
    weak var handle: Peripheral?
    private(set) var peripheral: CBPeripheral
    private weak var central: CentralDelegate?
    private var standing = Standing.valid

    private var connection = ConnectionMachine()
    private var connectOptions: [String: Any]?
    private var lanes = [Requests(), Requests()]
    private var continuations: [UInt64: Continuation] = [:]
    private var bondRemovals: Set<UInt64> = []

    private(set) var attributes: [UInt64: CBAttribute] = [:]
    private(set) var numbers: [ObjectIdentifier: UInt64] = [:]
    var values = ValueHubs()
    /// Subscribed to by `setNotifyValue` with success, whether or not there are consumers of values.
    private var subscribed: Set<UInt64> = []
    var serviceChanges = EventHub<[Service], Never>()

    init(_ peripheral: CBPeripheral, of central: CentralDelegate) {
        (self.peripheral, self.central) = (peripheral, central)
        super.init()
        peripheral.delegate = self
        restore()  // it has a connection: of an earlier process, or because of an open channel
    }

    func adopt(_ peripheral: CBPeripheral) {
        if standing == .invalid { standing = .valid }
        guard peripheral !== self.peripheral else { return }
        self.peripheral = peripheral
        peripheral.delegate = self
    }

    /// No callback will come: it or the manager was released.
    private var isClosed: Bool { central == nil }

    func updateHandle() {
        let hasEnded = isClosed || standing == .calledOff
        handle?.update(name: peripheral.name, state: hasEnded ? .disconnected : peripheral.state)
    }

    // MARK: Connection

    func connect(_ request: UInt64, options: [String: Any]?, _ continuation: Continuation) {
        continuations[request] = continuation
        if connection.startsOver {
            connectOptions = options
        } else if let options {
            connectOptions = options
            // The system takes them for the connection that there is, or that it makes.
            if connection.isPursued { central?.manager?.connect(peripheral, options: options) }
        }
        perform(connection.connect(request))
    }

    var isConnected: Bool { connection.isConnected }

    func disconnect(_ request: UInt64, _ continuation: Continuation) {
        continuations[request] = continuation
        if connection.isIdle { restore() }  // what the system does counts
        perform(connection.disconnect(request))
    }

    /// Ends what was restored while Bluetooth is not on, and the system takes no commands.
    /// - Returns: Whether there is anything.
    func callOff() -> Bool {
        guard peripheral.state == .connecting || peripheral.state == .connected else { return false }
        standing = .calledOff
        perform(connection.reset())
        return true
    }

    func bluetoothIsOn() {
        guard standing == .calledOff else { return }
        standing = .valid
        restore()
        perform(connection.disconnect(Number.next()))
    }

    /// Takes over what the system does.
    private func restore() {
        switch peripheral.state {
        case .connected: connection.restore(isConnected: true)
        case .connecting: connection.restore(isConnected: false)
        case .disconnecting: connection.restoreEnding()
        default: break
        }
    }

    func didConnect() { perform(connection.didConnect()) }

    func didEnd(_ error: any Error, isReconnecting: Bool = false) {
        perform(connection.didEnd(isReconnecting: isReconnecting), error)
    }

    /// Bluetooth is off, or another system service: everything has ended, and no callback comes.
    func reset(_ error: any Error, isInvalid: Bool) {
        if isInvalid { standing = .invalid }
        perform(connection.reset(), error)
        for request in bondRemovals { resume(request, .failure(error)) }
        bondRemovals = []
    }

    /// Bluetooth is not on where something was restored: what a keeper had connected waits for it, as an attempt.
    func suspend(_ error: any Error) {
        guard connection.isConnected, peripheral.state != .connected else { return updateHandle() }
        perform(connection.reset(), error)
        restore()
    }

    /// The app has released the peripheral or the manager.
    func close(_ error: any Error) {
        central = nil  // before anyone hears of it: then it is closed
        perform(connection.reset(), error)
        for request in continuations.keys { resume(request, .failure(error)) }
        serviceChanges.close()
    }

    private func perform(_ actions: [ConnectionMachine.Action], _ error: any Error = CBError(.operationCancelled)) {
        updateHandle()  // before anyone hears of it
        for action in actions {
            switch action {
            case .connect: connectNow()
            case .cancelConnection:
                central?.manager?.cancelPeripheralConnection(peripheral)
                updateHandle()
            case .resume(let request, let outcome):
                let continuation = continuations.removeValue(forKey: request)
                switch outcome {
                case .success: continuation?.resume(returning: .done)
                case .cancelled: continuation?.resume(throwing: CancellationError())
                case .failure: continuation?.resume(throwing: error)
                }
            case .linkEnded: endLink(error)
            }
        }
        updateHandle()
    }

    /// Takes another object if the one it has is invalid.
    func renew() {
        guard standing == .invalid else { return }
        central?.manager?.retrievePeripherals(withIdentifiers: [peripheral.identifier]).first.map(adopt)
    }

    private func connectNow() {
        renew()
        if standing == .invalid {
            perform(connection.didEnd(), CBError(.unknownDevice))
        } else {
            central?.manager?.connect(peripheral, options: connectOptions)
        }
    }

    private func endLink(_ error: any Error) {
        for lane in Lane.allCases { perform(lanes[lane.rawValue].end(), lane, .failure(error)) }
        for number in values.numbers { values.end(number, error) }
        values.forgetEarly()
        (attributes, numbers, subscribed) = ([:], [:], [])
    }

    // MARK: Operations

    func begin(_ operation: Operation, _ request: UInt64, _ continuation: Continuation) {
        guard connection.isConnected else { return continuation.resume(throwing: CBError(.notConnected)) }
        continuations[request] = continuation
        add(operation, request)
    }

    func removeBond(_ request: UInt64, _ continuation: Continuation) {
        continuations[request] = continuation
        bondRemovals.insert(request)
        renew()
        let identifier = peripheral.identifier
        central?.manager?.removeBond(with: peripheral) { [weak core = central?.core] error in
            core?.assumeIsolated {
                let delegate = $0.delegate.peripherals[identifier]
                delegate?.bondRemovals.remove(request)
                delegate?.resume(request, error.map { .failure($0) } ?? .success(.done))
            }
        }
    }

    private func resume(_ request: UInt64, _ result: Result<Answer, any Error>) {
        continuations.removeValue(forKey: request)?.resume(with: result)
    }

    /// The task that waits for this was cancelled.
    func cancel(_ request: UInt64) {
        perform(connection.cancel(request))
        for lane in Lane.allCases {
            perform(lanes[lane.rawValue].cancel(request), lane, .failure(CancellationError()))
        }
        resume(request, .failure(CancellationError()))  // it is in no lane
    }

    private func add(_ operation: Operation, _ request: UInt64 = Number.next()) {
        let lane: Lane = operation.callback == .channel ? .channels : .attributes
        perform(lanes[lane.rawValue].add(request, operation), lane)
    }

    /// What is to be done waits here while something is being done: a long queue is no deep recursion.
    private var work: (isRunning: Bool, due: [(Requests.Action, Lane, Result<Answer, any Error>)]) = (false, [])

    private func perform(
        _ actions: [Requests.Action], _ lane: Lane, _ result: Result<Answer, any Error> = .success(.done)
    ) {
        work.due += actions.map { ($0, lane, result) }
        guard !work.isRunning else { return }
        work.isRunning = true
        defer { work.isRunning = false }
        while !work.due.isEmpty {
            switch work.due.removeFirst() {
            case (.make(let request), let lane, _): make(request, lane)
            case (.resume(let request, let outcome), let lane, let result):
                continuations.removeValue(forKey: request.number)?.resume(with: result)
                switch (request.content, outcome, result) {
                case (.setNotify(true, let number), .answered, _): subscribed.insert(number)
                case (.setNotify(true, let number), .cancelled, _):
                    // If it was made, it is not wanted any more.
                    if lanes[lane.rawValue].made?.number == request.number { add(.followConsumers(number)) }
                case (.followConsumers(let number), .failed, .failure(let error)):
                    // Those who came after it, perhaps an end of the subscription, have an answer of their own.
                    if !isToFollow(number, lane) { values.end(number, error) }
                default: break
                }
            }
        }
    }

    private func isToFollow(_ number: UInt64, _ lane: Lane) -> Bool {
        lanes[lane.rawValue].all.contains {
            if case .followConsumers(number) = $0.content { true } else { false }
        }
    }

    private enum Making {
        /// A callback answers it.
        case made
        /// Nothing answers it, or it is so already.
        case done
        /// There is no room for it now.
        case full
    }

    private func make(_ request: Requests.Request, _ lane: Lane) {
        do {
            let making = try make(request.content)
            if making == .full { return }
            lanes[lane.rawValue].didMake()
            if making == .done { perform(lanes[lane.rawValue].didAnswer(), lane) }
        } catch {
            perform(lanes[lane.rawValue].fail(request.number), lane, .failure(error))
        }
    }

    private func make(_ operation: Operation) throws -> Making {
        func uuids(_ data: [Data]?) -> [CBUUID]? { data?.map { CBUUID(data: $0) } }
        switch operation {
        case .discoverServices(let data): peripheral.discoverServices(uuids(data))
        case .discoverIncludedServices(let data, let number):
            peripheral.discoverIncludedServices(uuids(data), for: try attribute(number))
        case .discoverCharacteristics(let data, let number):
            peripheral.discoverCharacteristics(uuids(data), for: try attribute(number))
        case .discoverDescriptors(let number): peripheral.discoverDescriptors(for: try attribute(number))
        case .read(let number): peripheral.readValue(for: try attribute(number) as CBCharacteristic)
        case .readDescriptor(let number): peripheral.readValue(for: try attribute(number) as CBDescriptor)
        case .write(let data, let number):
            peripheral.writeValue(data, for: try attribute(number), type: .withResponse)
        case .writeWithoutResponse(let data, let number):
            let characteristic: CBCharacteristic = try attribute(number)
            // CoreBluetooth drops both silently.
            guard characteristic.properties.contains(.writeWithoutResponse) else {
                throw CBATTError(.writeNotPermitted)
            }
            guard data.count <= peripheral.maximumWriteValueLength(for: .withoutResponse) else {
                throw CBATTError(.invalidAttributeValueLength)
            }
            guard peripheral.canSendWriteWithoutResponse else { return .full }
            peripheral.writeValue(data, for: characteristic, type: .withoutResponse)
            return .done
        case .writeDescriptor(let data, let number):
            let descriptor: CBDescriptor = try attribute(number)
            // Apple's systems end an app that does this.
            let isConfiguration = descriptor.uuid == CBUUID(string: CBUUIDClientCharacteristicConfigurationString)
            guard !isConfiguration else { throw CBATTError(.writeNotPermitted) }
            peripheral.writeValue(data, for: descriptor)
        case .setNotify(let enabled, let number):
            let characteristic: CBCharacteristic = try attribute(number)
            if !enabled {
                subscribed.remove(number)
                values.forgetEarly(number)
            }
            // Consumers of values still need it.
            if !enabled, values.hasConsumers(number) { return .done }
            peripheral.setNotifyValue(enabled, for: characteristic)
        case .followConsumers(let number):
            let characteristic: CBCharacteristic = try attribute(number)
            let isWanted = values.hasConsumers(number) || subscribed.contains(number)
            if isWanted == characteristic.isNotifying { return .done }
            peripheral.setNotifyValue(isWanted, for: characteristic)
        case .readRSSI: peripheral.readRSSI()
        case .openChannel(let psm): peripheral.openL2CAPChannel(psm)
        }
        return .made
    }

    /// The callback of a request, if that is the one that was made.
    func answer(
        _ callback: Operation.Callback, _ attribute: CBAttribute? = nil, _ error: (any Error)?, _ value: () -> Answer
    ) {
        let lane: Lane = callback == .channel ? .channels : .attributes
        let number = attribute.flatMap { numbers[ObjectIdentifier($0)] }
        guard let operation = lanes[lane.rawValue].made?.content, operation.callback == callback,
            operation.attribute == number
        else { return }
        perform(
            lanes[lane.rawValue].didAnswer(error == nil ? .answered : .failed), lane,
            error.map { .failure($0) } ?? .success(value()))
    }

    // MARK: Attributes

    func number(_ attribute: CBAttribute) -> UInt64 {
        if let known = numbers[ObjectIdentifier(attribute)] { return known }
        let number = Number.next()
        (numbers[ObjectIdentifier(attribute)], attributes[number]) = (number, attribute)
        return number
    }

    private func attribute<Attribute: CBAttribute>(_ number: UInt64) throws -> Attribute {
        guard let found = attributes[number] as? Attribute else { throw CBError(.invalidHandle) }
        return found
    }

    // MARK: Values

    func addValues(_ subscription: EventSubscription<Data, any Error>, of characteristic: Characteristic) {
        guard connection.isConnected else { return subscription.finish(throwing: CBError(.notConnected)) }
        let number = characteristic.number
        guard attributes[number] != nil else { return subscription.finish(throwing: CBError(.invalidHandle)) }
        if subscription.isEnded { return }
        if values.add(subscription, number) { add(.followConsumers(number)) }
    }

    func pruneValues(of characteristic: Characteristic) {
        let number = characteristic.number
        if values.prune(number), connection.isConnected { add(.followConsumers(number)) }
    }

    // MARK: What callbacks change

    func invalidate(_ attribute: CBAttribute) {
        guard let number = numbers.removeValue(forKey: ObjectIdentifier(attribute)) else { return }
        attributes[number] = nil
        subscribed.remove(number)
        values.forgetEarly(number)
        values.end(number, CBError(.invalidHandle))
        for request in lanes[Lane.attributes.rawValue].all where request.content.attribute == number {
            perform(
                lanes[Lane.attributes.rawValue].fail(request.number), .attributes, .failure(CBError(.invalidHandle)))
        }
    }

    func notificationsEnded(_ characteristic: CBCharacteristic) {
        guard let number = numbers[ObjectIdentifier(characteristic)] else { return }
        values.forgetEarly(number)
        guard values.hasConsumers(number) else {
            subscribed.remove(number)
            return
        }
        // A consumer that has not ended is subscribed, by what waits for that or was made just now, or once more.
        if !isToFollow(number, .attributes) { add(.followConsumers(number)) }
    }

    /// There is room for writes without response again.
    func retry() { perform(lanes[Lane.attributes.rawValue].retry(), .attributes) }

    func open(_ channel: CBL2CAPChannel) -> L2CAPChannel? { central?.open(channel) }
}
