import CoreBluetooth
import Synchronization

/// A value on its way to subscribers.
struct Update: Sendable {
    let value: Data
    let characteristic: UInt64
    let centrals: [UUID]?
}

/// What is asked for about published channels.
enum ChannelRequest: Sendable {
    case publish(withEncryption: Bool)
    case unpublish(CBL2CAPPSM)
}

/// The delegate of the `CBPeripheralManager`. Used on its queue only, by its callbacks and by ``PeripheralManagerCore``, which
/// runs there.
final class PeripheralManagerLink: NSObject, CBPeripheralManagerDelegate {
    /// Only publishing a channel returns something.
    typealias Continuation = CheckedContinuation<CBL2CAPPSM?, any Error>

    private(set) var manager: CBPeripheralManager?
    private weak var core: PeripheralManagerCore?

    private var services: [UInt64: CBMutableService] = [:]
    private var characteristics: [UInt64: CBMutableCharacteristic] = [:]
    private var numbers: [ObjectIdentifier: UInt64] = [:]

    /// By the service that is added.
    private var adding: [UInt64: (service: UInt64, Continuation)] = [:]
    private var advertising: (request: UInt64, continuation: Continuation)?
    private var updates = RequestQueue<Update>()
    private var publishing = RequestQueue<ChannelRequest>()
    /// Of updates and of channels that are published.
    private var continuations: [UInt64: Continuation] = [:]
    let channels = ChannelTable()
    private var requests: [UInt64: (CBATTRequest, isRead: Bool)] = [:]

    private var states = EventHub<CBManagerState, Never>()
    private var consumers = EventHub<ATTRequest, Never>()
    /// Those that came before there was a consumer.
    private var early: [ATTRequest]? = []
    var subscriptions = EventHub<SubscriptionChange, Never>()
    var openedChannels = EventHub<L2CAPChannel, Never>()
    private var restored: RestoredPeripheralState?
    private var restorations = EventHub<RestoredPeripheralState, Never>()

    func start(_ core: PeripheralManagerCore, options: [String: Any]?) {
        self.core = core
        manager = CBPeripheralManager(delegate: self, queue: core.executor.queue, options: options)
    }

    /// The app has released the manager.
    func shutDown() {
        end(BluetoothError.managerReleased)
        channels.closeAll()
        manager = nil
        (services, characteristics, numbers, early) = ([:], [:], [:], nil)
        states.finish(throwing: nil)
        consumers.finish(throwing: nil)
        subscriptions.finish(throwing: nil)
        openedChannels.finish(throwing: nil)
        restorations.finish(throwing: nil)
    }

    /// What was begun is not answered any more.
    private func end(_ error: any Error) {
        for (_, continuation) in adding.values { continuation.resume(throwing: error) }
        adding = [:]
        advertising?.continuation.resume(throwing: error)
        advertising = nil
        requests = [:]
        perform(updates.end(), error)
        perform(publishing.end(), .failure(error))
    }

    // MARK: Consumers

    func addStates(_ subscription: EventSubscription<CBManagerState, Never>) {
        guard let manager else { return subscription.finish(throwing: nil) }
        subscription.send(manager.state)
        states.add(subscription)
    }

    func addRequests(_ subscription: EventSubscription<ATTRequest, Never>) {
        guard manager != nil else { return subscription.finish(throwing: nil) }
        consumers.add(subscription)
        for request in early ?? [] { subscription.send(request) }
        early = nil
    }

    func addRestoration(_ subscription: EventSubscription<RestoredPeripheralState, Never>) {
        if let manager, manager.state == .unknown, restored == nil { return restorations.add(subscription) }
        if let restored { subscription.send(restored) }
        restored = nil
        subscription.finish(throwing: nil)
    }

    func pruneEvents() {
        states.prune()
        consumers.prune()
        subscriptions.prune()
        openedChannels.prune()
        restorations.prune()
    }

    // MARK: Services

    private func number(_ object: NSObject) -> UInt64 {
        let number = numbers[ObjectIdentifier(object)] ?? Number.next()
        numbers[ObjectIdentifier(object)] = number
        return number
    }

    func register(_ service: CBMutableService) -> PublishedService {
        let number = number(service)
        services[number] = service
        let published = (service.characteristics ?? []).map { characteristic in
            let number = self.number(characteristic)
            characteristics[number] = characteristic as? CBMutableCharacteristic
            return PublishedCharacteristic(number: number, characteristic)
        }
        return PublishedService(number: number, service, published)
    }

