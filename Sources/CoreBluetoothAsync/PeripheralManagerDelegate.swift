import CoreBluetooth
import Synchronization

/// A value on its way to the subscribers of a characteristic.
struct Update: Sendable {
    let value: Data
    let centrals: [UUID]?
}

/// What is asked for about published channels.
enum ChannelRequest: Sendable {
    case publish(withEncryption: Bool)
    case unpublish(CBL2CAPPSM)
}

/// What the app has called off while Bluetooth was not on, and the system takes no commands.
struct CalledOff {
    var isAdvertising = false
    var allServices = false
    var services: [CBMutableService] = []
    var channels: Set<CBL2CAPPSM> = []

    func perform(_ manager: CBPeripheralManager) {
        if isAdvertising { manager.stopAdvertising() }
        if allServices { manager.removeAllServices() }
        for service in services { manager.remove(service) }
        for psm in channels { manager.unpublishL2CAPChannel(psm) }
    }

    /// What remains of a restored state.
    func rest(of state: [String: Any]) -> [String: Any] {
        var rest = state
        if isAdvertising { rest[CBPeripheralManagerRestoredStateAdvertisementDataKey] = nil }
        if allServices { rest[CBPeripheralManagerRestoredStateServicesKey] = nil }
        return rest
    }
}

/// The delegate of the `CBPeripheralManager`. Used on its queue only, by its callbacks and by
/// ``PeripheralManagerCore``, which runs there.
final class PeripheralManagerDelegate: NSObject, CBPeripheralManagerDelegate {
    /// What an operation returns.
    enum Answer: Sendable {
        case done
        case service(PublishedService)
        case psm(CBL2CAPPSM)
    }
    typealias Continuation = CheckedContinuation<Answer, any Error>

    private(set) var manager: CBPeripheralManager?
    private(set) weak var core: PeripheralManagerCore?
    private var calledOff = CalledOff()

    private var published = ServiceTable()
    var continuations: [UInt64: Continuation] = [:]
    private var advertising: UInt64?
    /// By characteristic: the system has room for each of them apart, so that none waits for the subscribers of
    /// another.
    private var updates: [UInt64: RequestQueue<Update>] = [:]
    var publishing = RequestQueue<ChannelRequest>()
    var restoredChannels = RestoredChannels()
    let channels = ChannelTable()
    private(set) var requests = ReceivedRequests()

    private var states = EventHub<CBManagerState, Never>()
    var subscriptions = EventHub<SubscriptionChange, Never>()
    var openedChannels = EventHub<L2CAPChannel, Never>()
    private var restored: Restoration<RestoredPeripheralState>

    init(_ restored: Once<RestoredPeripheralState>) {
        self.restored = Restoration(restored)
        super.init()
    }

    func start(_ core: PeripheralManagerCore, options: [String: Any]?, restoring services: [CBMutableService]) {
        (self.core, published) = (core, ServiceTable(comparing: services))
        manager = CBPeripheralManager(delegate: self, queue: core.executor.queue, options: withoutResuming(options))
    }

    /// The app has released the manager.
    func shutDown() {
        end(BluetoothError.managerReleased)
        channels.closeAll()
        manager = nil
        (published, calledOff) = (ServiceTable(), CalledOff())
        states.close()
        requests.close()
        subscriptions.close()
        openedChannels.close()
        restored.end()
    }

    /// What was begun is not answered any more.
    private func end(_ error: any Error) {
        for service in published.endAdding() { withdraw(service) }
        let waiting = continuations
        (continuations, advertising) = ([:], nil)
        (updates, publishing) = ([:], RequestQueue())
        requests.forget()
        restoredChannels.end()
        for continuation in waiting.values { continuation.resume(throwing: error) }
    }

    func resume(_ request: UInt64, _ result: Result<Answer, any Error>) {
        continuations.removeValue(forKey: request)?.resume(with: result)
    }

    /// Ends something: now, or before anything else happens when Bluetooth is on again.
    func callOff(_ add: (inout CalledOff) -> Void) {
        add(&calledOff)
        performCalledOff()
    }

    private func performCalledOff() {
        guard let manager, manager.state == .poweredOn else { return }
        calledOff.perform(manager)
        calledOff = CalledOff()
    }

    // MARK: Consumers

    func addStates(_ subscription: EventSubscription<CBManagerState, Never>) {
        guard let manager else { return subscription.finish(throwing: nil) }
        subscription.send(manager.state)
        states.add(subscription)
    }

