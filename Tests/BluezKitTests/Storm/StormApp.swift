import CoreBluetooth
import Foundation

/// An app as its author would write it for an iPhone: holds some peripherals, subscribes to one characteristic of each,
/// and connects again when a link has ended or Bluetooth is back.
final class StormApp: @unchecked Sendable {  // holds: all that changes is touched on the manager's queue
    struct Wish {
        let identifier: UUID
        let service: CBUUID
        let characteristic: CBUUID
    }

    private let wishes: [UUID: Wish]
    private var peripherals: [UUID: CBPeripheral] = [:]
    private var subscribed: [UUID: CBCharacteristic] = [:]
    /// How many values came from each peripheral since it was asked last.
    private var values: [UUID: Int] = [:]
    private(set) var isOn = false

    init(_ wishes: [Wish]) {
        self.wishes = Dictionary(uniqueKeysWithValues: wishes.map { ($0.identifier, $0) })
    }

    func handle(_ event: Central.Event, _ manager: CBCentralManager) {
        switch event {
        case .state(let state):
            isOn = state == .poweredOn
            subscribed = [:]
            guard isOn else { return }
            for identifier in wishes.keys { hold(identifier, manager) }
        case .connected(let peripheral):
            peripheral.discoverServices(wishes[peripheral.identifier].map { [$0.service] })
        case .disconnected(let peripheral, _, _), .failed(let peripheral, _):
            subscribed[peripheral.identifier] = nil
            // The app may have released it, and then keeps another one.
            guard peripherals[peripheral.identifier] === peripheral else { return }
            manager.connect(peripheral)
        case .services(let peripheral, nil):
            guard let wish = wishes[peripheral.identifier] else { return }
            for service in peripheral.services ?? [] where service.uuid == wish.service {
                peripheral.discoverCharacteristics([wish.characteristic], for: service)
            }
        case .characteristics(let service, nil):
            guard let peripheral = service.peripheral, let wish = wishes[peripheral.identifier] else { return }
            for found in service.characteristics ?? [] where found.uuid == wish.characteristic {
                peripheral.setNotifyValue(true, for: found)
            }
        case .notifying(let characteristic, true, nil):
            guard let peripheral = characteristic.service?.peripheral else { return }
            subscribed[peripheral.identifier] = characteristic
        case .modified(let peripheral, let services):
            // Also if services were only added: ours may be among them.
            if services.contains(where: { $0.uuid == wishes[peripheral.identifier]?.service }) {
                subscribed[peripheral.identifier] = nil
            }
            if subscribed[peripheral.identifier] == nil { peripheral.discoverServices(nil) }
        case .value(let characteristic, _, nil):
            guard let peripheral = characteristic.service?.peripheral else { return }
            values[peripheral.identifier, default: 0] += 1
        default: break
        }
    }

    private func hold(_ identifier: UUID, _ manager: CBCentralManager) {
        guard let peripheral = manager.retrievePeripherals(withIdentifiers: [identifier]).first else { return }
        peripherals[identifier] = peripheral
        manager.connect(peripheral)
    }

    // MARK: What a user does

    func act(_ words: [String], on identifier: UUID?, _ manager: CBCentralManager) {
        let peripheral = identifier.flatMap { peripherals[$0] }
        switch words[1] {
        case "cancel": peripheral.map { manager.cancelPeripheralConnection($0) }  // didDisconnect connects again
        case "read":
            for (identifier, characteristic) in subscribed where characteristic.properties.contains(.read) {
                peripherals[identifier]?.readValue(for: characteristic)
            }
        case "scan": manager.scanForPeripherals(withServices: nil)
        case "stop": manager.stopScan()
        case "release":
            guard isOn, let identifier else { return }
            peripherals[identifier] = nil
            subscribed[identifier] = nil
            hold(identifier, manager)
        default: break
        }
    }

    // MARK: How it is going

    /// What is not as the app wants it.
    var complaints: [UUID: String] {
        guard isOn else { return wishes.mapValues { _ in "Bluetooth is not on" } }
        return wishes.compactMapValues { wish in
            guard let peripheral = peripherals[wish.identifier] else { return "not retrieved" }
            guard peripheral.state == .connected else { return "state \(peripheral.state.rawValue)" }
            guard subscribed[wish.identifier]?.isNotifying == true else {
                return "not notifying; services \(String(describing: peripheral.services))"
            }
            return values[wish.identifier] == nil ? "no value" : nil
        }
    }

    func forgetValues() { values = [:] }
}