    /// Zero stands for one that was withdrawn meanwhile.
    private func handle(_ characteristic: CBCharacteristic) -> PublishedCharacteristic {
        PublishedCharacteristic(number: numbers[ObjectIdentifier(characteristic)] ?? 0, characteristic)
    }

    private func forget(_ service: CBMutableService) {
        for object in [service] + (service.characteristics ?? []) as [NSObject] {
            guard let number = numbers.removeValue(forKey: ObjectIdentifier(object)) else { continue }
            (services[number], characteristics[number]) = (nil, nil)
        }
    }

    func add(_ service: PublishedService, _ request: UInt64, _ continuation: Continuation) {
        guard let object = services[service.number] else {
            return continuation.resume(throwing: CBError(.invalidHandle))
        }
        adding[request] = (service.number, continuation)
        manager?.add(object)
    }

    func cancelAdd(_ request: UInt64) {
        guard let (number, continuation) = adding.removeValue(forKey: request) else { return }
        if let service = services[number] {
            manager?.remove(service)
            forget(service)
        }
        continuation.resume(throwing: CancellationError())
    }

    func remove(_ service: PublishedService) {
        guard let object = services[service.number] else { return }
        manager?.remove(object)
        forget(object)
        for (request, (number, continuation)) in adding where number == service.number {
            adding[request] = nil
            continuation.resume(throwing: CBError(.operationCancelled))
        }
    }

    func removeAllServices() {
        manager?.removeAllServices()
        (services, characteristics, numbers) = ([:], [:], [:])
        for (_, continuation) in adding.values { continuation.resume(throwing: CBError(.operationCancelled)) }
        adding = [:]
    }

    // MARK: Advertising

    func startAdvertising(_ data: [String: Any]?, _ request: UInt64, _ continuation: Continuation) {
        // Which of two is answered could not be told.
        guard advertising == nil else { return continuation.resume(throwing: CBError(.alreadyAdvertising)) }
        advertising = (request, continuation)
        manager?.startAdvertising(data)
    }

    func cancelAdvertising(_ request: UInt64) {
        guard let (current, continuation) = advertising, current == request else { return }
        advertising = nil
        manager?.stopAdvertising()
        continuation.resume(throwing: CancellationError())
    }

    func stopAdvertising() {
        manager?.stopAdvertising()
        advertising?.continuation.resume(throwing: CBError(.operationCancelled))
        advertising = nil
    }

    // MARK: Centrals

    func subscribers(_ characteristic: UInt64) -> [CBCentral] {
        characteristics[characteristic]?.subscribedCentrals ?? []
    }

    func setLatency(_ latency: CBPeripheralManagerConnectionLatency, for central: Central) {
        let all = characteristics.values.flatMap { $0.subscribedCentrals ?? [] }
        guard let object = all.first(where: { $0.identifier == central.identifier }) else { return }
        manager?.setDesiredConnectionLatency(latency, for: object)
    }

    func update(_ update: Update, _ request: UInt64, _ continuation: Continuation) {
        continuations[request] = continuation
        perform(updates.add(request, update))
    }

    func cancelUpdate(_ request: UInt64) { perform(updates.cancel(request), CancellationError()) }

    private func perform(_ actions: [RequestQueue<Update>.Action], _ error: (any Error)? = nil) {
        var work = actions.map { ($0, error) }
        while !work.isEmpty {
            switch work.removeFirst() {
            case (.resume(let request, _), let error):
                let continuation = continuations.removeValue(forKey: request.number)
                if let error { continuation?.resume(throwing: error) } else { continuation?.resume(returning: nil) }
            case (.make(let request), _):
                let update = request.content
                guard let characteristic = characteristics[update.characteristic] else {
                    work += updates.fail(request.number).map { ($0, CBError(.invalidHandle)) }
                    break
                }
                let centrals = update.centrals.map { wanted in
                    subscribers(update.characteristic).filter { wanted.contains($0.identifier) }
                }
                // An empty list means all of them, for CoreBluetooth too.
                let isForNobody = centrals?.isEmpty == true
                let isSent =
                    isForNobody
                    || manager?.updateValue(update.value, for: characteristic, onSubscribedCentrals: centrals) == true
                guard isSent else { break }  // until there is room
                work += updates.didAnswer().map { ($0, nil) }
            }
        }
    }

    // MARK: Channels

    func begin(_ channelRequest: ChannelRequest, _ request: UInt64, _ continuation: Continuation) {
        continuations[request] = continuation
        perform(publishing.add(request, channelRequest), .success(nil))
    }

