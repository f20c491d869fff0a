import BluezKitRestore
import Foundation
import Synchronization

/// Preserving the work of a peripheral manager, and resuming it. BlueZ has withdrawn everything together with the
/// process, so there is nothing to query. The services are published again with the commands that the app's own calls
/// use, marked so that no callback follows; then the advertisement is started. When `willRestoreState` has returned,
/// services that this version of the app makes differently are withdrawn (``CBMutableService/restored(from:)``), before
/// BlueZ is given any of them.
extension CBPeripheralManager {
    // MARK: Preserving

    /// May be called on any thread; the record is on disk when it returns.
    func preserveServices() {
        book?.record { [self] in
            let added = shared.withLock { $0.added }
            let services = added.map(\.service)
            // A service that includes another must follow it, even if the app's order was different, because BlueZ
            // requires that.
            let records = added.compactMap { service, call in
                Snapshot.LocalService(service, among: services, call: backend.isKept ? call : nil)
            }
            return [.services(are: records)]
        }
    }

    /// BlueZ ends subscriptions with the process: the subscribers are only reported.
    func preserveSubscribers() {
        book?.gather { [weak self] in
            guard let self, state == .poweredOn else { return }
            preserveServices()
        }
    }

    func preserveAdvertisement() {
        book?.record { [self] in [.advertisement(is: shared.withLock { $0.advertisement })] }
    }

    /// A channel is published.
    /// - Parameter old: The PSM that it had in an earlier process.
    func recordPublished(_ channel: Snapshot.PublishedChannel, old: CBL2CAPPSM?) {
        shared.withLock { shared in
            // The first: one that has got its PSM since comes later. A keeper may tell of one twice.
            let known = old ?? channel.psm
            if let index = shared.channels.firstIndex(where: { $0.psm == known }) { shared.channels.remove(at: index) }
            shared.channels.append(channel)
        }
        preserveChannels()
    }

    /// Whether the app has a channel with this PSM.
    func hasPublished(_ psm: CBL2CAPPSM) -> Bool { shared.withLock { $0.channels.contains { $0.psm == psm } } }

    /// The app has unpublished it.
    func forgetPublished(_ psm: CBL2CAPPSM) {
        shared.withLock { $0.channels.removeAll { $0.psm == psm } }
        preserveChannels()
    }

    private func preserveAll() {
        preserveServices()
        preserveChannels()
        preserveAdvertisement()
    }

    private func preserveChannels() {
        book?.record { [self] in [.channels(are: shared.withLock { $0.channels })] }
    }

    /// The first start applies: a second one, before the first has finished, has no effect (AD-4).
    /// - Returns: The start.
    func preserve(_ advertisement: AdvertisementRequest) -> AdvertisingStart {
        let start = shared.withLock { shared in
            if shared.advertisement == nil { shared.advertisement = advertisement }
            return AdvertisingStart(token: shared.advertisingToken, adapterGeneration: shared.adapterGeneration)
        }
        preserveAdvertisement()
        return start
    }

    // MARK: Resuming after a reset

    /// On the delegate's queue, before `didUpdateState`: the effect of the new state on services and advertisement.
    func follow(_ state: CBManagerState, from previous: CBManagerState) {
        guard state != .poweredOn else { return resume(from: previous) }
        let isSwitchedOff = state == .poweredOff && previous == .poweredOn
        // Restored state has not been interrupted yet: it waits for Bluetooth to be on for the first time.
        let isWaiting = previous == .unknown || shared.withLock { $0.resumesAtPowerOn }
        if let book, book.resumes || isWaiting, !isSwitchedOff {
            if !book.cancelPowerOffReset() { book.record { [.off] } }
            return suspend(book)
        }
        endAdvertising()
        if state == .poweredOff {
            book?.schedulePowerOffReset()
        } else {
            // Not in the book: when the computer is switched off, bluetoothd may exit before this process.
            _ = book?.cancelPowerOffReset()
            let services = shared.withLock { shared in
                defer { (shared.added, shared.channels) = ([], []) }
                return shared.added
            }
            // Not under the lock: they may be the last references to the app's objects.
            for (_, call) in services { mirror.forget(call: call) }
        }
    }

