import BluezKitRestore
import Foundation
import Synchronization

/// Where a peripheral manager's app and the core meet: turns the core's events into changes of the app's objects and
/// into callbacks, on the app's queue and in the order in which they come.
// holds: `manager` is set before others see this; the rest is under a lock
final class PublishMirror: @unchecked Sendable {
    weak var manager: CBPeripheralManager?

    typealias Answer = @Sendable (Result<CBL2CAPPSM, CBError>) -> Void

    /// A service that the core has, or will have: also one that the app has taken back, until the core has let go of
    /// it.
    private struct Known {
        let service: CBMutableService
        let characteristics: [CBMutableCharacteristic]
    }

    private struct OpenChannel {
        let psm: CBL2CAPPSM
        weak var endpoint: ChannelEndpoint?
    }

    // holds: closures are called once, outside the lock
    private struct Shared: @unchecked Sendable {
        var services: [UInt64: Known] = [:]
        /// As long as the core follows them (ID-4).
        var centrals: [UUID: CBCentral] = [:]
        var channels: [UInt32: OpenChannel] = [:]
        var lastTicket: UInt32 = 0
        var answers: [UInt32: (answer: Answer, isRefused: Bool)] = [:]
        /// The app has unpublished these before it could hear of that.
        var silent: Set<CBL2CAPPSM> = []
    }

    private let shared = Protected(Shared())
    private let hasDied = Atomic(false)
    /// Whether the app is hearing of events now.
    let isTelling = Atomic(false)

    /// The app's process has ended, as a simulator has it: no callback follows.
    func die() { hasDied.store(true, ordering: .relaxed) }

    // MARK: What the app publishes

    /// A service as the core gets it, which may name its characteristics from now on.
    /// - Parameter included: The calls that have added the services that it includes; 0: none.
    func publish(_ service: CBMutableService, call: UInt64, included: (CBService) -> UInt64) -> LocalService {
        let characteristics = (service.characteristics ?? []).compactMap { $0 as? CBMutableCharacteristic }
        let known = Known(service: service, characteristics: characteristics)
        let old = shared.withLock { $0.services.updateValue(known, forKey: call) }
        withExtendedLifetime(old) {}  // the app's objects must not be released under the lock
        return LocalService(
            call: call, uuid: CodableUUID(service.uuid), isPrimary: service.isPrimary,
            includes: (service.includedServices ?? []).map { .init(call: included($0), uuid: CodableUUID($0.uuid)) },
            characteristics: characteristics.map(LocalCharacteristic.init),
            placement: service.placement.withLock(\.self))
    }

    /// The core has nothing of it any more.
    func forget(call: UInt64) {
        let gone = shared.withLock { $0.services.removeValue(forKey: call) }
        withExtendedLifetime(gone) {}
    }

    private func service(_ call: UInt64) -> CBMutableService? { shared.withLock { $0.services[call]?.service } }

    private func characteristic(_ id: LocalAttributeID) -> CBMutableCharacteristic? {
        shared.withLock { shared in
            guard let known = shared.services[id.call], known.characteristics.indices.contains(id.index) else {
                return nil
            }
            return known.characteristics[id.index]
        }
    }

    /// The number of a characteristic in the service that `call` has added.
    func id(of characteristic: CBMutableCharacteristic, call: UInt64) -> LocalAttributeID? {
        shared.withLock { shared in
            shared.services[call]?.characteristics.firstIndex { $0 === characteristic }
                .map { LocalAttributeID(call: call, index: $0) }
        }
    }

    /// A keeper has continued what the app publishes.
    func takeOver(_ kept: KeptPublications) {
        shared.withLock { $0.lastTicket = max($0.lastTicket, kept.lastTicket) }
        for subscribers in kept.subscribers {
            guard let characteristic = characteristic(subscribers.characteristic) else { continue }
            for info in subscribers.centrals { characteristic.setSubscribed(true, central(info)) }
        }
    }

    /// The app has given up this channel before it could hear of it: it hears of no answer.
    func unpublishSilently(_ psm: CBL2CAPPSM, _ manager: CBPeripheralManager) {
        shared.withLock { _ = $0.silent.insert(psm) }
        manager.backend.send(.unpublishChannel(psm))
    }

    /// The app has released the manager: nothing is published any more, and no event tells of it.
    func end() {
        let services = shared.withLock { shared in
            defer { shared.services = [:] }
            return shared.services
        }
        for known in services.values { known.characteristics.forEach { $0.forgetSubscribers() } }
        endChannels(nil)
    }