    func cancelPublishing(_ request: UInt64) { perform(publishing.cancel(request), .failure(CancellationError())) }

    private func perform(_ actions: [RequestQueue<ChannelRequest>.Action], _ result: Result<CBL2CAPPSM?, any Error>) {
        for action in actions {
            switch action {
            case .make(let request):
                publishing.didMake()
                switch request.content {
                case .publish(let isEncrypted): manager?.publishL2CAPChannel(withEncryption: isEncrypted)
                case .unpublish(let psm): manager?.unpublishL2CAPChannel(psm)
                }
            case .resume(let request, _): continuations.removeValue(forKey: request.number)?.resume(with: result)
            }
        }
    }

    func peripheralManager(
        _ peripheral: CBPeripheralManager, didPublishL2CAPChannel PSM: CBL2CAPPSM, error: (any Error)?
    ) {
        guard let made = publishing.made, case .publish = made.content else { return }
        if error == nil, continuations[made.number] == nil { peripheral.unpublishL2CAPChannel(PSM) }
        perform(publishing.didAnswer(), error.map { .failure($0) } ?? .success(PSM))
    }

    func peripheralManager(
        _ peripheral: CBPeripheralManager, didUnpublishL2CAPChannel PSM: CBL2CAPPSM, error: (any Error)?
    ) {
        guard case .unpublish = publishing.made?.content else { return }
        perform(publishing.didAnswer(), error.map { .failure($0) } ?? .success(nil))
    }

    func peripheralManager(_ peripheral: CBPeripheralManager, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
        guard let channel, let core, !openedChannels.isEmpty else { return }
        openedChannels.send(channels.add(channel, core))
    }

    // MARK: Requests

    func respond(_ number: UInt64, _ result: CBATTError.Code, _ value: Data) {
        guard let (request, isRead) = requests.removeValue(forKey: number) else { return }
        var result = result
        if isRead, case .success = result {
            if request.offset > value.count {
                result = .invalidOffset
            } else {
                request.value = Data(value.dropFirst(request.offset))
            }
        }
        manager?.respond(to: request, withResult: result)
    }

    private func receive(_ kind: ATTRequest.Kind, _ request: CBATTRequest) {
        guard let core else { return }
        let number = Number.next()
        let isRead = if case .read = kind { true } else { false }
        requests[number] = (request, isRead)
        let characteristic = handle(request.characteristic)
        let received = ATTRequest(kind, number, Central(request.central), characteristic, core: core)
        if early != nil { early?.append(received) } else { consumers.send(received) }
    }

    // MARK: Callbacks

    func peripheralManager(_ peripheral: CBPeripheralManager, willRestoreState dict: [String: Any]) {
        let services = dict[CBPeripheralManagerRestoredStateServicesKey] as? [CBMutableService] ?? []
        let data = dict[CBPeripheralManagerRestoredStateAdvertisementDataKey] as? [String: Any]
        restored = RestoredPeripheralState(
            services: services.map { register($0) }, advertisementData: data.map { AdvertisementData($0) })
    }

    func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
        let state = peripheral.state
        core?.state.withLock { $0 = state }
        if state != .poweredOn {
            end(BluetoothError.unavailable(state))
            if state != .poweredOff { (services, characteristics, numbers) = ([:], [:], [:]) }
        }
        states.send(state)
        if !restorations.isEmpty {
            if let restored { restorations.send(restored) }
            restored = nil
            restorations.finish(throwing: nil)
        }
    }

    func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?) {
        guard let (_, continuation) = advertising else { return }
        advertising = nil
        if let error { continuation.resume(throwing: error) } else { continuation.resume(returning: nil) }
    }

    func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) {
        guard let number = numbers[ObjectIdentifier(service)],
            let (request, (_, continuation)) = adding.first(where: { $1.service == number })
        else { return }
        adding[request] = nil
        if let error {
            if let service = services[number] { forget(service) }
            continuation.resume(throwing: error)
        } else {
            continuation.resume(returning: nil)
        }
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
                central: Central(central), characteristic: handle(characteristic), isSubscribed: isSubscribed))
    }

    func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {
        receive(.read(offset: request.offset), request)
    }

    func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) {
        guard let first = requests.first else { return }
        let writes = requests.map {
            ATTRequest.Write(characteristic: handle($0.characteristic), offset: $0.offset, value: $0.value ?? Data())
        }
        receive(.write(writes), first)
    }

    func peripheralManagerIsReady(toUpdateSubscribers peripheral: CBPeripheralManager) { perform(updates.retry()) }
}
