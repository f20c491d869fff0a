import BluezKitRestore
import Foundation

/// Preserving the work of a central manager, and resuming it.
extension CBCentralManager {
    // MARK: Preserving

    /// Updates the peripheral's record in the book. May be called on any thread; the record is on disk when it returns.
    func preserve(_ peripheral: CBPeripheral) {
        let adapter = core.adapterName.withLock { $0 }
        book?.record(peripheral.identifier, of: peripheral.core) { peripheral.record(adapter: adapter) }
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
        let wanted = Set(book.peripherals.map(\.identifier))
        let peripherals = shared.withLock { shared in
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
        restoreScan(book.scan)
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
            let known = shared.withLock { $0.peripherals[record.identifier]?.peripheral }
            guard let peripheral = known, let connectionID = peripheral.resume() else {
                book.forget(record.identifier)  // the app released it while Bluetooth was unavailable
                continue
            }
            let (core, request) = (peripheral.core, record.options)
            command { central in central.connect(core, connectionID: connectionID, request) }
        }
        startScan()
    }

    // MARK: Restoring

    /// A peripheral to be restored.
    struct Restored: Sendable {
        let peripheral: CBPeripheral
        let connectionID: UInt64
        let outcome: RestorationPlan.Outcome
        let request: ConnectRequest
        /// The PSMs of its channels, which have ended with the earlier process.
        let endedChannels: [CBL2CAPPSM]
    }

    /// Creates the objects according to the plan. On the bus queue, before the app can see any of them.
    /// - Parameter path: The object path of a device.
    func restore(_ plan: RestorationPlan, path: (DeviceIdentity) -> String) -> [Restored] {
        let restored: [Restored] = plan.items.compactMap { item in
            guard item.outcome != .dropped, let identity = DeviceIdentity(identifier: item.peripheral.identifier) else {
                return nil
            }
            let peripheral = peripheral(identity)
            item.peripheral.resolved.map { register(peripheral, under: $0) }
            let isConnected = item.outcome == .connected || item.outcome == .disconnected
            let connectionID = peripheral.restore(item.peripheral, isConnected: isConnected, path: path(identity))
            return Restored(
                peripheral: peripheral, connectionID: connectionID, outcome: item.outcome,
                request: item.peripheral.options,
                endedChannels: item.peripheral.channels ?? [])
        }
        restoreScan(plan.scan)
        book?.record {
            let kept = Set(restored.map(\.peripheral.identifier))
            let dropped = plan.items.map(\.peripheral.identifier).filter { !kept.contains($0) }
            return [.writer(app: StateDirectory.app, boot: StateDirectory.boot)] + dropped.map { .removal(of: $0) }
        }
        for item in restored { preserve(item.peripheral) }
        shared.withLock { $0.restoration = BluezRestoration(plan) }
        return restored
    }

    private func restoreScan(_ record: ScanRequest?) {
        shared.withLock { shared in
            shared.scan = record
            shared.scanToken += 1
        }
    }

    /// Calls `willRestoreState`, unless nothing was restored. On the delegate's queue.
    func tellRestored(_ restored: [Restored], _ scan: ScanRequest?) {
        var dictionary: [String: Any] = [:]
        if !restored.isEmpty { dictionary[CBCentralManagerRestoredStatePeripheralsKey] = restored.map(\.peripheral) }
        if let scan {
            dictionary[CBCentralManagerRestoredStateScanServicesKey] = scan.services?.map(\.cbUUID)
            var options: [String: Any] = [:]
            options[CBCentralManagerScanOptionAllowDuplicatesKey] = scan.allowsDuplicates
            options[CBCentralManagerScanOptionSolicitedServiceUUIDsKey] = scan.solicitedServices?.map(\.cbUUID)
            dictionary[CBCentralManagerRestoredStateScanOptionsKey] = options
        }
        let ended = restored.filter { !$0.endedChannels.isEmpty }.map { item in
            (item.peripheral.identifier, item.endedChannels.map { NSNumber(value: $0) })
        }
        if !ended.isEmpty {
            dictionary[BluezCentralManagerRestoredStateEndedChannelsKey] = Dictionary(ended) { first, _ in first }
        }
        guard !dictionary.isEmpty else { return }
        delegate?.centralManager(self, willRestoreState: dictionary)
    }
}
