// An app that already has types with these names continues to use its own, and may use ours as well.
import BluezKitProfiles
import CoreBluetooth

struct HeartRateMeasurement {
    let bpm: Int
    init?(_ data: Data?) {
        guard let data, data.count > 1 else { return nil }
        bpm = Int(data[data.startIndex + 1])
    }
}

enum BodySensorLocation: UInt8 { case other, chest }

extension CBUUID {
    static let batteryLevel = CBUUID(string: "2A19")
}

extension CBCharacteristic {
    func value<Value: CharacteristicValue>(as type: Value.Type) -> Value? { try? Value(value) }
}

final class OwnProfiles: NSObject, CBPeripheralDelegate {
    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: Error?
    ) {
        if let own = HeartRateMeasurement(characteristic.value) { print(own.bpm) }
        if let ours = try? BluezKitProfiles.HeartRateMeasurement(characteristic.value) { print(ours.beatsPerMinute) }
        if characteristic.uuid == .batteryLevel, let level = characteristic.value(as: BatteryLevel.self) {
            print(level.percent, BodySensorLocation(rawValue: 1) as Any)
        }
    }
}
