// What Apple has deprecated still compiles.
import CoreBluetooth

@available(*, deprecated)
func deprecatedForms(central: CBCentralManager, peripheral: CBPeripheral, characteristic: CBCharacteristic) -> String {
    let state = CBCentralManagerState(rawValue: central.state.rawValue) ?? .unknown
    switch state {
    case .unknown, .resetting, .unsupported, .unauthorized, .poweredOff: return "\(central.authorization)"
    case .poweredOn: break
    @unknown default: break
    }
    if CBPeripheralManagerState.poweredOn.rawValue == 5, CBPeripheralManager.authorizationStatus() == .authorized {
        return "\(peripheral.rssi ?? 0) \(characteristic.isBroadcasted) \(CBError.unkownDevice)"
    }
    return CBError.Code.unkownDevice == .unknownDevice ? "same" : "other"
}

class OldPeripheralDelegate: NSObject, CBPeripheralDelegate {
    func peripheralDidUpdateRSSI(_ peripheral: CBPeripheral, error: Error?) {}
}
