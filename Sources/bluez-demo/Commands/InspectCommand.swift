import BluezKit
import Foundation

/// Shows all attributes of a device, with the values that can be read.
final class InspectCommand: CentralCommand, CBPeripheralDelegate {
    private let options: InspectOptions
    /// Kept, because a peripheral that is released is disconnected.
    private var device: CBPeripheral?
    /// Kept, because the device discards them when its link is lost.
    private var services: [CBService] = []
    /// The number of discovery requests without an answer.
    private var pending = 0
    private var visited = Set<ObjectIdentifier>()
    private var reports = AttributeReports()
    /// The attribute that is being read.
    private var reading: CBAttribute?
    /// The number of reads that were answered on this link.
    private var answers = 0
    private var lostLinks = 0
    /// A refused pairing ends the link, so each value that requires one can cost a link.
    private static let mostLostLinks = 20
    /// The number of values not shown because they require pairing, and whether one of them was read on this link.
    private var guarded = 0
    private var isRefused = false
    /// Incremented with each answer, so that a time limit can detect whether there was one.
    private var progress = 0

    init(_ options: InspectOptions, common: CommonOptions, output: Output) {
        self.options = options
        super.init(common: common, output: output)
    }

    override var timeLimit: Double? { options.timeout }
    override var waitsForBluetooth: Bool { false }
    override var simulatedScenario: Scenario { .crowd(SimulatedNeighbour.all.count) }

    override func bluetoothIsOn(_ central: CBCentralManager) {
        guard let identifier = options.device.identifier else {
            // An address: which of two devices it is shows when one is heard.
            output.say(Line("Looking for \(options.device)..."))
            central.scanForPeripherals(withServices: nil)
            return limitWaiting()
        }
        guard let device = central.retrievePeripherals(withIdentifiers: [identifier]).first else {
            output.complain("\(options.device) is not an identifier that BluezKit made; `bluez-demo scan` shows some")
            return stop(.failure)
        }
        begin(with: device)
    }

