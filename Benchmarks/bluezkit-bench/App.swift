import BluezKit
import BluezKitGLib
import Foundation

/// An app with one manager, which waits for Bluetooth and says what it needs of a sensor. A subclass is the delegate,
/// because a conformance sees only the methods of the class that declares it.
class App: NSObject {
    let queue: DispatchQueue
    private(set) var manager: CBCentralManager?
    private(set) var powered = Measurement()
    var sensor: CBPeripheral?

    init(queue: DispatchQueue?) { self.queue = queue ?? .main }

    func start(inContext: Bool, options: [String: Any]) {
        let delegate = self as? any CBCentralManagerDelegate
        if inContext {
            manager = CBCentralManager(delegate: delegate, context: nil, options: options)
        } else {
            manager = CBCentralManager(delegate: delegate, queue: queue, options: options)
        }
    }

    func centralManagerDidUpdateState(_ central: CBCentralManager) {
        powered = Measurement()
        guard central.state == .poweredOn else { fail("the state is \(central.state)") }
        begin(central)
    }

    /// Bluetooth is on.
    func begin(_ central: CBCentralManager) {}

    func connectSensor(_ central: CBCentralManager) {
        guard let identifier = UUID(uuidString: "426C7A4B-0100-8000-8000-F0F1F2000001"),
            let sensor = central.retrievePeripherals(withIdentifiers: [identifier]).first
        else { fail("the sensor cannot be retrieved") }
        self.sensor = sensor
        sensor.delegate = self as? any CBPeripheralDelegate
        central.connect(sensor, options: nil)
    }

    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        peripheral.discoverServices([CBUUID(string: "180D")])
    }

    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        guard let services = peripheral.services, !services.isEmpty else { fail("no service \(text(error))") }
        for service in services { peripheral.discoverCharacteristics(nil, for: service) }
    }

    func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) {
        fail("cannot connect \(text(error))")
    }

    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
    ) {
        fail("disconnected \(text(error))")
    }
}

/// Measures how long that takes.
final class StartApp: App, CBCentralManagerDelegate {
    override func begin(_ central: CBCentralManager) {
        // Something that a keeper continues: the next start is that of an app which it has.
        if arguments.contains("keeper") { central.scanForPeripherals(withServices: [CBUUID(string: "180D")]) }
        report(["powered_ns": powered.timeNs, "cpu_us": powered.cpuUs, "rss_kib": Measurement.rssKiB])
    }
}

func text(_ error: (any Error)?) -> String { error.map { "\($0)" } ?? "" }

/// The little-endian number at the start of each value.
func number(_ value: Data?) -> Int? {
    guard let value, value.count >= 4 else { return nil }
    return value.prefix(4).reversed().reduce(0) { $0 << 8 | Int($1) }
}

/// When a value was sent: the little-endian number behind that.
func sent(_ value: Data?) -> Int? {
    guard let value, value.count >= 12 else { return nil }
    return value.prefix(12).suffix(8).reversed().reduce(0) { $0 << 8 | Int($1) }
}

func characteristic(_ uuid: String, of service: CBService) -> CBCharacteristic {
    let uuid = CBUUID(string: uuid)
    guard let found = service.characteristics?.first(where: { $0.uuid == uuid }) else { fail("there is no \(uuid)") }
    return found
}