    /// BlueZ has lost everything; it is registered again when BlueZ is back.
    private func suspend(_ book: IntentBook) {
        let advertisement = book.advertisement
        shared.withLock { shared in
            (shared.advertisement, shared.isAdvertising) = (advertisement, advertisement != nil)
            shared.advertisingToken += 1
            shared.resumesAtPowerOn = true
        }
    }

    private func resume(from previous: CBManagerState) {
        guard let book else { return }
        let wasSwitchedOff = book.commitPowerOffReset()
        defer { if previous != .unknown { preserveAll() } }
        let (services, channels, advertisement, start, generation) = shared.withLock { shared in
            defer { shared.resumesAtPowerOn = false }
            if wasSwitchedOff { (shared.advertisement, shared.isAdvertising) = (nil, false) }
            let start = AdvertisingStart(token: shared.advertisingToken, adapterGeneration: shared.adapterGeneration)
            let isDue = shared.resumesAtPowerOn
            return (
                isDue ? shared.added : [], isDue ? shared.channels : [], isDue ? shared.advertisement : nil, start,
                shared.servicesGeneration
            )
        }
        // What has ended meanwhile resumes when the app hears of that.
        for (service, call) in services {
            backend.send(.add(published(service, call: call), isResumed: true), generation: generation)
        }
        for channel in channels {
            backend.send(
                .publishChannel(isEncrypted: channel.isEncrypted, psm: channel.psm, ticket: nil),
                generation: generation)
        }
        if let advertisement { backend.send(.advertise(advertisement, start, isResumed: true)) }
    }

    /// BlueZ has ended the advertisement, because the daemon exits or the adapter was removed, which the state will
    /// show.
    func advertisingReleased(_ token: UInt64) {
        shared.withLock { shared in
            guard shared.advertisingToken == token else { return }
            shared.isAdvertising = false
            if book?.resumes != true { shared.advertisement = nil }
        }
    }

    // MARK: Restoring

    /// Makes the objects that the plan asks for, then calls `willRestoreState`, unless nothing was restored. On the
    /// delegate's queue, before the app can see any of them.
    func restore(_ plan: RestorationPlan) {
        var services: [CBMutableService] = []
        for record in plan.services { services.append(record.service(including: services)) }
        shared.withLock { shared in
            shared.added = services.enumerated().map { ($1, UInt64($0) + 1) }
            (shared.adds, shared.advertisement) = (UInt64(services.count), plan.advertisement)
            shared.channels = plan.channels
            (shared.isAdvertising, shared.resumesAtPowerOn) = (plan.advertisement != nil, true)
            shared.restoration = BluezRestoration(plan)
        }
        book?.record { [.writer(app: StateDirectory.app, boot: StateDirectory.boot)] }
        preserveServices()
        preserveAdvertisement()
        tellRestored()
    }

    /// What a keeper has continued: the objects are made as the app had them, with the centrals that are subscribed.
    /// When Bluetooth is on, everything is asked for again, also what never reached the keeper, which ignores what it
    /// has. What the app has taken back without reaching it ends.
    func takeOver(_ snapshot: Snapshot, _ handOver: HandOver) {
        guard case .peripheral(let kept) = handOver.work else { return }
        let plan = RestorationPlan(snapshot, .init(bluetooth: nil, adapter: nil, peripherals: [:]))
        var added: [Shared.Added] = []
        for (index, record) in plan.services.enumerated() {
            added.append((record.service(including: added.map(\.service)), record.call ?? UInt64(index) + 1))
        }
        shared.withLock { shared in
            (shared.added, shared.adds) = (added, max(kept.lastCall, added.map(\.call).max() ?? 0))
            (shared.advertisement, shared.channels) = (plan.advertisement, plan.channels)
            (shared.isAdvertising, shared.advertisingToken) = (plan.advertisement != nil, kept.advertisingToken)
            shared.resumesAtPowerOn = true
            if !snapshot.isEmpty { shared.restoration = BluezRestoration(snapshot, handOver) }
        }
        for (service, call) in added { _ = published(service, call: call) }
        mirror.takeOver(kept)
        if !snapshot.isEmpty { book?.record { [.writer(app: StateDirectory.app, boot: StateDirectory.boot)] } }
        tellRestored()
        endWhatIsNotWanted(of: kept, added.map(\.call))
    }