    override func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) {
        guard device == nil, ending == nil, options.device.identifiers.contains(peripheral.identifier) else { return }
        central.stopScan()
        begin(with: peripheral)
    }

    private func begin(with device: CBPeripheral) {
        self.device = device
        device.delegate = self
        output.say(Line("Connecting to \(device.name?.harmless ?? device.identifier.uuidString)..."))
        connect(device)
    }

    private func connect(_ device: CBPeripheral) {
        output.report(.connecting(device.identifier, name: device.name))
        central?.connect(device)
        limitWaiting()
    }

    /// Gives up if nothing happens for too long.
    private func limitWaiting() {
        progress += 1
        let before = progress
        after(options.timeout) { [self] _ in
            guard progress == before, ending == nil else { return }
            let waited = "waited \(JSONValue.double(options.timeout)) s"
            guard device?.state == .connected else {
                return fail(
                    "the device cannot be reached (\(waited)); is it in range and not connected to another device?")
            }
            fail("the device does not answer (\(waited))")
        }
    }

    /// Shows what is known so far, and why it is incomplete.
    /// - Parameter isOfDevice: Whether what is being read may be the cause.
    private func fail(_ reason: String, isOfDevice: Bool = true) {
        guard ending == nil else { return }
        var reason = reason
        if let reading {
            reports.update(.failed("no answer"), of: reading)
            if isOfDevice {
                reason += "; it was asked for \(reading.uuid), which may need pairing (bluetoothctl pair)"
            }
        } else {
            // The table is incomplete.
            reports = AttributeReports(services)
        }
        reports.giveUp("not read")
        showAll()
        output.complain(reason)
        stop(.failure)
    }

    override func bluetoothWentOff() { fail("Bluetooth is no longer available", isOfDevice: false) }

    override func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        output.report(.connected(peripheral.identifier, name: peripheral.name))
        output.say(Line("Connected. ", .green) + (lostLinks == 0 ? "Reading everything..." : "Reading the rest..."))
        (pending, visited, answers, isRefused) = (1, [], 0, false)
        limitWaiting()
        peripheral.discoverServices(nil)
    }

    override func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) {
        guard ending == nil else { return quit() }
        fail("the connection failed: \(error?.sentence ?? "no reason given")")
    }

    override func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
    ) {
        output.report(.disconnected(peripheral.identifier, reason: error?.sentence))
        guard ending == nil else { return quit() }
        let reason = error?.sentence ?? "no reason given"
        lostLinks += 1
        guard let reading, lostLinks <= Self.mostLostLinks else { return fail("the link was lost: \(reason)") }
        // A read that was refused before, or this one.
        if answers == 0 { reports.update(.failed("no answer: the link was lost"), of: reading) }
        self.reading = nil
        output.say(
            Line(
                isRefused ? "A value that requires pairing has ended the link." : "The link was lost (\(reason)).",
                .yellow)
                + " Connecting again to read the rest.")
        connect(peripheral)
    }

    override func end() -> Bool { endLink(of: device) }

    private func showAll() {
        if let name = device?.name, !services.isEmpty { output.say(Line(name.harmless, .bold)) }
        for report in reports.all {
            output.report(.attribute(report))
            output.say(report.line)
        }
    }

    // MARK: The table, level by level. Each request has exactly one answer, so counting them shows when all are
    // answered.

    /// An answer arrived; the further requests it led to have been counted.
    private func answered() {
        pending -= 1
        limitWaiting()
        guard pending == 0, ending == nil else { return }
        var reports = AttributeReports(services)
        reports.takeValues(from: self.reports)
        self.reports = reports
        readNext()
    }

    private func visit(_ services: [CBService], of peripheral: CBPeripheral) {
        for service in services where visited.insert(ObjectIdentifier(service)).inserted {
            pending += 2
            peripheral.discoverIncludedServices(nil, for: service)
            peripheral.discoverCharacteristics(nil, for: service)
        }
    }

    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        if let error, ending == nil {
            return fail("the services cannot be discovered: \(error.sentence)")
        }
        services = peripheral.services ?? []
        visit(services, of: peripheral)
        answered()
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverIncludedServicesFor service: CBService, error: (any Error)?
    ) {
        visit(service.includedServices ?? [], of: peripheral)
        answered()
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        for characteristic in service.characteristics ?? [] {
            pending += 1
            peripheral.discoverDescriptors(for: characteristic)
        }
        answered()
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverDescriptorsFor characteristic: CBCharacteristic, error: (any Error)?
    ) { answered() }

    // MARK: The values, one after the other

    private func readNext() {
        reading = reports.unread
        switch reading {
        case let characteristic as CBCharacteristic: device?.readValue(for: characteristic)
        case let descriptor as CBDescriptor: device?.readValue(for: descriptor)
        default: finish()
        }
    }

    private func finish() {
        showAll()
        if services.isEmpty {
            output.say(
                Line(
                    "It shows no services. Some devices do once they are paired (`bluetoothctl pair`), or in another mode.",
                    .yellow))
        }
        if guarded > 0 {
            output.say(
                Line(
                    "\(guarded) of the values \(guarded == 1 ? "needs" : "need") pairing: `bluetoothctl pair`, then "
                        + "inspect again.", .yellow))
        }
        stop(.success)
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        save(characteristic.value, error, characteristic)
    }

    func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor descriptor: CBDescriptor, error: (any Error)?) {
        save(descriptor.value, error, descriptor)
    }

    private func save(_ value: Any?, _ error: (any Error)?, _ attribute: CBAttribute) {
        guard ending == nil, attribute === reading else { return }
        answers += 1
        limitWaiting()
        if let error, needsPairing(error) { (guarded, isRefused) = (guarded + 1, true) }
        reports.update(error.map { .failed($0.sentence) } ?? .init(value), of: attribute)
        readNext()
    }

    private func needsPairing(_ error: any Error) -> Bool {
        switch (error as? CBATTError)?.code {
        case .insufficientAuthentication, .insufficientEncryption, .insufficientEncryptionKeySize: true
        default: false
        }
    }
}
