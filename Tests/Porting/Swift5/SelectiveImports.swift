// Only some names imported, as some files have it.
import class CoreBluetooth.CBCentralManager
import class CoreBluetooth.CBCharacteristic
import protocol CoreBluetooth.CBCentralManagerDelegate
import class CoreBluetooth.CBPeripheral
import class CoreBluetooth.CBUUID
import enum CoreBluetooth.CBManagerState
import struct CoreBluetooth.CBCharacteristicProperties
import struct CoreBluetooth.CBError

struct Selection {
    weak var delegate: CBCentralManagerDelegate?
    var central: CBCentralManager?
    var peripheral: CBPeripheral?
    var characteristic: CBCharacteristic?
    var uuid = CBUUID(string: "180D")
    var state = CBManagerState.unknown
    var properties: CBCharacteristicProperties = [.read]
    var code = CBError.Code.unknown
}