    /// - Parameter isRefused: Whether it was not asked for, as Bluetooth is not on, which the answer tells.
    /// - Returns: The ticket of what `answer` waits for.
    func await(isRefused: Bool = false, _ answer: @escaping Answer) -> UInt32 {
        shared.withLock { shared in
            shared.lastTicket &+= 1
            shared.answers[shared.lastTicket] = (answer, isRefused)
            return shared.lastTicket
        }
    }

    /// Bluetooth was reset: nothing that was asked for is answered.
    func forgetAnswers() {
        let answers = shared.withLock { shared in
            defer { shared.answers = shared.answers.filter(\.value.isRefused) }
            shared.silent = []
            return shared.answers
        }
        withExtendedLifetime(answers) {}
    }

    // MARK: Centrals

    /// One object for each central, as long as the core follows it (ID-4).
    private func central(_ info: CentralInfo) -> CBCentral {
        let central = shared.withLock { shared in
            if let known = shared.centrals[info.identifier] { return known }
            let new = CBCentral(identifier: info.identifier)
            shared.centrals[info.identifier] = new
            return new
        }
        central.setMaximumUpdateValueLength(info.maximumUpdateValueLength)
        return central
    }

    // MARK: Events

    func receive(_ events: [PublishEvent]) {
        isTelling.store(true, ordering: .sequentiallyConsistent)
        for event in events where !hasDied.load(ordering: .relaxed) { receive(event) }
        isTelling.store(false, ordering: .sequentiallyConsistent)
    }

    func receive(_ event: PublishEvent) {
        guard let manager else { return }
        switch event {
        case .access(let access): receive(access, manager)
        case .subscribed(let info, let id):
            guard let characteristic = characteristic(id) else { return }
            let central = central(info)
            characteristic.setSubscribed(true, central)
            manager.preserveSubscribers()
            manager.delegate?.peripheralManager(manager, central: central, didSubscribeTo: characteristic)
        case .unsubscribed(let info, let id):
            guard let characteristic = characteristic(id) else { return }
            let central = central(info)
            characteristic.setSubscribed(false, central)
            manager.preserveSubscribers()
            manager.delegate?.peripheralManager(manager, central: central, didUnsubscribeFrom: characteristic)
        case .centralChanged(let info):
            let known = shared.withLock { $0.centrals[info.identifier] }
            known?.setMaximumUpdateValueLength(info.maximumUpdateValueLength)
        case .centralForgotten(let identifier):
            let gone = shared.withLock { $0.centrals.removeValue(forKey: identifier) }
            withExtendedLifetime(gone) {}
        case .ready: manager.delegate?.peripheralManagerIsReady(toUpdateSubscribers: manager)
        case .sent, .checkpoint: break  // for the two sides of a keeper
        case .forgetSubscribers(let id): characteristic(id)?.forgetSubscribers()
        case .state(let state, let servicesGeneration, let adapterGeneration):
            if state.value == .poweredOn {
                manager.shared.withLock { shared in
                    (shared.servicesGeneration, shared.adapterGeneration) = (servicesGeneration, adapterGeneration)
                }
            }
            if state.value != .poweredOn, state.value != .poweredOff { forgetAnswers() }
            manager.enter(state.value)
        case .restored(let plan): manager.restore(plan)
        case .handedOver(let snapshot, let handOver): manager.takeOver(snapshot, handOver)
        case .added(let call, let error, let isResumed): added(call, error?.error, isResumed, manager)
        case .placed(let call, let placement): service(call)?.placement.withLock { $0 = placement }
        case .withdrawn(let call, let isForgotten):
            if isForgotten { takeBack(call, manager) }
            forget(call: call)
        case .advertising(let isOnAir, let token, let error, let isResumed):
            if isResumed, let error { Log.warning("the advertisement cannot be restarted: \(error.error)") }
            guard manager.setAdvertising(isOnAir, token) else { return }
            // A keeper may have told it to another process, and have started again for this one.
            if !isOnAir, manager.backend.isKept {
                manager.backend.send(.stopAdvertising(token: manager.endAdvertising()))
            }
            if isResumed { return }
            manager.delegate?.peripheralManagerDidStartAdvertising(manager, error: error?.error)
        case .notAdvertised(let error, let token):
            guard manager.isCurrent(token) else { return }  // as with a start that was undone
            manager.delegate?.peripheralManagerDidStartAdvertising(manager, error: error.error)
        case .advertisingReleased(let token): manager.advertisingReleased(token)
        case .channelPublished(let channel, let old, let ticket):
            let answer = ticket.flatMap(takeAnswer)
            if manager.backend.isKept, ticket != nil && answer == nil || old.map(manager.hasPublished) == false {
                // What waited for it has ended with an earlier process, or the app has given it up since.
                return unpublishSilently(channel.psm, manager)
            }
            manager.recordPublished(channel, old: old)
            if ticket != nil { return answer?(.success(channel.psm)) ?? () }
            manager.delegate?.peripheralManager(manager, didPublishL2CAPChannel: channel.psm, error: nil)
        case .channelNotPublished(let error, let ticket):
            if let ticket {
                return takeAnswer(ticket)?(.failure(error.error as? CBError ?? CBError(.unknown))) ?? ()
            }
            manager.delegate?.peripheralManager(manager, didPublishL2CAPChannel: 0, error: error.error)
        case .channelUnpublished(let psm, let error):
            guard shared.withLock({ $0.silent.remove(psm) }) == nil else { return }
            manager.delegate?.peripheralManager(manager, didUnpublishL2CAPChannel: psm, error: error?.error)
        case .channelOpened(let number, let psm, let info, let passed):
            opened(number, psm, central(info), passed.socket, manager)
        case .endChannels(let psm): endChannels(psm)
        }
    }

