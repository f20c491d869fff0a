import BluezKit
import Foundation

/// Writes as fast as it may: without response while `canSendWriteWithoutResponse`, or with response one after the
/// other.
final class WriteApp: App, CBCentralManagerDelegate, CBPeripheralDelegate {
    private let count: Int
    private let type: CBCharacteristicWriteType
    private var service: CBService?
    private var target: CBCharacteristic?
    private var value: Data
    private var sent = 0
    private var before = Measurement()
    private var last = Measurement()

    init(count: Int, size: Int, type: CBCharacteristicWriteType, queue: DispatchQueue?) {
        (self.count, self.type) = (count, type)
        value = Data(repeating: 0, count: size)
        super.init(queue: queue)
    }

    override func begin(_ central: CBCentralManager) { connectSensor(central) }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        (self.service, target) = (service, characteristic("2A39", of: service))
        before = Measurement()
        write(to: peripheral)
    }

    private func write(to peripheral: CBPeripheral) {
        while sent < count, type == .withResponse || peripheral.canSendWriteWithoutResponse, let target {
            for byte in 0..<4 { value[byte] = UInt8(truncatingIfNeeded: sent >> (8 * byte)) }
            peripheral.writeValue(value, for: target, type: type)
            sent += 1
            if type == .withResponse { return }
        }
        guard sent == count, let service else { return }
        last = Measurement()
        // Answered when all that was written is there: says how many.
        peripheral.readValue(for: characteristic("2A38", of: service))
    }

    func peripheralIsReady(toSendWriteWithoutResponse peripheral: CBPeripheral) { write(to: peripheral) }

    func peripheral(
        _ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        if let error { fail("a write failed: \(error)") }
        write(to: peripheral)
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        let arrived = number(characteristic.value) ?? 0
        guard arrived == sent else { fail("\(arrived) of \(sent) writes have arrived in order") }
        report(events: sent, powered: powered, before: before, first: before, last: last)
    }
}