    func addRequests(_ subscription: EventSubscription<ATTRequest, Never>) { requests.add(subscription) }

    /// - Parameter untaken: Other consumers may have answered some of them, or given them back as well.
    func giveBack(_ untaken: [ATTRequest], hasTaken: Bool) {
        if manager != nil { requests.giveBack(untaken, hasTaken: hasTaken) }
    }

    func addRestoration(_ subscription: EventSubscription<RestoredPeripheralState, Never>) {
        restored.add(subscription, isDecided: manager?.state != .unknown)
    }

    func pruneEvents() {
        states.prune()
        requests.prune()
        subscriptions.prune()
        openedChannels.prune()
        restored.prune()
    }

    // MARK: Services

    func add(_ service: CBMutableService, _ request: UInt64, _ continuation: Continuation) {
        continuations[request] = continuation
        published.includeRestored(in: service)
        published.add(service, by: request)
        manager?.add(service)
    }

    func cancelAdd(_ request: UInt64) {
        guard let service = published.endAdding(request) else { return }
        withdraw(service)
        resume(request, .failure(CancellationError()))
    }

    func remove(_ service: PublishedService) {
        withdraw(service)
        for (request, added) in published.adding where added == service {
            _ = published.endAdding(request)
            resume(request, .failure(CBError(.operationCancelled)))
        }
    }

    func removeAllServices() {
        for number in published.services.keys { forget(number) }
        callOff { $0.allServices = true }
        restored.once.change {
            RestoredPeripheralState(services: [], advertisementData: $0.advertisementData, channels: $0.channels)
        }
        for request in published.adding.keys { resume(request, .failure(CBError(.operationCancelled))) }
        published.endAdding()
    }

    private func withdraw(_ service: PublishedService) {
        guard let object = forget(service.number) else { return }
        callOff { $0.services.append(object) }
    }

    @discardableResult
    private func forget(_ service: UInt64) -> CBMutableService? {
        guard let (object, gone) = published.remove(service) else { return nil }
        for characteristic in gone {
            guard var queue = updates.removeValue(forKey: characteristic) else { continue }
            perform(queue.end(), of: characteristic, CBError(.invalidHandle))
        }
        return object
    }

    // MARK: Advertising

    var isAdvertising: Bool { manager?.isAdvertising == true && !calledOff.isAdvertising }

    func startAdvertising(_ data: [String: Any]?, _ request: UInt64, _ continuation: Continuation) {
        // Which of two is answered could not be told; and the cancel of one that is refused must not end the other.
        guard advertising == nil, !isAdvertising else {
            return continuation.resume(throwing: CBError(.alreadyAdvertising))
        }
        continuations[request] = continuation
        advertising = request
        manager?.startAdvertising(data)
    }

    func cancelAdvertising(_ request: UInt64) {
        if advertising == request { endAdvertising(CancellationError()) }
    }

    func stopAdvertising() { endAdvertising(CBError(.operationCancelled)) }

    private func endAdvertising(_ error: any Error) {
        callOff { $0.isAdvertising = true }
        restored.once.change {
            RestoredPeripheralState(services: $0.services, advertisementData: nil, channels: $0.channels)
        }
        if let request = advertising { resume(request, .failure(error)) }
        advertising = nil
    }

    // MARK: Centrals

    func subscribers(_ characteristic: UInt64) -> [CBCentral] {
        published.characteristics[characteristic]?.subscribedCentrals ?? []
    }

    func setLatency(_ latency: CBPeripheralManagerConnectionLatency, for central: Central) {
        let all = published.characteristics.values.flatMap { $0.subscribedCentrals ?? [] }
        guard let object = all.first(where: { $0.identifier == central.identifier }) else { return }
        manager?.setDesiredConnectionLatency(latency, for: object)
    }

    func update(_ update: Update, of characteristic: UInt64, _ request: UInt64, _ continuation: Continuation) {
        continuations[request] = continuation
        perform(updates[characteristic, default: RequestQueue()].add(request, update), of: characteristic)
    }

    func cancelUpdate(_ request: UInt64, of characteristic: UInt64) {
        perform(updates[characteristic]?.cancel(request) ?? [], of: characteristic, CancellationError())
    }

