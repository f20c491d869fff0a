import CoreBluetooth
import Synchronization

/// Owns the `CBPeripheralManager` and all that belongs to it, on the queue of its delegate.
actor PeripheralManagerCore: ChannelHost {
    nonisolated let executor = QueueExecutor(label: "CoreBluetoothAsync.peripheral")
    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }
    nonisolated let state = Mutex(CBManagerState.unknown)
    nonisolated let restored: Once<RestoredPeripheralState>
    let delegate: PeripheralManagerDelegate
    var channels: ChannelTable { delegate.channels }

    init() {
        let restored = Once<RestoredPeripheralState>()
        self.restored = restored
        delegate = PeripheralManagerDelegate(restored)
    }

    /// On the queue, so that no callback comes before the manager is known.
    nonisolated func start(options: sending [String: Any]?, restoring services: sending [CBMutableService]) {
        let (options, services) = (Parcel(options), Parcel(services))
        executor.queue.sync {
            assumeIsolated { $0.delegate.start($0, options: options.open() ?? nil, restoring: services.open() ?? []) }
        }
        _ = postsAtExit
    }

    /// How many events wait for a consumer at most.
    static let bufferSize = 256

    /// - Parameters:
    ///   - once: What one consumer takes at the end.
    ///   - giveBack: Called with what a consumer was sent and has not taken, and whether it has taken anything.
    nonisolated func sequence<Element>(
        once: Once<Element>? = nil,
        add: @escaping @Sendable (PeripheralManagerDelegate, EventSubscription<Element, Never>) -> Void,
        giveBack: (@Sendable (PeripheralManagerDelegate, [Element], _ hasTaken: Bool) -> Void)? = nil
    ) -> EventSequence<Element, Never> {
        EventSequence { [self] dropped in
            let subscription = EventSubscription<Element, Never>(
                bufferSize: Self.bufferSize, dropped: dropped, once: once
            ) { untaken, hasTaken in
                self.post {
                    $0.delegate.pruneEvents()
                    giveBack?($0.delegate, untaken.compactMap { $0 }, hasTaken)
                }
            }
            // One that was let go of meanwhile takes nothing.
            post { [weak subscription] core in if let subscription { add(core.delegate, subscription) } }
            return subscription
        }
    }

    func add(_ service: Parcel<CBMutableService>) async throws -> PublishedService {
        let answer = try await wait { delegate, request, continuation in
            guard let service = service.open() else {
                return continuation.resume(throwing: CBError(.invalidParameters))
            }
            delegate.add(service, request, continuation)
        } onCancel: {
            $0.cancelAdd($1)
        }
        guard case .service(let published) = answer else { throw CBError(.unknown) }
        return published
    }

    func remove(_ service: PublishedService) { delegate.remove(service) }
    func removeAllServices() { delegate.removeAllServices() }
    func isAdvertising() -> Bool { delegate.isAdvertising }

    func startAdvertising(_ data: Parcel<[String: Any]?>) async throws {
        try await wait({ $0.startAdvertising(data.open() ?? nil, $1, $2) }, onCancel: { $0.cancelAdvertising($1) })
    }

    func publishChannel(withEncryption isEncrypted: Bool) async throws -> CBL2CAPPSM {
        let request = ChannelRequest.publish(withEncryption: isEncrypted)
        let answer = try await wait({ $0.begin(request, $1, $2) }, onCancel: { $0.cancelPublishing($1) })
        return if case .psm(let psm) = answer { psm } else { 0 }
    }

    func unpublishChannel(_ psm: CBL2CAPPSM) async throws {
        try Task.checkCancellation()
        if delegate.withdrawRestored(psm) { return }
        try await wait({ $0.begin(.unpublish(psm), $1, $2) }, onCancel: { $0.cancelPublishing($1) })
    }

    func psm(of channel: RestoredL2CAPChannel) async throws -> CBL2CAPPSM {
        let answer = try await wait({ $0.psm(of: channel, $1, $2) }, onCancel: { $0.cancelWaiting($1) })
        return if case .psm(let psm) = answer { psm } else { 0 }
    }

    func stopAdvertising() { delegate.stopAdvertising() }

    func subscribedCentrals(of characteristic: PublishedCharacteristic) -> [Central] {
        delegate.subscribers(characteristic.number).map { Central($0) }
    }

    func update(_ update: Update, of characteristic: UInt64) async throws {
        try await wait(
            { $0.update(update, of: characteristic, $1, $2) }, onCancel: { $0.cancelUpdate($1, of: characteristic) })
    }

    func setLatency(_ latency: CBPeripheralManagerConnectionLatency, for central: Central) {
        delegate.setLatency(latency, for: central)
    }

    @discardableResult
    private func wait(
        _ begin: (PeripheralManagerDelegate, UInt64, PeripheralManagerDelegate.Continuation) -> Void,
        onCancel: @escaping @Sendable (PeripheralManagerDelegate, UInt64) -> Void
    ) async throws -> PeripheralManagerDelegate.Answer {
        try Task.checkCancellation()
        let request = Number.next()
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                guard let state = delegate.manager?.state else {
                    return continuation.resume(throwing: BluetoothError.managerReleased)
                }
                guard state == .poweredOn else {
                    return continuation.resume(throwing: BluetoothError.unavailable(state))
                }
                begin(delegate, request, continuation)
            }
        } onCancel: {
            // It runs on the queue after what has begun above, because that runs on the queue already.
            post { onCancel($0.delegate, request) }
        }
    }
}
