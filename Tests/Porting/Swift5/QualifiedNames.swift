// Names with their module, and names of one's own.
import CoreBluetooth

typealias Peripheral = CBPeripheral
typealias Characteristic = CoreBluetooth.CBCharacteristic
typealias BluetoothError = CBError
typealias AttributeErrorCode = CBATTError.Code

struct Qualified {
    let uuid: CoreBluetooth.CBUUID
    var state: CoreBluetooth.CBManagerState = .unknown
    var delegate: (any CoreBluetooth.CBPeripheralDelegate)?
    var psm: CoreBluetooth.CBL2CAPPSM = 0
    var code: AttributeErrorCode = .success

    init(_ peripheral: Peripheral, _ characteristic: Characteristic) {
        uuid = CoreBluetooth.CBUUID(string: "180D")
        delegate = peripheral.delegate
        print(CoreBluetooth.CBAdvertisementDataLocalNameKey, BluetoothError.errorDomain, characteristic.uuid)
    }
}
