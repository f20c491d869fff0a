import BluezKit
import BluezKitProfiles
import Foundation

/// Finds a heart-rate sensor, stays connected to it, and shows its measurements.
final class HeartRateCommand: CentralCommand, CBPeripheralDelegate {
    private let options: HeartRateOptions
    private var display = HeartRateDisplay()
    /// Kept, because a peripheral that is released is disconnected.
    private var sensor: CBPeripheral?
    private var identifier: UUID?
    /// Restored, but not what the arguments mean: their links end when Bluetooth is on.
    private var strays: [CBPeripheral] = []
    /// What was restored is a scan for something else.
    private var isScanStale = false
    /// The sensor has a heart-rate measurement, or had it when it was connected for the last time.
    private var hasMeasured = false
    /// The link is being ended, because the sensor no longer has one.
    private var isLeaving = false
    private var name: String?
    private var noted: [String: String] = [:]
    private var count = 0
    /// Incremented with each measurement, so that a time limit can detect whether there was one.
    private var progress = 0

    init(_ options: HeartRateOptions, common: CommonOptions, output: Output) {
        self.options = options
        identifier = options.device?.identifier
        super.init(common: common, output: output)
    }

    override var timeLimit: Double? { options.timeout }

    override func start() {
        if let path = options.log {
            if let error = output.append(to: path) {
                output.complain("'\(path)' cannot be written: \(String(cString: strerror(error)))")
                return stop(.failure)
            }
            output.report(.started(process: getpid()))
        }
        super.start()
        limitWaiting()
    }

    override func makeManager(_ options: [String: Any]) {
        var options = options
        options[CBCentralManagerOptionRestoreIdentifierKey] = self.options.restore
        options[BluezManagerOptionKeeperKey] = self.options.keeper
        super.makeManager(options)
    }

    private func limitWaiting() {
        guard let timeout = options.timeout, ending == nil else { return }
        let before = progress
        after(timeout) { [self] _ in
            guard progress == before, ending == nil else { return }
            timeIsUp("no measurement for \(JSONValue.double(timeout)) s: \(obstacle)")
        }
    }

    /// Why nothing is measured, and what to do.
    private var obstacle: String {
        guard let sensor else { return "no sensor was found; is it worn, near, and not connected to another device?" }
        return sensor.state == .connected
            ? "\(label(sensor)) sends none; is it worn?"
            : "\(label(sensor)) is not connected; is it on, near, and not connected to another device?"
    }

    // MARK: Finding and connecting

    override func bluetoothIsOn(_ central: CBCentralManager) {
        for stray in strays {
            output.say(Line("Leaving \(stray.name?.harmless ?? stray.identifier.uuidString).", .yellow))
            central.cancelPeripheralConnection(stray)
        }
        if isScanStale {
            isScanStale = false
            central.stopScan()
        }
        if let sensor { return resume(with: sensor) }
        if central.isScanning { return output.say("Still looking for a heart-rate sensor...") }
        if let identifier {
            guard let known = central.retrievePeripherals(withIdentifiers: [identifier]).first else {
                output.complain("\(identifier) is not an identifier that BluezKit made; `bluez-demo scan` shows some")
                return stop(.failure)
            }
            return connect(known)
        }
        // A device that another program is connected to does not advertise.
        let connected = central.retrieveConnectedPeripherals(withServices: [HeartRateService.uuid])
        if let sensor = connected.first(where: isChosen) { return connect(sensor) }
        output.say(Line("Looking for \(options.device?.description ?? "a heart-rate sensor")..."))
        central.scanForPeripherals(withServices: services)
        after(10) { [self] _ in
            guard sensor == nil, ending == nil else { return }
            output.say(Line("None so far. Most advertise only while they are worn.", .dim))
        }
    }

    /// What it scans for; nil: everything, as a device that is named need not advertise its service.
    private var services: [CBUUID]? { options.device == nil ? [HeartRateService.uuid] : nil }

    private func isChosen(_ peripheral: CBPeripheral) -> Bool {
        options.device?.identifiers.contains(peripheral.identifier) ?? true
    }

    override func bluetoothWentOff() {
        // With a restore identifier the connection resumes automatically after a reset.
        if sensor?.state != .connecting { sensor = nil }
        strays = []
        show { $0.isConnected = false }
    }

