// CoreBluetooth from Swift concurrency.
@preconcurrency import CoreBluetooth

/// Isolated to the main actor, with callbacks that are not.
@MainActor
final class MainActorModel: NSObject, CBCentralManagerDelegate {
    private(set) var peripherals: [CBPeripheral] = []
    private(set) var state = CBManagerState.unknown
    private var manager: CBCentralManager?

    func start() { manager = CBCentralManager(delegate: self, queue: .main) }

    nonisolated func centralManagerDidUpdateState(_ central: CBCentralManager) {
        let state = central.state
        MainActor.assumeIsolated { self.state = state }
    }

    nonisolated func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        Task { @MainActor in
            peripherals.append(peripheral)
            peripheral.discoverServices(nil)
        }
    }

    nonisolated func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) {
        Task { @MainActor [weak self] in self?.peripherals.removeAll { $0 === peripheral } }
    }
}

/// Isolated to the main actor, callbacks included.
@MainActor
final class PreconcurrencyModel: NSObject, @preconcurrency CBPeripheralDelegate {
    private(set) var values: [CBUUID: Data] = [:]

    func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: Error?) {
        values[characteristic.uuid] = characteristic.value
    }
}

/// A callback that continues a task.
final class Connector: NSObject, CBCentralManagerDelegate, @unchecked Sendable {
    private let queue = DispatchQueue(label: "connector")
    private var manager: CBCentralManager!
    private var waiting: [UUID: CheckedContinuation<CBPeripheral, Error>] = [:]

    override init() {
        super.init()
        manager = CBCentralManager(delegate: self, queue: queue)
    }

    func connect(_ peripheral: CBPeripheral) async throws -> CBPeripheral {
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                queue.async { [self] in
                    waiting[peripheral.identifier] = continuation
                    manager.connect(peripheral)
                }
            }
        } onCancel: {
            queue.async { self.manager.cancelPeripheralConnection(peripheral) }
        }
    }

    func centralManagerDidUpdateState(_ central: CBCentralManager) {}

    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        waiting.removeValue(forKey: peripheral.identifier)?.resume(returning: peripheral)
    }

    func centralManager(_ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: Error?) {
        waiting.removeValue(forKey: peripheral.identifier)?.resume(throwing: error ?? CBError(.operationCancelled))
    }
}

actor Registry {
    private var states: [CBUUID: CBPeripheralState] = [:]
    func note(_ state: CBPeripheralState, of uuid: CBUUID) { states[uuid] = state }
}

struct Reading: Sendable {
    let uuid: CBUUID
    let state: CBManagerState
    let properties: CBCharacteristicProperties
    let permissions: CBAttributePermissions
    let authorization: CBManagerAuthorization
    let event: CBConnectionEvent
    let type: CBCharacteristicWriteType
    let latency: CBPeripheralManagerConnectionLatency
    let code: CBATTError.Code
    let peripheral: CBPeripheral
    static let shared = CBUUID(string: "180D")
}
