// A common pattern: one class that is the delegate of everything, with its own queue or none.
import CoreBluetooth

private let heartRateService = CBUUID(string: "180D")
private let batteryService = CBUUID(string: "0000180F-0000-1000-8000-00805F9B34FB")

class CentralController: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate {
    var centralManager: CBCentralManager!
    var discovered: [CBPeripheral] = []
    var connecting = Set<CBPeripheral>()
    var names: [CBPeripheral: String] = [:]
    var values: [CBCharacteristic: Data] = [:]
    var pending: [CBUUID: CBService] = [:]
    var byIdentifier: [UUID: CBPeripheral] = [:]
    private let queue = DispatchQueue(label: "com.example.bluetooth", qos: .userInitiated)

    override init() {
        super.init()
        centralManager = CBCentralManager(delegate: self, queue: nil)
        centralManager = CBCentralManager(delegate: self, queue: .main)
        centralManager = CBCentralManager(delegate: self, queue: queue, options: nil)
        centralManager = CBCentralManager(
            delegate: self, queue: queue,
            options: [
                CBCentralManagerOptionShowPowerAlertKey: true,
                CBCentralManagerOptionRestoreIdentifierKey: "com.example.central",
                CBCentralManagerOptionDeviceAccessForMedia: NSNumber(value: false),
            ])
    }

    func start() {
        guard centralManager.state == .poweredOn, !centralManager.isScanning else { return }
        centralManager.scanForPeripherals(withServices: nil)
        centralManager.scanForPeripherals(withServices: [heartRateService, batteryService], options: nil)
        centralManager.scanForPeripherals(
            withServices: [CBUUID(string: "180A")],
            options: [
                CBCentralManagerScanOptionAllowDuplicatesKey: NSNumber(value: true as Bool),
                CBCentralManagerScanOptionSolicitedServiceUUIDsKey: [heartRateService],
            ])
        centralManager.stopScan()
    }

    func reconnect(_ identifiers: [String]) {
        let known = centralManager.retrievePeripherals(withIdentifiers: identifiers.compactMap { UUID(uuidString: $0) })
        let connected = centralManager.retrieveConnectedPeripherals(withServices: [heartRateService])
        for peripheral in known + connected where peripheral.state == .disconnected {
            connecting.insert(peripheral)
            byIdentifier[peripheral.identifier] = peripheral
            centralManager.connect(peripheral)
            centralManager.connect(peripheral, options: nil)
            centralManager.connect(
                peripheral,
                options: [
                    CBConnectPeripheralOptionNotifyOnConnectionKey: true,
                    CBConnectPeripheralOptionNotifyOnDisconnectionKey: true as NSNumber,
                    CBConnectPeripheralOptionNotifyOnNotificationKey: NSNumber(value: true),
                    CBConnectPeripheralOptionStartDelayKey: 2,
                    CBConnectPeripheralOptionEnableTransportBridgingKey: false,
                    CBConnectPeripheralOptionRequiresANCS: false,
                    CBConnectPeripheralOptionEnableAutoReconnect: true,
                ])
        }
        // The result is not used: Objective-C never warns.
        centralManager.retrieveConnectedPeripherals(withServices: [])
        CBCentralManager.supports(.extendedScanAndConnect)
        centralManager.registerForConnectionEvents(options: nil)
        centralManager.registerForConnectionEvents(options: [
            .serviceUUIDs: [heartRateService], CBConnectionEventMatchingOption.peripheralUUIDs: [UUID()],
        ])
    }

    func stop(_ peripheral: CBPeripheral) {
        peripheral.delegate = nil
        centralManager.cancelPeripheralConnection(peripheral)
        centralManager.delegate = nil
        centralManager = nil
    }

    // MARK: CBCentralManagerDelegate

