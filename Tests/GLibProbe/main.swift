import BluezKit
import BluezKitGLib
import CBluezGLib
import Foundation

// A program whose main loop is GLib's: glib-probe [--bus ADDRESS] SCENARIO [NUMBER]. It prints what happens, one line
// each, and ends with `done`. Tests (GLibTests) say what each scenario must show.

setvbuf(stdout, nil, _IONBF, 0)

func tell(_ words: Any...) { print(words.map { "\($0)" }.joined(separator: " ")) }

func fail(_ text: String) -> Never {
    tell("failed:", text)
    exit(1)
}

var arguments = Array(CommandLine.arguments.dropFirst())
var bus: String?
if arguments.count > 1, arguments[0] == "--bus" {
    bus = arguments[1]
    arguments.removeFirst(2)
}
let number = arguments.dropFirst().first.flatMap { UInt32($0) } ?? 0

/// Follows the kitchen sink's notifications.
final class App: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate {
    private static let service = CBUUID(string: "bb1e0001-5d3b-4c6f-9a5e-000000000000")
    private static let value = CBUUID(string: "bb1e0013-5d3b-4c6f-9a5e-000000000000")

    var manager: CBCentralManager?
    var peripheral: CBPeripheral?
    /// The numbers of the values that have come.
    var values: [UInt32] = []
    /// In each callback, by its name.
    var onCallback: (String) -> Void = { _ in }
    /// Whether the callbacks' thread is right.
    let isRightPlace: () -> Bool
    private var depth = 0
    var isInCallback: Bool { depth > 0 }

    static var options: [String: Any] { bus.map { [BluezManagerOptionBusAddressKey: $0] } ?? [:] }

    init(isRightPlace: @escaping () -> Bool = { Thread.isMainThread && isInGLib }) { self.isRightPlace = isRightPlace }

    func start() { manager = CBCentralManager(delegate: self, queue: nil, options: Self.options) }

    func start(on context: OpaquePointer?, priority: Int32 = 0) {
        manager = CBCentralManager(delegate: self, context: context, priority: priority, options: Self.options)
    }

    private func note(_ callback: String) {
        guard isRightPlace() else { fail("\(callback) in the wrong place") }
        guard depth == 0 else { fail("\(callback) within a callback") }
        depth += 1
        onCallback(callback)
        depth -= 1
    }

    func centralManagerDidUpdateState(_ central: CBCentralManager) {
        note("state \(central.state.rawValue)")
        if central.state == .poweredOn { manager?.scanForPeripherals(withServices: nil) }
    }

    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi: NSNumber
    ) {
        guard peripheral.name == "Rig Sink", self.peripheral == nil else { return }
        self.peripheral = peripheral
        note("found")
        peripheral.delegate = self
        central.stopScan()
        central.connect(peripheral)
    }

    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        note("connected")
        peripheral.discoverServices([Self.service])
    }

    func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) { fail("connect: \(String(describing: error))") }

    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        for service in peripheral.services ?? [] { peripheral.discoverCharacteristics([Self.value], for: service) }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        for characteristic in service.characteristics ?? [] { peripheral.setNotifyValue(true, for: characteristic) }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic,
        error: (any Error)?
    ) { note("subscribed") }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        guard let value = characteristic.value, value.count >= 4 else { return }
        values.append(value.prefix(4).reversed().reduce(0) { $0 << 8 | UInt32($1) })
        note("value")
    }

    var valuesAreComplete: Bool { values == Array(0..<UInt32(values.count)) }
}

/// Runs `loop` until `app` has had `callback`.
func run(_ loop: Loop, until callback: String, of app: App) {
    let previous = app.onCallback
    app.onCallback = { name in
        previous(name)
        if name == callback { loop.quit() }
    }
    loop.run()
    app.onCallback = previous
}

func attach(priority: Int32 = 0) {
    do { try GLibMainLoop.attach(priority: priority) } catch { fail("\(error)") }
}

let scenarios: [String: () -> Void] = [
    "scan": scan, "by-hand": byHand, "timers": timers, "nested": nested, "again": again, "priority": priority,
    "blocked": blocked, "release": release, "idle": idle, "context": context, "context-by-hand": contextByHand,
    "context-unused": contextUnused, "wrong-thread": wrongThread,
    "within-queue": { within { DispatchQueue.main.async(execute: $0) } },
    "within-task": { within { body in Task { @MainActor in body() } } },
]
guard let scenario = arguments.first.flatMap({ scenarios[$0] }) else {
    fail("usage: glib-probe [--bus ADDRESS] SCENARIO [NUMBER], where SCENARIO is one of \(scenarios.keys.sorted())")
}
Thread.detachNewThread {
    Thread.sleep(forTimeInterval: 100)
    fail("this takes too long")
}
scenario()
tell("done")
exit(0)
