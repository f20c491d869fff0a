import BluezKit
import Dispatch
import Foundation

/// What a gateway does: it reports all that is new on the air, and holds some peripherals, whatever happens to their
/// links. `status` on its standard input is answered with one line, as soon as there is what the line asks for, or
/// after 30 s.
final class SoakApp: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate, @unchecked Sendable {
    // holds: all is touched on `queue` only
    private let queue = DispatchQueue(label: "soak.app")
    private let names: Set<String>
    private let address: String
    private var manager: CBCentralManager?
    private var held: [UUID: CBPeripheral] = [:]
    private var (discoveries, values, losses) = (0, 0, 0)
    /// The last peripheral with a name that begins with "probe".
    private var probe = "-"

    /// What an answer waits for.
    private var awaited: (goal: SoakGoal, done: DispatchSemaphore)?

    init(_ address: String, names: Set<String>) { (self.address, self.names) = (address, names) }

    func run() -> Never {
        BluezKitLog.level = .misuse
        queue.sync {
            let options = [BluezManagerOptionBusAddressKey: address]
            manager = CBCentralManager(delegate: self, queue: queue, options: options)
        }
        while let goal = readLine().flatMap({ SoakGoal($0) }) {
            let done = DispatchSemaphore(value: 0)
            queue.sync {
                awaited = (goal, done)
                lookForGoal()
            }
            _ = done.wait(timeout: .now() + 30)
            say(queue.sync { "\(discoveries) \(values) \(losses) \(notifying) \(probe)" })
        }
        exit(0)
    }

    private var notifying: Int {
        held.values.count { peripheral in
            peripheral.services?.contains { $0.characteristics?.contains { $0.isNotifying } ?? false } ?? false
        }
    }

    /// After each callback that may have led to it.
    private func lookForGoal() {
        guard let (goal, done) = awaited, discoveries >= goal.discoveries, goal.probe == "-" || goal.probe == probe,
            goal.notifying == 0 || notifying >= goal.notifying
        else { return }
        awaited = nil
        done.signal()
    }

    func centralManagerDidUpdateState(_ central: CBCentralManager) {
        // Everything from before Bluetooth was lost is no longer valid; the scan finds it again.
        held = [:]
        if central.state == .poweredOn { central.scanForPeripherals(withServices: nil) }
    }

    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) {
        discoveries += 1
        defer { lookForGoal() }
        guard let name = peripheral.name else { return }
        if name.hasPrefix("probe") { probe = name }
        guard names.contains(name), held[peripheral.identifier] == nil else { return }
        held[peripheral.identifier] = peripheral
        peripheral.delegate = self
        central.connect(peripheral)
    }

    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        peripheral.discoverServices([CBUUID(string: "1815")])
    }

    func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) { central.connect(peripheral) }

    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
    ) {
        losses += 1
        central.connect(peripheral)
    }

    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        for service in peripheral.services ?? [] { peripheral.discoverCharacteristics(nil, for: service) }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        for characteristic in service.characteristics ?? [] { peripheral.setNotifyValue(true, for: characteristic) }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) { values += 1 }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic,
        error: (any Error)?
    ) { lookForGoal() }
}

/// What an app is to have before it answers: `status DISCOVERIES NOTIFYING PROBE`.
struct SoakGoal: CustomStringConvertible {
    /// How many, or more.
    var discoveries = 0, notifying = 0
    /// The device that it is to have discovered last; `-`: any.
    var probe = "-"

    init() {}

    init?(_ line: String) {
        let words = line.split(separator: " ", maxSplits: 3)
        guard words.count == 4, words[0] == "status", let discoveries = Int(words[1]), let notifying = Int(words[2])
        else { return nil }
        (self.discoveries, self.notifying, probe) = (discoveries, notifying, String(words[3]))
    }

    var description: String { "status \(discoveries) \(notifying) \(probe)" }
}
