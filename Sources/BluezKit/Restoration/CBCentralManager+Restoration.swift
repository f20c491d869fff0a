import BluezKitRestore
import Foundation

/// Preserving the work of a central manager, and resuming it.
extension CBCentralManager {
    // MARK: Preserving

    /// Updates the peripheral's record in the book. May be called on any thread; the record is on disk when it returns.
    func preserve(_ peripheral: CBPeripheral) {
        let adapter = shared.withLock { $0.adapter }
        book?.record(peripheral.identifier, of: peripheral) { peripheral.record(adapter: adapter) }
    }

    func preserveScan() {
        book?.record { [self] in [.scan(is: shared.withLock { $0.scan })] }
    }

    // MARK: Resuming after a reset

    /// On the delegate's queue, before `didUpdateState`: the effect of the new state on scan and connections.
    func follow(_ state: CBManagerState, from previous: CBManagerState, stackGeneration: String?) {
        guard state != .poweredOn else { return resume(stackGeneration, from: previous) }
        let isSwitchedOff = state == .poweredOff && previous == .poweredOn
        // Restored state has not been interrupted yet: it waits for Bluetooth to be on for the first time.
        let isWaiting = previous == .unknown || shared.withLock { $0.resumesAtPowerOn }
        if let book, book.resumes || isWaiting, !isSwitchedOff {
            guard book.cancelPowerOffReset() else { return end(state) }
            suspend()
        } else {
            end(state)
            if state == .poweredOff {
                book?.schedulePowerOffReset()
            } else {
                // Not in the book: when the computer is switched off, bluetoothd may exit before this process.
                _ = book?.cancelPowerOffReset()
            }
        }
    }

    private func end(_ state: CBManagerState) {
        let keepsHandles = state == .poweredOff || book?.resumes == true
        let peripherals = shared.withLock { shared in
            shared.scan = nil
            shared.scanToken += 1
            let peripherals = shared.peripherals.values.compactMap(\.peripheral)
            if !keepsHandles { shared.peripherals = [:] }
            return peripherals
        }
        for peripheral in peripherals { peripheral.lostBluetooth(invalidates: !keepsHandles) }
    }

    /// Scan and connections wait for Bluetooth to be on again.
    private func suspend() {
        guard let book else { return }
        let (wanted, scan) = (Set(book.peripherals.map(\.identifier)), book.scan)
        let peripherals = shared.withLock { shared in
            shared.scan = scan
            shared.scanToken += 1
            shared.resumesAtPowerOn = true
            return shared.peripherals.values.compactMap(\.peripheral)
        }
        for peripheral in peripherals {
            if wanted.contains(peripheral.identifier) {
                peripheral.suspend()
                preserve(peripheral)
            } else {
                peripheral.lostBluetooth(invalidates: false)
            }
        }
    }

    private func resume(_ stackGeneration: String?, from previous: CBManagerState) {
        guard let book else { return }
        if book.commitPowerOffReset() {
            shared.withLock { $0.resumesAtPowerOn = false }
        }
        book.record { [.bluetooth(is: stackGeneration)] }
        let resumesAtPowerOn = shared.withLock { shared in
            defer { shared.resumesAtPowerOn = false }
            return shared.resumesAtPowerOn
        }
        guard resumesAtPowerOn else {
            if previous != .unknown { book.record { [.off] } }  // it has ended with the reset
            return
        }
        for record in book.peripherals {
            guard let peripheral = DeviceIdentity(identifier: record.identifier).flatMap(known),
                let connectionID = peripheral.resume()
            else {
                book.forget(record.identifier)  // the app released it while Bluetooth was unavailable
                continue
            }
            command(.resume(peripheral.identity, connectionID, record.options))
        }
        startScan()
    }

    // MARK: Restoring

    /// Makes the objects that the plan asks for, then calls `willRestoreState`, unless nothing was restored. On the
    /// delegate's queue, before the app can see any of them.
    func restore(_ plan: RestorationPlan, _ adapter: String?) {
        shared.withLock { $0.adapter = adapter }
        mirror.skip(to: RestorationPlan.connectionID(at: plan.items.count))
        let restored: [CBPeripheral] = plan.items.enumerated().compactMap { index, item in
            guard item.outcome != .dropped, let identity = DeviceIdentity(identifier: item.peripheral.identifier) else {
                return nil
            }
            let peripheral = peripheral(identity)
            item.peripheral.resolved.map { register(peripheral, under: $0) }
            peripheral.restore(
                item.peripheral, isConnected: item.outcome == .connected || item.outcome == .disconnected,
                connectionID: RestorationPlan.connectionID(at: index))
            return peripheral
        }
        shared.withLock { ($0.scan, $0.scanToken) = (plan.scan, RestorationPlan.scanToken) }
        book?.record {
            let kept = Set(restored.map(\.identifier))
            let dropped = plan.items.map(\.peripheral.identifier).filter { !kept.contains($0) }
            return [.writer(app: StateDirectory.app, boot: StateDirectory.boot)] + dropped.map { .removal(of: $0) }
        }
        for peripheral in restored { preserve(peripheral) }
        shared.withLock { $0.restoration = BluezRestoration(plan) }
        // The process has ended their channels.
        tell(plan.scan, restored, plan.items.filter { $0.outcome != .dropped }.map(\.peripheral))
    }

