import BluezKitRestore
import Foundation

/// The manager's state, and the objects of its peripherals.
extension CBCentralManager {
    /// On the delegate's queue: sets the new state, applies its consequences, and makes the callback (ST-3).
    /// - Parameter stackGeneration: The new generation of bluetoothd and adapter.
    func enter(_ state: CBManagerState, stackGeneration: String?) {
        let previous = self.state
        setState(state)
        follow(state, from: previous, stackGeneration: stackGeneration)
        delegate?.centralManagerDidUpdateState(self)
    }

    /// MIS-1: whether commands are accepted; logs if not.
    func accepts(_ command: StaticString) -> Bool {
        if state == .poweredOn { return true }
        logRefusal(command)
        return false
    }

    /// Asks for what the end of Bluetooth undoes: nothing comes of it if Bluetooth was off or reset since the app was
    /// last informed of its state. The app will be informed next.
    /// - Parameter isHere: See ``CentralBackend/sendHere(_:generation:)``.
    func command(_ request: CentralRequest, isHere: Bool = false) {
        let generation = shared.withLock { $0.generation }
        if isHere {
            backend.sendHere(request, generation: generation)
        } else {
            backend.send(request, generation: generation)
        }
    }

    // MARK: Peripherals

    /// On the delegate's queue.
    func discovered(_ identity: DeviceIdentity, _ properties: DeviceProperties, scan token: UInt64) {
        guard shared.withLock({ $0.scanToken == token && $0.scan != nil }) else { return }
        let peripheral = peripheral(identity)
        if let name = properties.name { _ = peripheral.updateName(name) }
        let rssi = NSNumber(value: properties.rssiDBm ?? 127)
        delegate?.centralManager(
            self, didDiscover: peripheral, advertisementData: properties.advertisementData, rssi: rssi)
    }

    func peripheral(_ device: KnownDevice) -> CBPeripheral {
        let peripheral = peripheral(device.identity)
        if let name = device.name { _ = peripheral.updateName(name) }
        return peripheral
    }

    /// One object for each device, as long as the app keeps it (ID-3).
    func peripheral(_ identity: DeviceIdentity) -> CBPeripheral {
        // The live objects are returned as well, because what may be the last reference must not be released under the
        // lock.
        return shared.withLock { shared -> (CBPeripheral, living: [DeviceIdentity: CBPeripheral]) in
            if let known = shared.peripherals[identity]?.peripheral { return (known, [:]) }
            let new = CBPeripheral(identity: identity, manager: self)
            shared.peripherals[identity] = WeakPeripheral(peripheral: new)
            guard shared.peripherals.count > shared.pruneAt else { return (new, [:]) }
            let living = shared.peripherals.compactMapValues(\.peripheral)
            shared.peripherals = living.mapValues { WeakPeripheral(peripheral: $0) }
            shared.pruneAt = max(64, living.count * 2)
            return (new, living)
        }.0
    }

    /// The app's object for the device, if it has one.
    func known(_ identity: DeviceIdentity) -> CBPeripheral? {
        shared.withLock { $0.peripherals[identity]?.peripheral }
    }

    /// ID-3: a peripheral that was found with a private address and has revealed its identity can be retrieved by
    /// either.
    func register(_ peripheral: CBPeripheral, under identity: DeviceIdentity) {
        let known = shared.withLock { shared -> CBPeripheral? in
            if let known = shared.peripherals[identity]?.peripheral { return known }
            shared.peripherals[identity] = WeakPeripheral(peripheral: peripheral)
            return nil
        }
        // If the app releases it now, the last reference must not be released under the lock.
        withExtendedLifetime(known) {}
    }

    /// MIS-3.
    func isMine(_ peripheral: CBPeripheral) -> Bool {
        if peripheral.backend === backend, !peripheral.isInvalid { return true }
        Log.misuse(
            "\(peripheral) belongs to another manager, or Bluetooth was reset since: retrieve or discover it again")
        return false
    }
}
