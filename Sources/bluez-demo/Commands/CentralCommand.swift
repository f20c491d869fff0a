import BluezKit
import Foundation

/// Shared by the commands that connect to devices.
class CentralCommand: ManagerCommand, CBCentralManagerDelegate {
    private(set) var central: CBCentralManager?

    override func makeManager(_ options: [String: Any]) {
        // It runs on the main queue together with everything else, but on a queue of its own that targets it: BluezKit
        // warns about scans with duplicates on the main queue, which can make a user interface slow; this program has
        // none.
        let queue = DispatchQueue(label: "bluez-demo.central", target: .main)
        central = CBCentralManager(delegate: self, queue: queue, options: options)
    }

    /// Releases the manager, which ends all that it does.
    func releaseManager() { central = nil }

    /// - Returns: Whether there is a link, whose end is to be waited for.
    func endLink(of peripheral: CBPeripheral?) -> Bool {
        guard let central, central.state == .poweredOn, let peripheral, peripheral.state != .disconnected else {
            return false
        }
        central.cancelPeripheralConnection(peripheral)
        return true
    }

    func centralManagerDidUpdateState(_ central: CBCentralManager) { take(central.state) }

    override func bluetoothIsOn() {
        if let central { bluetoothIsOn(central) }
    }

    // MARK: Overridden by subclasses as needed

    func bluetoothIsOn(_ central: CBCentralManager) {}
    func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {}
    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) {}
    func centralManager(
        _ central: CBCentralManager, connectionEventDidOccur event: CBConnectionEvent, for peripheral: CBPeripheral
    ) {}
    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {}
    func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) {}
    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
    ) {}
}