    private func endWhatIsNotWanted(of kept: KeptPublications, _ restored: [UInt64]) {
        let (calls, channels, advertisement) = shared.withLock { shared in
            (Set(shared.added.map(\.call)), shared.channels.map(\.psm), shared.advertisement)
        }
        for call in kept.calls.union(restored).subtracting(calls) {
            // What a central has written to it meanwhile is not for this version of the app.
            mirror.forget(call: call)
            backend.send(.remove(call: call))
        }
        for psm in kept.channels.subtracting(channels) { mirror.unpublishSilently(psm, self) }
        if advertisement == nil, kept.isAdvertising { backend.send(.stopAdvertising(token: endAdvertising())) }
    }

    private func tellRestored() {
        let (services, channels, advertisement) = shared.withLock { ($0.services, $0.channels, $0.advertisement) }
        var dictionary: [String: Any] = [:]
        if !services.isEmpty { dictionary[CBPeripheralManagerRestoredStateServicesKey] = services }
        dictionary[CBPeripheralManagerRestoredStateAdvertisementDataKey] = advertisement?.dictionary
        if !channels.isEmpty {
            dictionary[BluezPeripheralManagerRestoredStateChannelsKey] = channels.map { NSNumber(value: $0.psm) }
        }
        guard !dictionary.isEmpty else { return }
        shared.withLock { $0.isTellingRestored = true }
        delegate?.peripheralManager(self, willRestoreState: dictionary)
        shared.withLock { $0.isTellingRestored = false }
        withdraw(services.filter { $0.claim.withLock { $0 == .refused } })
    }

    /// An earlier version of the app has published these with other contents, which no central is to see again: it may
    /// have protected them less.
    private func withdraw(_ outdated: [CBMutableService]) {
        guard !outdated.isEmpty else { return }
        forget { added in outdated.contains { $0 === added.service } }
        shared.withLock { $0.restoration?.withdraw(outdated.map(\.uuid)) }
        let names = outdated.map { "\($0.uuid)" }.joined(separator: ", ")
        Log.debug("not published again, because this version of the app has other contents for them: \(names)")
    }
}

extension CBMutableService {
    /// **BluezKit addition.** The restored service that takes the place of this one, for `willRestoreState`: one of an
    /// earlier process with the same contents.
    ///
    /// ```swift
    /// func peripheralManager(_ manager: CBPeripheralManager, willRestoreState dict: [String: Any]) {
    ///     if let restored = lamp.restored(from: dict) {
    ///         lamp = restored  // it is published already; requests refer to it
    ///     } else {
    ///         mustAddLamp = true  // when Bluetooth is powered on
    ///     }
    /// }
    /// ```
    /// The contents are the characteristics in their order, with properties, permissions, fixed values and descriptors,
    /// and the included services, which must be the restored objects. Restored services of this type with other
    /// contents, and further ones that are not asked for, are withdrawn when the callback returns, before a central
    /// sees them: an earlier version of the app may have protected them less. Services of other types stay.
    /// - Parameter state: From `peripheralManager(_:willRestoreState:)`.
    /// - Returns: Nil: there is none. Each restored service is returned to one caller only.
    public func restored(from state: [String: Any]) -> CBMutableService? {
        let services = state[CBPeripheralManagerRestoredStateServicesKey] as? [CBMutableService] ?? []
        if services.contains(where: { $0 === self }) { return self }
        var result: CBMutableService?
        for service in services where service.uuid == uuid {
            let isSame = result == nil && service.hasContents(of: self)
            service.claim.withLock { claim in
                guard claim != .taken else { return }
                claim = isSame ? .taken : .refused
                if isSame { result = service }
            }
        }
        return result
    }

