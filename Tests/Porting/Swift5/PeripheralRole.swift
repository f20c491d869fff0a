// The peripheral role, with requests, updates and L2CAP channels.
import CoreBluetooth

final class Sensor: NSObject, CBPeripheralManagerDelegate {
    private var manager: CBPeripheralManager!
    private var measurement: CBMutableCharacteristic?
    private var subscribers: [CBCentral] = []
    private var queue: [Data] = []
    private var channels: [CBL2CAPPSM: CBL2CAPChannel] = [:]

    override init() {
        super.init()
        manager = CBPeripheralManager()
        manager.delegate = self
        manager = CBPeripheralManager(delegate: self, queue: nil)
        manager = CBPeripheralManager(
            delegate: self, queue: .main,
            options: [
                CBPeripheralManagerOptionShowPowerAlertKey: true,
                CBPeripheralManagerOptionRestoreIdentifierKey: "com.example.sensor",
            ])
    }

    private func publish() {
        let measurement = CBMutableCharacteristic(
            type: CBUUID(string: "2A37"), properties: [.notify, .read, .notifyEncryptionRequired], value: nil,
            permissions: .readable)
        measurement.descriptors = [
            CBMutableDescriptor(type: CBUUID(string: CBUUIDCharacteristicUserDescriptionString), value: "beats"),
            CBMutableDescriptor(
                type: CBUUID(string: CBUUIDCharacteristicFormatString), value: Data([4, 0, 0, 0x27, 1, 0, 0])),
        ]
        let location = CBMutableCharacteristic(
            type: CBUUID(string: "2A38"), properties: .read, value: Data([1]),
            permissions: [.readable, .readEncryptionRequired])
        let control = CBMutableCharacteristic(
            type: CBUUID(string: "2A39"), properties: [.write, .writeWithoutResponse], value: nil,
            permissions: [.writeable, .writeEncryptionRequired])
        control.permissions.insert(.writeable)
        control.properties = [.write]
        control.value = nil
        let service = CBMutableService(type: CBUUID(string: "180D"), primary: true)
        service.characteristics = [measurement, location, control]
        service.includedServices = []
        manager.add(service)
        manager.startAdvertising([
            CBAdvertisementDataLocalNameKey: "Sensor", CBAdvertisementDataServiceUUIDsKey: [service.uuid],
        ])
        manager.publishL2CAPChannel(withEncryption: false)
        self.measurement = measurement
        print(service.isPrimary, service.peripheral as Any, measurement.service as Any, measurement.isNotifying)
    }

    private func flush() {
        guard let measurement else { return }
        while let next = queue.first {
            guard manager.updateValue(next, for: measurement, onSubscribedCentrals: nil) else { return }
            queue.removeFirst()
        }
        // The result is not used: Objective-C never warns.
        manager.updateValue(Data(), for: measurement, onSubscribedCentrals: measurement.subscribedCentrals)
    }

    func stop(_ service: CBMutableService) {
        if manager.isAdvertising { manager.stopAdvertising() }
        manager.remove(service)
        manager.removeAllServices()
        channels.keys.forEach { manager.unpublishL2CAPChannel($0) }
    }

    func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
        if peripheral.state == .poweredOn { publish() }
    }

    func peripheralManager(_ peripheral: CBPeripheralManager, willRestoreState dict: [String: Any]) {
        let services = dict[CBPeripheralManagerRestoredStateServicesKey] as? [CBMutableService] ?? []
        let advertisement = dict[CBPeripheralManagerRestoredStateAdvertisementDataKey] as? [String: Any]
        measurement =
            services.first?.characteristics?.first { $0.uuid == .heartRateMeasurement } as? CBMutableCharacteristic
        print(advertisement?[CBAdvertisementDataServiceUUIDsKey] as? [CBUUID] ?? [])
    }

    func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: Error?) {
        if let error = error as? CBError, error.code == .alreadyAdvertising { return }
    }

    func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: Error?) {
        if let error = error { print("not added: \(error.localizedDescription)") }
    }

    func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
    ) {
        subscribers.append(central)
        peripheral.setDesiredConnectionLatency(.low, for: central)
        queue = stride(from: 0, to: 100, by: central.maximumUpdateValueLength).map { Data([UInt8($0)]) }
        flush()
    }

    func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic
    ) {
        subscribers.removeAll { $0.identifier == central.identifier }
    }

    func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {
        let value = Data([0, 60])
        guard request.characteristic.uuid == measurement?.uuid else {
            return peripheral.respond(to: request, withResult: .attributeNotFound)
        }
        guard request.offset <= value.count else {
            peripheral.respond(to: request, withResult: CBATTError.invalidOffset)
            return
        }
        request.value = value.subdata(in: request.offset..<value.count)
        peripheral.respond(to: request, withResult: .success)
    }

    func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) {
        guard let first = requests.first else { return }
        let isFine = requests.allSatisfy { $0.value?.count == 1 && $0.central.identifier == first.central.identifier }
        peripheral.respond(to: first, withResult: isFine ? .success : CBATTError.Code(rawValue: 0x80)!)
    }

    func peripheralManagerIsReady(toUpdateSubscribers peripheral: CBPeripheralManager) { flush() }

    func peripheralManager(
        _ peripheral: CBPeripheralManager, didPublishL2CAPChannel PSM: CBL2CAPPSM, error: Error?
    ) {
        var psm = PSM.littleEndian
        print(Data(bytes: &psm, count: MemoryLayout<CBL2CAPPSM>.size))
    }

    func peripheralManager(
        _ peripheral: CBPeripheralManager, didUnpublishL2CAPChannel PSM: CBL2CAPPSM, error: Error?
    ) {
        channels[PSM] = nil
    }

    func peripheralManager(_ peripheral: CBPeripheralManager, didOpen channel: CBL2CAPChannel?, error: Error?) {
        guard let channel else { return }
        channels[channel.psm] = channel
        print(channel.peer.identifier, (channel.peer as? CBCentral)?.maximumUpdateValueLength ?? 0)
    }
}
