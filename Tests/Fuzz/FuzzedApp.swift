import BluezKit
import BluezDBus
import Dispatch
import Foundation

/// Uses everything that it is shown, in both roles.
final class FuzzedApp: NSObject, @unchecked Sendable {  // holds: all but `queue` is touched on `queue` only
    private let queue = DispatchQueue(label: "fuzz.app")
    private var central: CBCentralManager?
    private var publisher: CBPeripheralManager?
    private var kept: [CBPeripheral] = []
    private var services: [CBMutableService] = []
    private var state: UInt64

    init(_ address: BusAddress, seed: UInt64) {
        state = seed
        super.init()
        queue.sync {
            let options: [String: Any] = [BluezManagerOptionBusAddressKey: address.rawValue]
            let central = CBCentralManager(delegate: self, queue: queue, options: options)
            var pairing = BluezPairing()
            pairing.enterPasskey = { _, answer in answer(123) }
            pairing.comparePasskey = { _, _, answer in answer(true) }
            pairing.displayPasskey = { _, text in precondition(text.count == 6) }
            central.pairing = pairing
            self.central = central
            publisher = CBPeripheralManager(delegate: self, queue: queue, options: options)
        }
    }

    /// Deals with what has come.
    func settle() { wait("the app's queue") { done in queue.async { done.signal() } } }

    func end() {
        queue.sync { (central, publisher, kept, services) = (nil, nil, [], []) }
        settle()
    }

    /// True in `percent` of all cases; the same ones for the same input, as far as threads allow.
    private func chance(_ percent: UInt64) -> Bool {
        state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        return (state >> 33) % 100 < percent
    }

    private func bytes(_ most: UInt64) -> Data {
        _ = chance(0)
        return Data(repeating: UInt8(truncatingIfNeeded: state >> 40), count: Int((state >> 33) % (most + 1)))
    }
}

extension FuzzedApp: CBCentralManagerDelegate {
    func centralManagerDidUpdateState(_ central: CBCentralManager) {
        guard central.state == .poweredOn else { return }
        central.scanForPeripherals(
            withServices: chance(30) ? [CBUUID(string: "180D")] : nil,
            options: [CBCentralManagerScanOptionAllowDuplicatesKey: chance(70)])
        central.registerForConnectionEvents(options: [.serviceUUIDs: [CBUUID(string: "180D")]])
    }

    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) {
        _ = "\(advertisementData) \(peripheral.name ?? "")".count
        guard kept.count < 6, !kept.contains(peripheral) else { return }
        kept.append(peripheral)
        peripheral.delegate = self
        central.connect(peripheral, options: chance(50) ? [CBConnectPeripheralOptionEnableAutoReconnect: true] : nil)
    }

    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        peripheral.discoverServices(nil)
        peripheral.readRSSI()
    }

    func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) {
        _ = "\(error as Any)"
        kept.removeAll { $0 === peripheral }
    }

    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
    ) {
        _ = "\(error as Any)"
        if !isReconnecting { kept.removeAll { $0 === peripheral } }
    }
}

extension FuzzedApp: CBPeripheralDelegate {
    func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {
        peripheral.discoverServices(nil)
    }

    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        for service in peripheral.services ?? [] {
            if chance(50) { peripheral.discoverIncludedServices(nil, for: service) }
            peripheral.discoverCharacteristics(nil, for: service)
        }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverIncludedServicesFor service: CBService, error: (any Error)?
    ) {
        for service in service.includedServices ?? [] where chance(30) {
            peripheral.discoverCharacteristics(nil, for: service)
        }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        for characteristic in service.characteristics ?? [] {
            peripheral.discoverDescriptors(for: characteristic)
            if chance(60) { peripheral.setNotifyValue(true, for: characteristic) }
            if chance(60) { peripheral.readValue(for: characteristic) }
            if chance(30) { peripheral.writeValue(bytes(30), for: characteristic, type: .withoutResponse) }
            if chance(30) { peripheral.writeValue(bytes(600), for: characteristic, type: .withResponse) }
            precondition(peripheral.maximumWriteValueLength(for: .withoutResponse) > 0)
        }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverDescriptorsFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        for descriptor in characteristic.descriptors ?? [] where chance(70) {
            peripheral.readValue(for: descriptor)
            if descriptor.uuid != CBUUID(string: CBUUIDClientCharacteristicConfigurationString), chance(30) {
                peripheral.writeValue(bytes(2), for: descriptor)
            }
        }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        _ = "\(characteristic.value as Any) \(error as Any)"
        if chance(3) { peripheral.setNotifyValue(chance(50), for: characteristic) }
        if chance(1) { central?.cancelPeripheralConnection(peripheral) }
        if chance(1) { kept.removeAll { $0 === peripheral } }
    }

    func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor descriptor: CBDescriptor, error: (any Error)?) {
        _ = "\(descriptor.value as Any) \(error as Any)"
    }
}

extension FuzzedApp: CBPeripheralManagerDelegate {
    func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
        guard peripheral.state == .poweredOn else { return }
        publish(peripheral)
        peripheral.startAdvertising([
            CBAdvertisementDataLocalNameKey: "x", CBAdvertisementDataServiceUUIDsKey: [CBUUID(string: "1815")],
        ])
    }

    private func publish(_ publisher: CBPeripheralManager) {
        let service = CBMutableService(type: CBUUID(string: "1815"), primary: true)
        let kinds: [CBCharacteristicProperties] = [
            .read, [.read, .write], .notify, .indicate, [.read, .notify, .writeWithoutResponse], [.indicate, .notify],
        ]
        service.characteristics = kinds.enumerated().map { index, properties in
            let characteristic = CBMutableCharacteristic(
                type: CBUUID(string: "2B0\(index)"), properties: properties, value: index == 0 ? Data([1, 2, 3]) : nil,
                permissions: index == 0 ? .readable : [.readable, .writeable])
            characteristic.descriptors = [CBMutableDescriptor(type: CBUUID(string: "2901"), value: "text")]
            return characteristic
        }
        services.append(service)
        publisher.add(service)
    }

    func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
    ) {
        precondition(central.maximumUpdateValueLength > 0)
        update()
    }

    func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {
        request.value = bytes(600)
        if chance(95) { peripheral.respond(to: request, withResult: chance(90) ? .success : .invalidOffset) }
    }

    func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) {
        if chance(95) { peripheral.respond(to: requests[0], withResult: .success) }
        if chance(5) { peripheral.respond(to: requests[0], withResult: .success) }
        update()
    }

    func peripheralManagerIsReady(toUpdateSubscribers peripheral: CBPeripheralManager) { update() }

    private func update() {
        guard let publisher else { return }
        for case let characteristic as CBMutableCharacteristic in services.flatMap({ $0.characteristics ?? [] }) {
            guard let central = characteristic.subscribedCentrals?.first else { continue }
            publisher.updateValue(
                bytes(600), for: characteristic, onSubscribedCentrals: chance(50) ? nil : [central])
        }
        if chance(2), !services.isEmpty {
            publisher.remove(services.removeFirst())
            publish(publisher)
        }
        if chance(2) {
            publisher.stopAdvertising()
            publisher.startAdvertising(nil)
        }
    }
}
