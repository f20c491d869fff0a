import CoreBluetooth
import Synchronization

/// Owns the `CBCentralManager` and all that belongs to it, on the queue of its delegate.
actor CentralCore: ChannelHost {
    nonisolated let executor = QueueExecutor(label: "CoreBluetoothAsync.central")
    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }
    nonisolated let state = Mutex(CBManagerState.unknown)
    nonisolated let pairing = Mutex(Pairing())
    nonisolated let restored: Once<RestoredCentralState>
    let delegate: CentralDelegate
    var channels: ChannelTable { delegate.channels }

    init() {
        let restored = Once<RestoredCentralState>()
        self.restored = restored
        delegate = CentralDelegate(restored)
    }

    /// On the queue, so that no callback comes before the manager is known.
    nonisolated func start(options: sending [String: Any]?) {
        let options = Parcel(options)
        executor.queue.sync { assumeIsolated { $0.delegate.start($0, options: options.open() ?? nil) } }
        _ = postsAtExit
    }

    /// A sequence whose consumers are added, and removed by pruning, on the queue.
    /// - Parameters:
    ///   - once: What one consumer takes at the end.
    ///   - addFirst: Called at once, on the queue, with the first consumer, if that need not wait for its turn.
    nonisolated func sequence<Element, Failure>(
        bufferSize: Int = 256, once: Once<Element>? = nil,
        addFirst: (@Sendable (CentralDelegate, EventSubscription<Element, Failure>) -> Void)? = nil,
        add: @escaping @Sendable (CentralDelegate, EventSubscription<Element, Failure>) -> Void,
        onEnd: @escaping @Sendable (CentralDelegate) -> Void = { $0.pruneEvents() }
    ) -> EventSequence<Element, Failure> {
        let make: @Sendable (DropCounter) -> EventSubscription<Element, Failure> = { [self] dropped in
            EventSubscription(bufferSize: bufferSize, dropped: dropped, once: once) { _, _ in
                self.post { onEnd($0.delegate) }
            }
        }
        let first = addFirst.map { addFirst in
            { [self] (dropped: DropCounter) in
                let subscription = make(dropped)
                assumeIsolated { addFirst($0.delegate, subscription) }
                return subscription
            }
        }
        return EventSequence(first: first) { [self] dropped in
            let subscription = make(dropped)
            // One that was let go of meanwhile takes nothing.
            post { [weak subscription] core in if let subscription { add(core.delegate, subscription) } }
            return subscription
        }
    }

    nonisolated func scan(
        _ parameters: ScanParameters, bufferSize: Int = 256,
        addFirst: (@Sendable (CentralDelegate, EventSubscription<ScanData, any Error>) -> Void)? = nil
    ) -> EventSequence<ScanData, any Error> {
        sequence(
            bufferSize: bufferSize, addFirst: addFirst, add: { $0.addScan($1, parameters) }, onEnd: { $0.pruneScans() })
    }

    /// What the manager knows itself.
    func retrieve(_ body: @Sendable (CBCentralManager) -> [CBPeripheral]) -> [Peripheral] {
        guard let manager = delegate.manager, manager.state == .poweredOn else { return [] }
        return body(manager).compactMap { delegate.handle($0) }
    }

    /// What the manager has to ask the system for, and waits for.
    /// - Returns: Nothing if the task is cancelled.
    func retrieveFromSystem(
        _ body: @escaping @Sendable (CBCentralManager) -> [CBPeripheral]
    ) async -> [Peripheral] {
        guard !Task.isCancelled, let manager = delegate.manager, manager.state == .poweredOn else { return [] }
        let request = Number.next()
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                delegate.retrievals[request] = continuation
                ask(manager, request, body)
            }
        } onCancel: {
            post { $0.delegate.didRetrieve([], request) }
        }
    }

    func connect(_ peripheral: Peripheral, _ options: Parcel<[String: Any]?>) async throws {
        try Task.checkCancellation()
        _ = try await wait(for: peripheral) { delegate, request, continuation in
            delegate.connect(request, options: options.open() ?? nil, continuation)
        }
    }

    func disconnect(_ peripheral: Peripheral) async throws {
        if peripheral.core === self, let state = delegate.manager?.state, state != .poweredOn,
            delegate.peripherals[peripheral.identifier]?.callOff() == true
        {
            return
        }
        _ = try await wait(for: peripheral) { $0.disconnect($1, $2) }
    }

    func removeBond(with peripheral: Peripheral) async throws {
        try Task.checkCancellation()
        _ = try await wait(for: peripheral) { $0.removeBond($1, $2) }
    }

    func perform(_ operation: Operation, on peripheral: Peripheral) async throws -> Answer {
        try Task.checkCancellation()
        return try await wait(for: peripheral) { $0.begin(operation, $1, $2) }
    }

    /// What `body` reads of a peripheral. As each awaited call, it renews what the app's object knows: not every change
    /// of the name has a callback.
    func read<Value: Sendable>(_ peripheral: Peripheral, _ body: @Sendable (PeripheralDelegate) -> Value?) -> Value? {
        delegate.peripherals[peripheral.identifier].flatMap {
            $0.updateHandle()
            return body($0)
        }
    }

    /// What is not to be begun for a task that is already cancelled checks that before.
    private func wait(
        for peripheral: Peripheral,
        _ begin: (PeripheralDelegate, UInt64, CheckedContinuation<Answer, any Error>) -> Void
    ) async throws -> Answer {
        let request = Number.next()
        let identifier = peripheral.identifier
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                guard peripheral.core === self else { return continuation.resume(throwing: CBError(.unknownDevice)) }
                guard let state = delegate.manager?.state, let delegate = delegate.peripherals[identifier] else {
                    return continuation.resume(throwing: BluetoothError.managerReleased)
                }
                delegate.updateHandle()
                guard state == .poweredOn else {
                    return continuation.resume(throwing: BluetoothError.unavailable(state))
                }
                begin(delegate, request, continuation)
            }
        } onCancel: {
            // It runs on the queue after what has begun above, because that runs on the queue already.
            post { $0.delegate.peripherals[identifier]?.cancel(request) }
        }
    }
}