    private func hasContents(of other: CBMutableService) -> Bool {
        func contents(_ service: CBMutableService) -> Snapshot.LocalService? {
            var contents = Snapshot.LocalService(service, among: [])
            for index in contents?.characteristics.indices ?? 0..<0 {
                contents?.characteristics[index].subscribers = []
            }
            contents?.placement = nil
            return contents
        }
        return contents(self) == contents(other)
            && (includedServices ?? []).map(ObjectIdentifier.init)
                == (other.includedServices ?? []).map(ObjectIdentifier.init)
    }
}

// MARK: Records

extension Snapshot.LocalService {
    fileprivate init?(_ service: CBMutableService, among services: [CBMutableService], call: UInt64? = nil) {
        guard let uuid = AttributeUUID(service.uuid.uuidString) else { return nil }
        let included = (service.includedServices ?? []).compactMap { included in
            services.firstIndex { $0 === included }
        }
        self.init(
            uuid: uuid, isPrimary: service.isPrimary, includedServices: included,
            characteristics: (service.characteristics ?? []).compactMap { Snapshot.LocalCharacteristic($0) },
            placement: service.placement.withLock(\.self), call: call)
    }

    /// - Parameter others: The services that precede it.
    fileprivate func service(including others: [CBMutableService]) -> CBMutableService {
        let service = CBMutableService(type: uuid.cbUUID, primary: isPrimary)
        service.placement.withLock { $0 = placement }
        service.characteristics = characteristics.map(\.characteristic)
        let included = includedServices.filter(others.indices.contains)
        if !included.isEmpty { service.includedServices = included.map { others[$0] } }
        return service
    }
}

extension Snapshot.LocalCharacteristic {
    fileprivate init?(_ characteristic: CBCharacteristic) {
        guard let characteristic = characteristic as? CBMutableCharacteristic,
            let uuid = AttributeUUID(characteristic.uuid.uuidString)
        else { return nil }
        self.init(
            uuid: uuid, properties: characteristic.properties.rawValue,
            permissions: characteristic.permissions.rawValue, value: characteristic.value,
            descriptors: (characteristic.descriptors ?? []).compactMap { Snapshot.LocalDescriptor($0) },
            subscribers: (characteristic.subscribedCentrals ?? []).map(\.identifier))
    }

    /// No central is subscribed to it: BlueZ has ended the subscriptions.
    fileprivate var characteristic: CBMutableCharacteristic {
        let characteristic = CBMutableCharacteristic(
            type: uuid.cbUUID, properties: CBCharacteristicProperties(rawValue: properties), value: value,
            permissions: CBAttributePermissions(rawValue: permissions))
        if !descriptors.isEmpty { characteristic.descriptors = descriptors.compactMap(\.descriptor) }
        return characteristic
    }
}

extension Snapshot.LocalDescriptor {
    fileprivate init?(_ descriptor: CBDescriptor) {
        guard let uuid = AttributeUUID(descriptor.uuid.uuidString) else { return nil }
        self.init(uuid: uuid, text: descriptor.value as? String, data: descriptor.value as? Data)
    }

    /// Nil for a value on which `CBMutableDescriptor` would trap: a file may contain anything.
    fileprivate var descriptor: CBMutableDescriptor? {
        switch uuid.cbUUID.numberOnBase {
        case 0x2901: data == nil ? CBMutableDescriptor(type: uuid.cbUUID, value: text) : nil
        case 0x2904: text == nil ? CBMutableDescriptor(type: uuid.cbUUID, value: data) : nil
        default: CBMutableDescriptor(type: uuid.cbUUID, value: text ?? data)
        }
    }
}