    func centralManagerDidUpdateState(_ central: CBCentralManager) {
        switch central.state {
        case .poweredOn: start()
        case .poweredOff: discovered.removeAll()
        case .resetting, .unauthorized, .unknown, .unsupported: break
        @unknown default: break
        }
        if #available(iOS 13.1, macOS 10.15, *) {
            switch CBManager.authorization {
            case .allowedAlways, .notDetermined: break
            case .denied, .restricted: print("Bluetooth is not allowed")
            @unknown default: break
            }
            if CBCentralManager.authorization == .denied { return }
        }
    }

    func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {
        if let peripherals = dict[CBCentralManagerRestoredStatePeripheralsKey] as? [CBPeripheral] {
            peripherals.forEach { $0.delegate = self }
            discovered += peripherals
        }
        let services = dict[CBCentralManagerRestoredStateScanServicesKey] as? [CBUUID] ?? []
        let options = dict[CBCentralManagerRestoredStateScanOptionsKey] as? [String: Any]
        print(services.map { $0.uuidString }, options ?? [:])
    }

    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) {
        guard RSSI.intValue != 127, RSSI.intValue > -90 else { return }
        let name = advertisementData[CBAdvertisementDataLocalNameKey] as? String ?? peripheral.name ?? "?"
        let services = advertisementData[CBAdvertisementDataServiceUUIDsKey] as? [CBUUID]
        let overflow = advertisementData[CBAdvertisementDataOverflowServiceUUIDsKey] as? [CBUUID] ?? []
        let solicited = advertisementData[CBAdvertisementDataSolicitedServiceUUIDsKey] as? [CBUUID] ?? []
        let serviceData = advertisementData[CBAdvertisementDataServiceDataKey] as? [CBUUID: Data]
        let manufacturer = advertisementData[CBAdvertisementDataManufacturerDataKey] as? Data
        let power = (advertisementData[CBAdvertisementDataTxPowerLevelKey] as? NSNumber)?.intValue
        let isConnectable = (advertisementData[CBAdvertisementDataIsConnectable] as? NSNumber)?.boolValue ?? false
        let asBool = advertisementData[CBAdvertisementDataIsConnectable] as? Bool
        let asInt = advertisementData[CBAdvertisementDataTxPowerLevelKey] as? Int
        print(overflow, solicited, power ?? 0, isConnectable, asBool ?? false, asInt ?? 0)
        if services?.contains(heartRateService) == true || serviceData?[heartRateService] != nil {
            names[peripheral] = name
        }
        if let manufacturer, manufacturer.count >= 2 {
            print(UInt16(manufacturer[0]) | UInt16(manufacturer[1]) << 8)
        }
        guard !discovered.contains(peripheral) else { return }
        discovered.append(peripheral)
        if discovered.first === peripheral { central.connect(peripheral, options: nil) }
    }

    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        peripheral.delegate = self
        peripheral.discoverServices([heartRateService])
        peripheral.discoverServices(nil)
    }

    func centralManager(_ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: Error?) {
        print("failed: \(error?.localizedDescription ?? "no reason")")
        connecting.remove(peripheral)
    }

    func centralManager(_ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: Error?) {
        if let error = error as? CBError, error.code == .peripheralDisconnected { central.connect(peripheral) }
        names[peripheral] = nil
    }

    // MARK: CBPeripheralDelegate

    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: Error?) {
        guard error == nil, let services = peripheral.services else { return }
        for service in services {
            pending[service.uuid] = service
            peripheral.discoverIncludedServices(nil, for: service)
            peripheral.discoverCharacteristics([CBUUID(string: "2A37")], for: service)
            print(service.isPrimary, service.peripheral?.name ?? "", service)
        }
    }

    func peripheral(_ peripheral: CBPeripheral, didDiscoverIncludedServicesFor service: CBService, error: Error?) {
        service.includedServices?.forEach { peripheral.discoverCharacteristics(nil, for: $0) }
    }

    func peripheral(_ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: Error?) {
        for characteristic in service.characteristics ?? [] {
            if characteristic.properties.contains(.read) { peripheral.readValue(for: characteristic) }
            if characteristic.properties.contains(.notify) || characteristic.properties.contains(.indicate) {
                peripheral.setNotifyValue(true, for: characteristic)
            }
            if !characteristic.properties.isDisjoint(with: [.write, .writeWithoutResponse]) {
                write(Data([1, 2, 3]), to: characteristic, of: peripheral)
            }
            peripheral.discoverDescriptors(for: characteristic)
            print(characteristic.service?.uuid.uuidString ?? "", characteristic.service?.peripheral?.state as Any)
        }
    }

    private func write(_ data: Data, to characteristic: CBCharacteristic, of peripheral: CBPeripheral) {
        let type: CBCharacteristicWriteType =
            characteristic.properties.contains(.write) ? .withResponse : .withoutResponse
        let length = peripheral.maximumWriteValueLength(for: type)
        if type == .withoutResponse, !peripheral.canSendWriteWithoutResponse { return }
        peripheral.writeValue(data.prefix(length), for: characteristic, type: type)
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverDescriptorsFor characteristic: CBCharacteristic, error: Error?
    ) {
        for descriptor in characteristic.descriptors ?? [] {
            peripheral.readValue(for: descriptor)
            if descriptor.uuid.uuidString == CBUUIDCharacteristicUserDescriptionString {
                peripheral.writeValue(Data("name".utf8), for: descriptor)
            }
            print(descriptor.characteristic?.uuid as Any)
        }
    }

    func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: Error?) {
        if let error = error as? CBATTError {
            switch error.code {
            case .insufficientAuthentication, .insufficientEncryption: print("pair first")
            case CBATTError.Code(rawValue: 0x80): print("the device says no")
            default: print(error.localizedDescription)
            }
            return
        }
        guard let value = characteristic.value else { return }
        values[characteristic] = value
        switch characteristic.uuid {
        case CBUUID(string: "2A37"): print(value[0] & 1 == 0 ? Int(value[1]) : Int(value[1]) | Int(value[2]) << 8)
        case heartRateService: break
        default: print("\(characteristic.uuid): \(value as NSData)")
        }
    }

    func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor descriptor: CBDescriptor, error: Error?) {
        switch descriptor.uuid.uuidString {
        case CBUUIDCharacteristicExtendedPropertiesString: print((descriptor.value as? NSNumber)?.intValue ?? 0)
        case CBUUIDCharacteristicUserDescriptionString: print(descriptor.value as? String ?? "")
        case CBUUIDClientCharacteristicConfigurationString, CBUUIDServerCharacteristicConfigurationString:
            print((descriptor.value as? NSNumber)?.uint16Value ?? 0)
        case CBUUIDCharacteristicFormatString, CBUUIDCharacteristicAggregateFormatString,
            CBUUIDCharacteristicValidRangeString, CBUUIDCharacteristicObservationScheduleString:
            print(descriptor.value as? Data ?? Data())
        default: print(descriptor.value as? NSData ?? NSData())
        }
    }

    func peripheral(_ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: Error?) {
        print(characteristic.isNotifying, error as NSError? as Any)
    }

    func peripheral(_ peripheral: CBPeripheral, didWriteValueFor descriptor: CBDescriptor, error: Error?) {}

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: Error?
    ) {
        if !characteristic.isNotifying { centralManager.cancelPeripheralConnection(peripheral) }
    }

    func peripheralDidUpdateName(_ peripheral: CBPeripheral) { names[peripheral] = peripheral.name }

    func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {
        if invalidatedServices.contains(where: { $0.uuid == heartRateService }) { peripheral.discoverServices(nil) }
    }

    func peripheral(_ peripheral: CBPeripheral, didReadRSSI RSSI: NSNumber, error: Error?) {
        print(Int(truncating: RSSI), peripheral.ancsAuthorized)
        peripheral.readRSSI()
    }

    func peripheralIsReady(toSendWriteWithoutResponse peripheral: CBPeripheral) {}

    func peripheral(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: Error?) {
        peripheral.openL2CAPChannel(CBL2CAPPSM(0x81))
    }
}

/// A subclass that changes and adds to what its base does with events.
class LoggingController: CentralController {
    override func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        super.centralManager(central, didConnect: peripheral)
        print("connected to \(peripheral)")
    }
}