    override func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) {
        guard sensor == nil, ending == nil, isChosen(peripheral) else { return }
        central.stopScan()
        let advertisement = Advertisement(peripheral, advertisementData, rssi: RSSI)
        output.report(.discovered(advertisement))
        let strength = advertisement.rssiDBm.map { ", \($0) dBm" } ?? ""
        let name = (advertisement.name ?? "a sensor without a name").harmless
        output.say("Found " + Line(name, .bold) + Line(strength, .dim))
        connect(peripheral)
    }

    // MARK: Restoration

    override func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {
        let state = RestoredState(dict)
        output.report(.restored(state))
        for line in state.lines { output.say(line) }
        if let kept = central.restoration?.kept { tell(of: kept) }
        // The arguments may be others than those of the earlier process.
        let restored = state.peripherals.map(\.peripheral)
        let chosen = restored.first(where: isChosen)
        strays = restored.filter { $0 !== chosen }
        isScanStale = state.scan.map { Set($0) != Set(services ?? []) || options.device?.identifier != nil } ?? false
        guard let chosen else { return }
        (sensor, identifier, hasMeasured) = (chosen, chosen.identifier, true)
        chosen.delegate = self
    }

    private func tell(of kept: BluezRestoration.Kept) {
        output.report(
            .handedOver(
                missed: kept.missedEvents, dropped: kept.droppedEvents, repeatsFirst: kept.repeatsFirst))
        output.say(
            Line("A keeper has continued meanwhile; \(kept.missedEvents) events follow", .green)
                + Line(kept.droppedEvents == 0 ? "; nothing was dropped" : "; it had no room for ")
                + Line(kept.droppedEvents == 0 ? "" : "\(kept.droppedEvents) values", .yellow)
                + Line(kept.repeatsFirst ? "; the first event comes again" : ""))
    }

    /// The sensor was restored from an earlier process, or after a reset: continue after the last completed step.
    private func resume(with sensor: CBPeripheral) {
        guard sensor.state == .connected else {
            output.report(.connecting(sensor.identifier, name: sensor.name))
            return output.say(Line("Waiting for \(label(sensor))..."))
        }
        show { $0.isConnected = true }
        guard let services = sensor.services else { return discover(sensor) }
        for service in services {
            guard let characteristics = service.characteristics else {
                sensor.discoverCharacteristics(nil, for: service)
                continue
            }
            for characteristic in characteristics { use(characteristic, of: sensor) }
        }
    }

    private func discover(_ sensor: CBPeripheral) {
        guard ending == nil else { return }  // the output is not read any longer
        sensor.discoverServices([HeartRateService.uuid, BatteryService.uuid, DeviceInformationService.uuid])
    }

    // MARK: Links

    private func connect(_ peripheral: CBPeripheral) {
        (sensor, identifier) = (peripheral, peripheral.identifier)
        peripheral.delegate = self
        output.report(.connecting(peripheral.identifier, name: peripheral.name))
        output.say(Line("Connecting to \(label(peripheral))..."))
        central?.connect(peripheral)
    }

    private func label(_ peripheral: CBPeripheral) -> String {
        name = peripheral.name?.harmless ?? name  // after a reset the object is new, and has no name
        return name ?? peripheral.identifier.uuidString
    }

    override func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        guard ending == nil, !strays.contains(where: { $0 === peripheral }) else { return }
        output.report(.connected(peripheral.identifier, name: peripheral.name))
        isLeaving = false  // a reset may have ended the link without a callback
        output.say(Line("Connected.", .green))
        show { $0.isConnected = true }
        discover(peripheral)
    }

    override func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) {
        if isGone(peripheral) { return }
        guard ending == nil else { return quit() }
        let reason = error?.sentence ?? "no reason given"
        output.report(.disconnected(peripheral.identifier, reason: reason))
        output.say(Line("The connection failed (\(reason)). Trying again.", .yellow))
        after(1) { [self] _ in
            if ending == nil, sensor === peripheral { central.connect(peripheral) }
        }
    }

    override func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
    ) {
        output.report(.disconnected(peripheral.identifier, reason: error?.sentence))
        if isGone(peripheral) { return }
        guard ending == nil else { return quit() }
        show { $0.isConnected = false }
        if isLeaving {
            isLeaving = false
            output.say(Line("\(label(peripheral)) no longer measures a heart rate. Waiting for it.", .yellow))
            // It may still advertise, and would be connected at once, again and again.
            after(1) { [self] _ in
                if ending == nil, sensor === peripheral { central.connect(peripheral) }
            }
            return output.report(.connecting(peripheral.identifier, name: peripheral.name))
        }
        let reason = error.map { " (\($0.sentence))" } ?? ""
        output.say(Line("The link was lost\(reason). Waiting for \(label(peripheral)).", .yellow))
        // No time limit: this connects as soon as the sensor is back.
        central.connect(peripheral)
        output.report(.connecting(peripheral.identifier, name: peripheral.name))
    }

    /// The link of a stray has ended.
    /// - Returns: Whether it is one.
    private func isGone(_ peripheral: CBPeripheral) -> Bool {
        guard let place = strays.firstIndex(where: { $0 === peripheral }) else { return false }
        strays.remove(at: place)
        return true
    }

    override func end() -> Bool {
        // A service manager's SIGTERM does not end the work: the next process continues.
        if options.restore != nil, ending == .terminated { return false }
        if options.keeper != nil {
            // The keeper ends the link. Later, because a callback may be running, which keeps the manager.
            after(0) { [self] _ in
                releaseManager()
                quit()
            }
            return true
        }
        if options.restore != nil, central?.state == .poweredOn { central?.stopScan() }
        return endLink(of: sensor)
    }

    // MARK: Services

    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        guard ending == nil else { return }
        if let error { return complain("the services cannot be discovered", error) }
        let services = peripheral.services ?? []
        guard services.contains(where: { $0.uuid == HeartRateService.uuid }) else {
            guard hasMeasured else {
                output.complain("\(label(peripheral)) has no heart-rate service")
                return stop(.failure)
            }
            // Its program has ended, and the link is that of its machine.
            isLeaving = true
            central?.cancelPeripheralConnection(peripheral)
            return
        }
        for service in services { peripheral.discoverCharacteristics(nil, for: service) }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        guard ending == nil else { return }
        if let error { return complain("the characteristics cannot be discovered", error) }
        for characteristic in service.characteristics ?? [] { use(characteristic, of: peripheral) }
    }

    /// Reads and subscribes to the supported characteristics, unless it is subscribed already.
    private func use(_ characteristic: CBCharacteristic, of sensor: CBPeripheral) {
        let isFollowed = characteristic.uuid == HeartRateMeasurement.uuid || characteristic.uuid == BatteryLevel.uuid
        if isFollowed, !characteristic.isNotifying, characteristic.properties.contains(.notify) {
            sensor.setNotifyValue(true, for: characteristic)
        }
        if characteristic.uuid == HeartRateMeasurement.uuid { hasMeasured = true }
        switch characteristic.uuid {
        case BatteryLevel.uuid, BodySensorLocation.uuid: sensor.readValue(for: characteristic)
        case let uuid where DeviceInformationText(uuid) != nil: sensor.readValue(for: characteristic)
        default: break
        }
    }

    /// The sensor has changed its services: start again with them.
    func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {
        discover(peripheral)
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic,
        error: (any Error)?
    ) {
        guard let error, ending == nil else { return }
        complain("cannot subscribe to \(characteristic.uuid)", error)
        if characteristic.uuid == HeartRateMeasurement.uuid { stop(.failure) }
    }

    // MARK: Values

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        guard ending == nil else { return }
        if let error { return complain("\(characteristic.uuid) cannot be read", error) }
        switch characteristic.uuid {
        case HeartRateMeasurement.uuid: take(characteristic.value)
        case BatteryLevel.uuid:
            guard let level = try? BatteryLevel(characteristic.value).percent, level != display.battery else { return }
            output.report(.battery(level))
            show { $0.battery = level }
            if output.mode == .plain { sayOnce("battery", "\(level) %") }
        case BodySensorLocation.uuid:
            guard let location = try? BodySensorLocation(characteristic.value) else { return }
            output.report(.sensorLocation(location))
            sayOnce("worn on", location.description)
        default:
            guard let field = DeviceInformationText(characteristic.uuid),
                let text = try? DeviceInformationText.text(of: characteristic.value)
            else { return }
            output.report(.information(field, text))
            sayOnce(field.label, text.harmless)
        }
    }

    private func take(_ value: Data?) {
        do throws(CharacteristicValueError) {
            let measurement = try HeartRateMeasurement(value)
            (count, progress) = (count + 1, progress + 1)
            output.report(.measurement(measurement))
            show { $0.take(measurement) }
            if output.mode == .plain { output.say(display.plainLine(measurement)) }
        } catch {
            return output.complain("no heart-rate measurement: \(error); bytes: \((value ?? Data()).hex)")
        }
        if count == options.count { stop(.success) } else { limitWaiting() }
    }

    /// Reported once, although it is read again on every connection.
    private func sayOnce(_ label: String, _ text: String) {
        guard noted.updateValue(text, forKey: label) != text else { return }
        output.say(Line("  \(label): ", .dim) + Line(text))
    }

    private func complain(_ what: String, _ error: any Error) {
        if ending == nil { output.complain("\(what): \(error.sentence)") }
    }

    private func show(_ change: (inout HeartRateDisplay) -> Void) {
        change(&display)
        if output.mode == .live { output.show(display.block(width: Terminal.size.columns)) }
    }
}