    /// What a keeper has continued: the objects are made as the app had them. What it asked for without reaching the
    /// keeper is asked for again.
    func takeOver(_ snapshot: Snapshot, _ handOver: HandOver) {
        guard case .central(let work) = handOver.work else { return }
        let records = snapshot.peripherals.compactMap { record in
            DeviceIdentity(identifier: record.identifier).map { (identity: $0, record: record) }
        }
        let last = records.compactMap { $0.record.connectionID?.request }.max() ?? 0
        mirror.skip(to: ConnectionID(request: max(last, work.lastRequest)))
        let kept = Dictionary(work.peripherals.map { ($0.identity, $0) }) { first, _ in first }
        let restored = records.map { identity, record in
            let peripheral = peripheral(identity)
            record.resolved.map { register(peripheral, under: $0) }
            peripheral.restore(
                record, isConnected: record.state == .connected,
                connectionID: record.connectionID ?? mirror.newConnectionID(), isKept: true)
            if record.state == .connected, let bytes = kept[identity]?.mtuBytes {
                peripheral.shared.withLock { $0.mtuBytes = bytes }
            }
            return peripheral
        }
        shared.withLock { ($0.scan, $0.scanToken) = (snapshot.scan, work.scanToken) }
        if !snapshot.isEmpty { book?.record { [.writer(app: StateDirectory.app, boot: StateDirectory.boot)] } }
        if !snapshot.isEmpty { shared.withLock { $0.restoration = BluezRestoration(snapshot, handOver) } }
        tell(snapshot.scan, restored, records.map(\.record))
        reconcile(records.map(\.record), work, kept)
    }

    private func reconcile(
        _ records: [Snapshot.Peripheral], _ work: KeptCentralWork, _ kept: [DeviceIdentity: KeptPeripheral]
    ) {
        let wanted = Set(records.map(\.identifier))
        for peripheral in work.peripherals
        where peripheral.isWanted && !wanted.contains(peripheral.identity.identifier) {
            backend.send(.release(peripheral.identity, peripheral.newest))
        }
        let scan = shared.withLock { $0.scan }
        if scan == nil, work.scan != nil { backend.send(.endScan) }
        // Otherwise the app resumes when it hears that Bluetooth is on, as after a reset.
        guard case .state(let state, let generation, _, _)? = work.state, state.value == .poweredOn else { return }
        for record in records {
            guard let identity = DeviceIdentity(identifier: record.identifier), let connectionID = record.connectionID,
                known(identity) != nil, (kept[identity]?.newest.request ?? 0) < connectionID.request
            else { continue }
            backend.send(.resume(identity, connectionID, record.options), generation: generation)
        }
        guard let scan, scan != work.scan else { return }
        let token = shared.withLock { shared in
            shared.scanToken += 1
            return shared.scanToken
        }
        backend.send(.startScan(scan, token: token), generation: generation)
    }

    private func tell(_ scan: ScanRequest?, _ restored: [CBPeripheral], _ records: [Snapshot.Peripheral]) {
        var dictionary: [String: Any] = [:]
        if !restored.isEmpty { dictionary[CBCentralManagerRestoredStatePeripheralsKey] = restored }
        if let scan {
            dictionary[CBCentralManagerRestoredStateScanServicesKey] = scan.services?.map(\.cbUUID)
            var options: [String: Any] = [:]
            options[CBCentralManagerScanOptionAllowDuplicatesKey] = scan.allowsDuplicates
            options[CBCentralManagerScanOptionSolicitedServiceUUIDsKey] = scan.solicitedServices?.map(\.cbUUID)
            dictionary[CBCentralManagerRestoredStateScanOptionsKey] = options
        }
        let ended = records.compactMap { record in
            record.channels.flatMap { $0.isEmpty ? nil : $0 }.map {
                (record.identifier, $0.map { NSNumber(value: $0) })
            }
        }
        if !ended.isEmpty {
            dictionary[BluezCentralManagerRestoredStateEndedChannelsKey] = Dictionary(ended) { first, _ in first }
        }
        guard !dictionary.isEmpty else { return }
        delegate?.centralManager(self, willRestoreState: dictionary)
    }
}
