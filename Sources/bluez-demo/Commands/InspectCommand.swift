import BluezKit
import Foundation

/// Shows everything that a device offers, with the values that can be read.
final class InspectCommand: CentralCommand, CBPeripheralDelegate {
    private let options: InspectOptions
    /// Held: a peripheral that is released is disconnected.
    private var device: CBPeripheral?
    /// Kept, as the device forgets them when its link is lost.
    private var services: [CBService] = []
    /// Questions without an answer yet.
    private var pending = 0
    /// Values that were asked for and not answered yet, in order.
    private var unanswered: [CBAttribute] = []
    private var visited = Set<ObjectIdentifier>()
    private var failures: [ObjectIdentifier: String] = [:]
    /// Grows with each answer, so that a time limit can tell whether there was one.
    private var progress = 0

    init(_ options: InspectOptions, common: CommonOptions, output: Output) {
        self.options = options
        super.init(common: common, output: output)
    }

    override var simulatedScenario: Scenario { .crowd(SimulatedNeighbour.all.count) }

    override func bluetoothIsOn(_ central: CBCentralManager) {
        guard let device = central.retrievePeripherals(withIdentifiers: [options.device]).first else {
            output.complain("\(options.device) is not an identifier that BluezKit made; `bluez-demo scan` shows some")
            return stop(.failure)
        }
        self.device = device
        device.delegate = self
        output.report(.connecting(device.identifier, name: device.name))
        output.say(Line("Connecting to \(device.name?.harmless ?? device.identifier.uuidString)..."))
        central.connect(device)
        limitWaiting()
    }

    /// Gives up if nothing happens for too long.
    private func limitWaiting() {
        progress += 1
        let before = progress
        after(options.timeout) { [self] _ in
            guard progress == before, ending == nil, let device else { return }
            let waited = "waited \(JSONValue.double(options.timeout)) s"
            guard device.state == .connected else {
                return fail("the device cannot be reached (\(waited)); is it near, and free?")
            }
            fail("the device does not answer (\(waited))")
        }
    }

    /// Shows what is known so far, and why that is not all.
    private func fail(_ reason: String) {
        guard ending == nil else { return }
        showAll()
        var reason = reason
        if let attribute = unanswered.first {
            reason += "; it was asked for \(attribute.uuid), which may need pairing (bluetoothctl pair)"
        }
        output.complain(reason)
        stop(.failure)
    }

    override func bluetoothWentOff() {
        output.complain("Bluetooth went away")
        stop(.unavailable)
    }

    override func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        output.report(.connected(peripheral.identifier, name: peripheral.name))
        output.say(Line("Connected. ", .green) + "Reading everything...")
        pending += 1
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
        fail("the link was lost: \(error?.sentence ?? "no reason given")")
    }

    override func end() -> Bool {
        guard let device, let central, central.state == .poweredOn, device.state != .disconnected else { return false }
        central.cancelPeripheralConnection(device)
        return true
    }

    // MARK: Level by level. Each question has exactly one answer, so counting them tells when all is known.

    /// An answer came, and led to no more than the questions that were counted meanwhile.
    private func answered() {
        pending -= 1
        limitWaiting()
        guard pending == 0, ending == nil else { return }
        showAll()
        stop(.success)
    }

    private func showAll() {
        for attribute in unanswered { failures[ObjectIdentifier(attribute)] = "no answer" }
        if let name = device?.name, !services.isEmpty { output.say(Line(name.harmless, .bold)) }
        for report in AttributeReports(services, failures: failures).all {
            output.report(.attribute(report))
            output.say(report.line)
        }
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
            guard characteristic.properties.contains(.read) else { continue }
            pending += 1
            unanswered.append(characteristic)
            peripheral.readValue(for: characteristic)
        }
        answered()
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverDescriptorsFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        for descriptor in characteristic.descriptors ?? [] {
            pending += 1
            unanswered.append(descriptor)
            peripheral.readValue(for: descriptor)
        }
        answered()
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        note(error, characteristic)
    }

    func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor descriptor: CBDescriptor, error: (any Error)?) {
        note(error, descriptor)
    }

    private func note(_ error: (any Error)?, _ attribute: CBAttribute) {
        unanswered.removeAll { $0 === attribute }
        if let error { failures[ObjectIdentifier(attribute)] = error.sentence }
        answered()
    }
}
