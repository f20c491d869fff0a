// Conformances in extensions, generics, and a delegate that forwards to another.
import CoreBluetooth

final class Scanner: NSObject {
    typealias Discovery = (peripheral: CBPeripheral, advertisement: [String: Any], rssi: NSNumber)

    private lazy var manager = CBCentralManager(delegate: self, queue: DispatchQueue(label: "scanner"))
    private var onDiscovery: ((Discovery) -> Void)?
    private(set) var lost: [UUID: CFAbsoluteTime] = [:]

    func scan(onDiscovery: @escaping (Discovery) -> Void) {
        self.onDiscovery = onDiscovery
        if manager.state == .poweredOn { manager.scanForPeripherals(withServices: nil) }
    }
}

extension Scanner: CBCentralManagerDelegate {
    func centralManagerDidUpdateState(_ central: CBCentralManager) {
        guard case .poweredOn = central.state else { return }
        central.scanForPeripherals(
            withServices: nil, options: [CBCentralManagerScanOptionAllowDuplicatesKey: true])
    }

    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) {
        onDiscovery?((peripheral, advertisementData, RSSI))
    }

    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
    ) {
        lost[peripheral.identifier] = isReconnecting ? nil : CFAbsoluteTimeGetCurrent() - timestamp
        let age: CFTimeInterval = CFAbsoluteTimeGetCurrent() - timestamp
        print(age)
    }

    func centralManager(
        _ central: CBCentralManager, connectionEventDidOccur event: CBConnectionEvent, for peripheral: CBPeripheral
    ) {
        switch event {
        case .peerConnected: central.connect(peripheral)
        case .peerDisconnected: break
        @unknown default: break
        }
    }

    func centralManager(_ central: CBCentralManager, didUpdateANCSAuthorizationFor peripheral: CBPeripheral) {
        print(peripheral.ancsAuthorized)
    }
}

/// Methods inherited from a base that does not itself conform.
class StateKeeper: NSObject {
    var state = CBManagerState.unknown
    func centralManagerDidUpdateState(_ central: CBCentralManager) { state = central.state }
}

final class InheritingDelegate: StateKeeper, CBCentralManagerDelegate {}

class GenericDelegate<Context>: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate {
    let context: Context
    init(context: Context) { self.context = context }
    func centralManagerDidUpdateState(_ central: CBCentralManager) {}
    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: Error?) {}
}

/// Passes everything on. The defaults have no side effects, so this is what the other would have got.
final class ForwardingDelegate: NSObject, CBCentralManagerDelegate {
    weak var next: CBCentralManagerDelegate?

    func centralManagerDidUpdateState(_ central: CBCentralManager) { next?.centralManagerDidUpdateState(central) }
    func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {
        next?.centralManager(central, willRestoreState: dict)
    }
    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        next?.centralManager(central, didConnect: peripheral)
    }
    func centralManager(_ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: Error?) {
        next?.centralManager(central, didFailToConnect: peripheral, error: error)
    }
    func centralManager(_ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: Error?) {
        next?.centralManager(central, didDisconnectPeripheral: peripheral, error: error)
    }
}

// What apps add to CoreBluetooth's types.

extension CBPeripheral {
    var displayName: String { name ?? identifier.uuidString }
    func characteristic(_ uuid: CBUUID, in service: CBUUID) -> CBCharacteristic? {
        services?.first { $0.uuid == service }?.characteristics?.first { $0.uuid == uuid }
    }
}

extension CBUUID {
    static let heartRateMeasurement = CBUUID(string: "2A37")
    static func own(_ text: String) -> Self { Self(string: text) }
    convenience init(number: UInt16) { self.init(string: String(format: "%04X", number)) }
}

extension CBCharacteristicProperties {
    var names: [String] {
        let all: [(CBCharacteristicProperties, String)] = [
            (.broadcast, "broadcast"), (.read, "read"), (.writeWithoutResponse, "writeWithoutResponse"),
            (.write, "write"), (.notify, "notify"), (.indicate, "indicate"),
            (.authenticatedSignedWrites, "authenticatedSignedWrites"), (.extendedProperties, "extendedProperties"),
            (.notifyEncryptionRequired, "notifyEncryptionRequired"),
            (.indicateEncryptionRequired, "indicateEncryptionRequired"),
        ]
        return all.filter { contains($0.0) }.map(\.1)
    }
    static let anyWrite: CBCharacteristicProperties = [.write, .writeWithoutResponse]
}

extension CBManagerState {
    var text: String {
        switch self {
        case .unknown: "unknown"
        case .resetting: "resetting"
        case .unsupported: "unsupported"
        case .unauthorized: "unauthorized"
        case .poweredOff: "powered off"
        case .poweredOn: "powered on"
        @unknown default: "\(rawValue)"
        }
    }
}

extension CBPeripheralState {
    var text: String {
        switch self {
        case .disconnected: return "disconnected"
        case .connecting: return "connecting"
        case .connected: return "connected"
        case .disconnecting: return "disconnecting"
        @unknown default: return "new"
        }
    }
}

func usesOfValues() {
    let properties = CBCharacteristicProperties(rawValue: 0x12)
    print(properties.names, CBManagerState(rawValue: 5)?.text as Any, CBPeripheralState(rawValue: 0) as Any)
    let uuids = [
        CBUUID(), CBUUID(nsuuid: UUID()), CBUUID(data: Data([0x18, 0x0D])), CBUUID(number: 0x180F), CBUUID.own("2A38"),
        CBUUID(string: CBUUIDL2CAPPSMCharacteristicString),
    ]
    print(uuids.map { $0.data.count }, Set(uuids).count, uuids[0].isEqual(uuids[1]), uuids[0].hash)
    let option = CBConnectionEventMatchingOption(rawValue: "key")
    let feature: CBCentralManager.Feature = [.extendedScanAndConnect]
    print(option.rawValue, feature.rawValue, CBConnectionEvent.peerConnected.rawValue)
}