    private func perform(
        _ actions: [RequestQueue<Update>.Action], of characteristic: UInt64, _ error: (any Error)? = nil
    ) {
        var work = actions.map { ($0, error) }
        while !work.isEmpty {
            switch work.removeFirst() {
            case (.resume(let request, _), let error):
                resume(request.number, error.map { .failure($0) } ?? .success(.done))
            case (.make(let request), _):
                guard let object = published.characteristics[characteristic] else {
                    let failed = updates[characteristic]?.fail(request.number) ?? []
                    work += failed.map { ($0, CBError(.invalidHandle)) }
                    break
                }
                guard send(request.content, of: object) else { break }  // until there is room
                work += (updates[characteristic]?.didAnswer() ?? []).map { ($0, nil) }
            }
        }
        if updates[characteristic]?.isEmpty == true { updates[characteristic] = nil }
    }

    private func send(_ update: Update, of characteristic: CBMutableCharacteristic) -> Bool {
        // Without subscribers there is nothing to send, nor to wait for: CoreBluetooth returns false for a restored
        // service that could not be published again, and never says when there is room.
        guard let subscribed = characteristic.subscribedCentrals, !subscribed.isEmpty else { return true }
        let centrals = update.centrals.map { wanted in subscribed.filter { wanted.contains($0.identifier) } }
        // An empty list means all of them, for CoreBluetooth too.
        if centrals?.isEmpty == true { return true }
        return manager?.updateValue(update.value, for: characteristic, onSubscribedCentrals: centrals) == true
    }

    // MARK: Requests

    func respond(_ number: UInt64, _ result: CBATTError.Code, _ value: Data) {
        guard let (request, result) = requests.answer(number, result, value) else { return }
        manager?.respond(to: request, withResult: result)
    }

    private func receive(_ kind: ATTRequest.Kind, _ request: CBATTRequest) {
        guard let core else { return }
        let characteristic = published.handle(request.characteristic)
        requests.receive(
            ATTRequest(kind, Number.next(), Central(request.central), characteristic, core: core), as: request)
    }

    // MARK: Callbacks

    func peripheralManager(_ peripheral: CBPeripheralManager, willRestoreState dict: [String: Any]) {
        let dict = calledOff.rest(of: dict)
        let data = dict[CBPeripheralManagerRestoredStateAdvertisementDataKey] as? [String: Any]
        let channels = peripheral.channelsToRestore
        restoredChannels = RestoredChannels(channels)
        restored.once.put(
            RestoredPeripheralState(
                services: published.restore(from: dict),
                advertisementData: data.map { AdvertisementData($0) },
                channels: channels))
    }

    func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
        let state = peripheral.state
        core?.state.withLock { $0 = state }
        if state == .poweredOn {
            restored.hasBeenOn = true
            performCalledOff()
        } else {
            end(BluetoothError.unavailable(state))
            if restored.hasBeenOn, state != .poweredOff {
                (published, restoredChannels, calledOff) = (ServiceTable(), RestoredChannels(), CalledOff())
                restored.end()
            }
        }
        states.send(state)
        restored.decide()
    }

    func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?) {
        guard let request = advertising else { return }
        advertising = nil
        resume(request, error.map { .failure($0) } ?? .success(.done))
    }

    func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) {
        guard let number = published.number(of: service),
            let (request, added) = published.adding.first(where: { $1.number == number })
        else { return }
        _ = published.endAdding(request)
        if error != nil { forget(number) }
        resume(request, error.map { .failure($0) } ?? .success(.service(added)))
    }

    func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
    ) { report(central, characteristic, true) }

    func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic
    ) { report(central, characteristic, false) }

    private func report(_ central: CBCentral, _ characteristic: CBCharacteristic, _ isSubscribed: Bool) {
        subscriptions.send(
            SubscriptionChange(
                central: Central(central), characteristic: published.handle(characteristic), isSubscribed: isSubscribed)
        )
    }

    func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {
        receive(.read(offset: request.offset), request)
    }

    func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) {
        guard let first = requests.first else { return }
        let writes = requests.map {
            ATTRequest.Write(
                characteristic: published.handle($0.characteristic), offset: $0.offset, value: $0.value ?? Data())
        }
        receive(.write(writes), first)
    }

    func peripheralManagerIsReady(toUpdateSubscribers peripheral: CBPeripheralManager) {
        for characteristic in updates.keys { perform(updates[characteristic]?.retry() ?? [], of: characteristic) }
    }
}
