import BluezKit
import Foundation

/// Subscribes to the sensor, and to further characteristics where there are, and counts the values. All must come, in
/// order.
final class NotifyApp: App, CBCentralManagerDelegate, CBPeripheralDelegate {
    /// What the managers of a process have done together. They share a queue.
    final class Progress {
        var subscribed = 0
        var finished = 0
        var before = Measurement()
        var first = Measurement()
        var latenciesNs: [Int] = []
    }

    private let count: Int
    private let subscriptions: Int
    private let managers: Int
    private let asksForValues: Bool
    private let measuresLatency: Bool
    private let progress: Progress
    private var control: CBCharacteristic?
    private var subscribed = 0
    private var received = 0
    private var isRestored = false

    /// - count: values that each manager gets; nil: stays when it is subscribed
    /// - asksForValues: by a write, when all managers are subscribed to everything
    /// - measuresLatency: of values that have at least 12 bytes
    init(
        count: Int?, subscriptions: Int, managers: Int, asksForValues: Bool, measuresLatency: Bool,
        progress: Progress, queue: DispatchQueue?
    ) {
        (self.count, self.subscriptions, self.managers) = (count ?? .max, subscriptions, managers)
        (self.asksForValues, self.measuresLatency, self.progress) = (asksForValues, measuresLatency, progress)
        super.init(queue: queue)
    }

    func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {
        sensor = (dict[CBCentralManagerRestoredStatePeripheralsKey] as? [CBPeripheral])?.first
        sensor?.delegate = self
        isRestored = sensor != nil
    }

    override func begin(_ central: CBCentralManager) {
        if !isRestored { connectSensor(central) }
    }

    override func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        peripheral.discoverServices((subscriptions > 1 ? ["180D", "FFF0"] : ["180D"]).map { CBUUID(string: $0) })
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        if service.uuid == CBUUID(string: "180D") { control = characteristic("2A39", of: service) }
        for each in service.characteristics ?? [] where each.properties.contains(.notify) {
            peripheral.setNotifyValue(true, for: each)
        }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic,
        error: (any Error)?
    ) {
        guard characteristic.isNotifying else { fail("not subscribed \(text(error))") }
        subscribed += 1
        guard subscribed == subscriptions else { return }
        progress.subscribed += 1
        guard progress.subscribed == managers else { return }
        progress.before = Measurement()
        if count == .max {
            print("{}")
            fflush(nil)
        }
        if asksForValues, let control { peripheral.writeValue(Data(count: 1), for: control, type: .withResponse) }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        guard let number = number(characteristic.value) else { fail("a value of too few bytes") }
        guard number == received else { fail("value \(number) came when \(received) was due") }
        if received == 0, progress.finished == 0 { progress.first = Measurement() }
        if measuresLatency, let sent = sent(characteristic.value) {
            progress.latenciesNs.append(Measurement.nowNs - sent)
        }
        received += 1
        guard received == count else { return }
        progress.finished += 1
        guard progress.finished == managers else { return }
        report(
            events: count * managers, powered: powered, before: progress.before, first: progress.first,
            latenciesNs: progress.latenciesNs)
    }
}
