import BluezKit
import Foundation

/// What the commands that talk to devices share.
class CentralCommand: ManagerCommand, CBCentralManagerDelegate {
    private(set) var central: CBCentralManager?

    override func makeManager(_ options: [String: Any]) {
        // It runs in turn with all else on the main queue. Not that itself: BluezKit warns of scans with duplicates there,
        // which can keep a user interface busy; this one has nothing else to do.
        let queue = DispatchQueue(label: "bluez-demo.central", target: .main)
        central = CBCentralManager(delegate: self, queue: queue, options: options)
    }

    func centralManagerDidUpdateState(_ central: CBCentralManager) { take(central.state) }

    override func bluetoothIsOn() {
        if let central { bluetoothIsOn(central) }
    }

    // MARK: Subclasses override what they need

    func bluetoothIsOn(_ central: CBCentralManager) {}
    func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {}
    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
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
