import BluezKitProfiles
import CoreBluetooth
import Foundation

/// Finds heart-rate sensors, follows one of them, and remembers what it has measured. Everything is on the main thread.
final class HeartMonitor: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate {
    struct Sensor {
        let peripheral: CBPeripheral
        var name: String
        /// In dBm.
        var strength: Int?
    }

    enum Link: Equatable {
        case none, connecting, connected
        /// Measurements come.
        case live
        case lost(String)
    }

    struct Sample {
        let time: Date
        let beatsPerMinute: Int
        /// Between two beats, in milliseconds.
        let intervals: [Double]
    }

    private(set) var bluetooth = CBManagerState.unknown
    /// The nearest first.
    private(set) var sensors: [Sensor] = []
    private(set) var chosen: CBPeripheral?
    private(set) var link = Link.none
    /// Of the last minutes, oldest first.
    private(set) var samples: [Sample] = []
    private(set) var battery: Int?
    private(set) var contact = HeartRateMeasurement.Contact.notSupported
    /// In kilojoules.
    private(set) var energy: Int?
    private(set) var wasRestored = false

    /// Something that is shown has changed.
    var onChange: () -> Void = {}
    /// Follow the first sensor that is found.
    var choosesFirst = false

    private var central: CBCentralManager?
    private static let remembered: TimeInterval = 300

    func start(busAddress: String?) {
        var options: [String: Any] = [CBCentralManagerOptionRestoreIdentifierKey: "gtk-heart-rate"]
        options[BluezManagerOptionBusAddressKey] = busAddress
        // On the main queue, which GLib's main loop runs.
        central = CBCentralManager(delegate: self, queue: nil, options: options)
    }

    var chosenName: String? {
        chosen.flatMap { chosen in sensors.first { $0.peripheral.identifier == chosen.identifier }?.name ?? chosen.name
        }
    }

    // MARK: What the user does

    func choose(_ sensor: Sensor) {
        guard let central, bluetooth == .poweredOn, chosen?.identifier != sensor.peripheral.identifier else { return }
        if let chosen { central.cancelPeripheralConnection(chosen) }
        forget()
        (chosen, link) = (sensor.peripheral, .connecting)
        sensor.peripheral.delegate = self
        central.stopScan()
        central.connect(sensor.peripheral)
        onChange()
    }

    func disconnect() {
        guard let central, let chosen else { return }
        if bluetooth == .poweredOn { central.cancelPeripheralConnection(chosen) }
        self.chosen = nil
        forget()
        scan()
        onChange()
    }

    /// The user ends the app: ends the link, and waits until BlueZ knows.
    func end() {
        guard let chosen, chosen.state != .disconnected else { return }
        onChange = {}
        disconnect()
        central?.stopScan()
        let deadline = Date(timeIntervalSinceNow: 2)
        while chosen.state != .disconnected, Date() < deadline {
            RunLoop.main.run(until: Date(timeIntervalSinceNow: 0.05))
        }
    }

    private func forget() {
        (samples, battery, energy, contact, link) = ([], nil, nil, .notSupported, .none)
    }

    private func scan() {
        guard let central, bluetooth == .poweredOn, chosen == nil else { return }
        central.scanForPeripherals(withServices: [HeartRateService.uuid])
    }

    private func note(_ peripheral: CBPeripheral, name: String?, strength: Int?) {
        let index = sensors.firstIndex { $0.peripheral.identifier == peripheral.identifier }
        let name = name ?? peripheral.name ?? "Unnamed sensor"
        let sensor = Sensor(peripheral: peripheral, name: name, strength: strength)
        if let index { sensors[index] = sensor } else { sensors.append(sensor) }
        sensors.sort { $0.strength ?? 0 > $1.strength ?? 0 }
    }

    // MARK: The manager

    func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {
        let restored = dict[CBCentralManagerRestoredStatePeripheralsKey] as? [CBPeripheral]
        guard let peripheral = restored?.first else { return }
        (chosen, wasRestored) = (peripheral, true)
        peripheral.delegate = self
        note(peripheral, name: nil, strength: nil)
    }

    func centralManagerDidUpdateState(_ central: CBCentralManager) {
        bluetooth = central.state
        switch central.state {
        case .poweredOn:
            if let chosen { continueMonitoring(with: chosen) } else { scan() }
        case .resetting: if chosen != nil { link = .connecting }  // it resumes automatically
        default:
            (sensors, chosen) = ([], nil)
            forget()
        }
        onChange()
    }

    /// After a restoration: whatever the last process had reached.
    private func continueMonitoring(with peripheral: CBPeripheral) {
        guard peripheral.state == .connected else {
            link = .connecting
            if peripheral.state == .disconnected { central?.connect(peripheral) }
            return
        }
        link = .connected
        let characteristics = (peripheral.services ?? []).flatMap { $0.characteristics ?? [] }
        guard !characteristics.isEmpty else { return discover(peripheral) }
        for characteristic in characteristics { use(characteristic, of: peripheral) }
    }

    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) {
        let name = advertisementData[CBAdvertisementDataLocalNameKey] as? String
        note(peripheral, name: name, strength: RSSI.intValue == 127 ? nil : RSSI.intValue)
        if choosesFirst, chosen == nil, let sensor = sensors.first { choose(sensor) }
        onChange()
    }

    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        guard peripheral === chosen else { return }
        link = .connected
        discover(peripheral)
        onChange()
    }

    func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) {
        guard peripheral === chosen else { return }
        chosen = nil
        forget()
        link = .lost(error?.localizedDescription ?? "The connection failed")
        scan()
        onChange()
    }

    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
    ) {
        guard peripheral === chosen else { return }
        link = .lost(error?.localizedDescription ?? "The connection has ended")
        central.connect(peripheral)  // without a time limit: as soon as the sensor is back
        onChange()
    }

    // MARK: The sensor

    private func discover(_ peripheral: CBPeripheral) {
        peripheral.discoverServices([HeartRateService.uuid, BatteryService.uuid])
    }

    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        for service in peripheral.services ?? [] { peripheral.discoverCharacteristics(nil, for: service) }
    }

    func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {
        discover(peripheral)
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        for characteristic in service.characteristics ?? [] { use(characteristic, of: peripheral) }
    }

    private func use(_ characteristic: CBCharacteristic, of peripheral: CBPeripheral) {
        guard [HeartRateMeasurement.uuid, BatteryLevel.uuid].contains(characteristic.uuid) else { return }
        if characteristic.properties.contains(.notify), !characteristic.isNotifying {
            peripheral.setNotifyValue(true, for: characteristic)
        }
        if characteristic.properties.contains(.read) { peripheral.readValue(for: characteristic) }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        guard peripheral === chosen, error == nil else { return }
        if characteristic.uuid == BatteryLevel.uuid, let level = try? BatteryLevel(characteristic.value) {
            battery = level.percent
        }
        if characteristic.uuid == HeartRateMeasurement.uuid,
            let measurement = try? HeartRateMeasurement(characteristic.value)
        {
            link = .live
            contact = measurement.contact
            if let energyExpended = measurement.energyExpended { energy = Int(energyExpended) }
            let now = Date()
            samples.append(
                Sample(
                    time: now, beatsPerMinute: Int(measurement.beatsPerMinute),
                    intervals: measurement.rrMilliseconds))
            samples.removeAll { now.timeIntervalSince($0.time) > Self.remembered }
        }
        onChange()
    }
}
