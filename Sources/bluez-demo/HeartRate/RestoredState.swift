import BluezKit
import Foundation

/// The content of `willRestoreState`.
struct RestoredState: Equatable {
    struct Peripheral: Equatable {
        let peripheral: CBPeripheral
        let state: CBPeripheralState
        let services: [CBUUID]
        let subscriptions: [CBUUID]

        init(_ peripheral: CBPeripheral) {
            (self.peripheral, state) = (peripheral, peripheral.state)
            services = (peripheral.services ?? []).map(\.uuid)
            subscriptions = (peripheral.services ?? []).flatMap { $0.characteristics ?? [] }.filter(\.isNotifying)
                .map(\.uuid)
        }
    }

    /// Nil: no scan; empty: a scan for everything.
    let scan: [CBUUID]?
    let peripherals: [Peripheral]

    init(_ dictionary: [String: Any]) {
        let isScanning = dictionary[CBCentralManagerRestoredStateScanOptionsKey] != nil
        let services = dictionary[CBCentralManagerRestoredStateScanServicesKey] as? [CBUUID]
        scan = isScanning ? services ?? [] : nil
        let peripherals = dictionary[CBCentralManagerRestoredStatePeripheralsKey] as? [CBPeripheral]
        self.peripherals = (peripherals ?? []).map(Peripheral.init)
    }

    var json: JSONValue {
        [
            "event": "restored",
            "scan": scan.map { ["services": .strings($0.map(\.uuidString))] } ?? .null,
            "peripherals": .array(
                peripherals.map {
                    [
                        "identifier": .string($0.peripheral.identifier.uuidString),
                        "name": .optional($0.peripheral.name),
                        "state": .string("\($0.state)"),
                        "services": .strings($0.services.map(\.uuidString)),
                        "subscriptions": .strings($0.subscriptions.map(\.uuidString)),
                    ]
                }),
        ]
    }

    /// For people.
    var lines: [Line] {
        var lines = peripherals.map { restored -> Line in
            let name = restored.peripheral.name?.harmless ?? restored.peripheral.identifier.uuidString
            let subscriptions = restored.subscriptions.map(\.description)
            let subscribed = subscriptions.isEmpty ? "" : ", subscribed to " + subscriptions.joined(separator: ", ")
            return Line("Restored ", .green) + Line(name, .bold) + Line(": \(restored.state)\(subscribed)")
        }
        if scan != nil { lines.append(Line("Restored ", .green) + Line("the scan")) }
        return lines
    }
}