    private func receive(_ access: AttributeAccess, _ manager: CBPeripheralManager) {
        guard let characteristic = characteristic(access.characteristic) else { return }
        let request = CBATTRequest(
            central: central(access.central), characteristic: characteristic, offset: access.offset,
            value: access.value, ticket: access.ticket)
        if access.value == nil {
            manager.delegate?.peripheralManager(manager, didReceiveRead: request)
        } else {
            manager.delegate?.peripheralManager(manager, didReceiveWrite: [request])
        }
    }

    private func added(_ call: UInt64, _ error: (any Error)?, _ isResumed: Bool, _ manager: CBPeripheralManager) {
        guard let service = service(call) else { return }
        if error == nil {
            manager.preserveServices()  // with its handle
        } else {
            if isResumed { service.markLost() }
            takeBack(call, manager)
            forget(call: call)
        }
        if !isResumed { manager.delegate?.peripheralManager(manager, didAdd: service, error: error) }
    }

    /// The core has nothing of the service, and the app hears so.
    private func takeBack(_ call: UInt64, _ manager: CBPeripheralManager) {
        manager.forget(call: call)
        // A keeper may have told it to another process, and have tried again for this one.
        if manager.backend.isKept { manager.backend.send(.remove(call: call)) }
    }

    private func takeAnswer(_ ticket: UInt32) -> Answer? {
        shared.withLock { $0.answers.removeValue(forKey: ticket)?.answer }
    }

    // MARK: L2CAP channels

    private func opened(
        _ number: UInt32, _ psm: CBL2CAPPSM, _ central: CBCentral, _ socket: ChannelSocket,
        _ manager: CBPeripheralManager
    ) {
        let backend = manager.backend
        let trace = backend.channelTrace(number)
        guard let endpoint = ChannelEndpoint(socket, backend.timing.channel, trace: trace, onEnd: {}) else {
            return backend.send(.channelReleased(number))
        }
        shared.withLock { $0.channels[number] = OpenChannel(psm: psm, endpoint: endpoint) }
        let channel = CBL2CAPChannel(peer: central, psm: psm, socket, endpoint) { [weak self] in
            backend.send(.channelReleased(number))
            self?.shared.withLock { $0.channels[number] = nil }
        }
        manager.delegate?.peripheralManager(manager, didOpen: channel, error: nil)
    }

    func endChannels(_ psm: CBL2CAPPSM?) {
        let endpoints = shared.withLock { shared in
            shared.channels.values.filter { psm == nil || $0.psm == psm }.compactMap(\.endpoint)
        }
        for endpoint in endpoints { endpoint.end() }
    }
}

extension LocalCharacteristic {
    init(_ characteristic: CBMutableCharacteristic) {
        uuid = CodableUUID(characteristic.uuid)
        (properties, permissions) = (Coded(characteristic.properties), Coded(characteristic.permissions))
        value = characteristic.value.map { [UInt8]($0) }
        descriptors = (characteristic.descriptors ?? []).map(LocalDescriptor.init)
    }
}

extension LocalDescriptor {
    init(_ descriptor: CBDescriptor) {
        uuid = CodableUUID(descriptor.uuid)
        switch descriptor.value {
        case let text as String: value = [UInt8](text.utf8)
        case let data as Data: value = [UInt8](data)
        case nil: value = []
        default: value = nil
        }
    }
}
