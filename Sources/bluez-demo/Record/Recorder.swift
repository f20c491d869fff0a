import BluezDBus
import BluezKit
import BluezKitSimulator
import Foundation

/// Records a device in range, with what every app can use. Everything runs on the queue of the manager, whose callbacks
/// it takes.
final class Recorder: NSObject, CBPeripheralDelegate {
    struct Plan {
        /// In seconds: how long advertisements are recorded before it connects, and how long notifications are.
        var hearing: Double
        var listening: Double
        var readsValues: Bool
        /// In seconds: how long nothing may happen.
        var timeout: Double
    }

    /// What has happened, for people.
    enum News {
        case found(CBPeripheral, [String: Any], NSNumber)
        case connecting(CBPeripheral)
        case connected(CBPeripheral)
        case reading(Int)
        case listening(Int)
        case disconnected(CBPeripheral, reason: String?)
    }

    enum Ending {
        /// Everything was done.
        case complete
        /// One sentence that says why not.
        case failed(String)
    }

    private enum Step { case idle, hearing, connecting, discovering, working, listening, ended }

    /// One thing to do with the table, after the other.
    private enum Job {
        case read(CBCharacteristic, service: Int, characteristic: Int)
        case readDescriptor(CBDescriptor, service: Int, characteristic: Int, descriptor: Int)
        case subscribe(CBCharacteristic)

        var attribute: CBAttribute {
            switch self {
            case .read(let characteristic, _, _), .subscribe(let characteristic): characteristic
            case .readDescriptor(let descriptor, _, _, _): descriptor
            }
        }
    }

    /// A refused pairing ends the link, so each value that requires one can cost a link.
    private static let mostLostLinks = 20
    private static let mostAdvertisements = 100_000
    private static let mostNotifications = 1_000_000

    private let plan: Plan
    private let identifiers: [UUID]
    private let queue: DispatchQueue
    private let onNews: (News) -> Void
    private let onEnd: (Ending) -> Void
    private var central: CBCentralManager?
    private(set) var device: CBPeripheral?
    /// What is known so far.
    private(set) var recording = Recording()
    private let began = ContinuousClock.now
    private var step = Step.idle
    private var discovery = TableDiscovery()
    private var names: [[String]] = []
    private var jobs: [Job] = []
    private var position = 0
    /// Jobs that have ended a link.
    private var refused: Set<Int> = []
    /// Incremented with each answer, so that a time limit can detect whether there was one.
    private var progress = 0

    /// - Parameters:
    ///   - identifiers: Those that the device may have.
    ///   - queue: That of the manager.
    init(
        _ plan: Plan, _ identifiers: [UUID], queue: DispatchQueue, onNews: @escaping (News) -> Void,
        onEnd: @escaping (Ending) -> Void
    ) {
        (self.plan, self.identifiers, self.queue) = (plan, identifiers, queue)
        (self.onNews, self.onEnd) = (onNews, onEnd)
    }

    // MARK: Times

    private var elapsed: Double { began.duration(to: .now) / .seconds(1) }

    private func after(_ seconds: Double, _ body: @escaping () -> Void) { queue.later(.seconds(seconds), body) }

    /// Gives up if nothing happens for too long.
    private func limitWaiting() {
        progress += 1
        let before = progress
        after(plan.timeout) { [weak self] in
            guard let self, progress == before, ![.idle, .listening, .ended].contains(step) else { return }
            // One that was heard has a time of its own, and may be silent in it.
            guard device == nil || step != .hearing else { return }
            let waited = "waited \(JSONValue.double(plan.timeout)) s"
            switch step {
            case .hearing: end(.failed("the device is not heard (\(waited)); is it near, and does it advertise?"))
            case .connecting: end(.failed("the device cannot be reached (\(waited)); is it connected elsewhere?"))
            default: end(.failed("the device does not answer (\(waited))"))
            }
        }
    }

    private func end(_ ending: Ending) {
        guard step != .ended else { return }
        step = .ended
        onEnd(ending)
    }

    // MARK: Advertisements

    /// Bluetooth is on.
    func start(_ central: CBCentralManager) {
        guard step == .idle else { return }
        self.central = central
        step = .hearing
        central.scanForPeripherals(withServices: nil, options: [CBCentralManagerScanOptionAllowDuplicatesKey: true])
        limitWaiting()
        after(plan.hearing) { [weak self] in self?.connectAfterHearing() }
    }

    func discovered(_ peripheral: CBPeripheral, _ data: [String: Any], rssi: NSNumber) {
        guard step == .hearing, identifiers.contains(peripheral.identifier) else { return }
        if device == nil {
            device = peripheral
            onNews(.found(peripheral, data, rssi))
            // One that is heard late is listened to as long.
            if elapsed > plan.hearing { after(plan.hearing) { [weak self] in self?.connectAfterHearing() } }
        }
        limitWaiting()
        guard recording.advertisements.count < Self.mostAdvertisements else { return }
        let heard = Advertisement(peripheral, data, rssi: rssi)
        recording.advertisements.append(
            .init(time: elapsed, rssi: heard.rssiDBm.flatMap { Int16(exactly: $0) }, content: .init(data)))
    }

    private func connectAfterHearing() {
        guard step == .hearing, let central else { return }
        if device == nil, identifiers.count == 1 {
            // It may be connected to another program, and not advertise.
            device = central.retrievePeripherals(withIdentifiers: identifiers).first
        }
        guard let device else { return }
        identify(device)
        guard recording.advertisements.last?.content.isConnectable ?? true else {
            // A beacon has nothing but advertisements.
            let rest = plan.listening - elapsed
            guard rest > 0 else { return end(.complete) }
            return after(rest) { [weak self] in self?.end(.complete) }
        }
        central.stopScan()
        device.delegate = self
        connect(device)
    }

    private func identify(_ device: CBPeripheral) {
        if let address = device.identifier.bluetoothAddress { recording.address = address }
        // BluezKit's identifiers have the type of the address.
        recording.addressType = device.identifier.uuidString.hasPrefix("426C7A4B-00") ? "public" : "random"
        recording.name = device.name
    }

    // MARK: The link

    private func connect(_ device: CBPeripheral) {
        step = .connecting
        onNews(.connecting(device))
        central?.connect(device)
        limitWaiting()
    }

    func connected(_ peripheral: CBPeripheral) {
        guard step == .connecting, peripheral === device else { return }
        step = .discovering
        onNews(.connected(peripheral))
        limitWaiting()
        discovery = TableDiscovery()
        discovery.begin(peripheral)
    }

    func failed(_ error: (any Error)?) {
        end(.failed("the connection failed: \(error?.sentence ?? "no reason given")"))
    }

    func disconnected(_ error: (any Error)?) {
        guard let device, step != .ended else { return }
        onNews(.disconnected(device, reason: error?.sentence))
        let reason = "the link was lost: \(error?.sentence ?? "no reason given")"
        guard step == .working, jobs.indices.contains(position), refused.count < Self.mostLostLinks else {
            return end(.failed(reason))
        }
        // Most likely it needs a pairing. The rest is done over another link, where nothing is subscribed to yet.
        refused.insert(position)
        position = min(position + 1, jobs.firstIndex { if case .subscribe = $0 { true } else { false } } ?? jobs.count)
        connect(device)
    }

    // MARK: The table

    private func tableIsKnown() {
        guard let device, step == .discovering else { return }
        identify(device)
        // Of an ATT_MTU, three bytes are for the opcode and the handle. No value has more than 512 bytes: then the MTU
        // is most likely the largest one.
        let length = device.maximumWriteValueLength(for: .withoutResponse)
        recording.mtu = length >= 512 ? 517 : UInt16(max(length + 3, 23))
        let table = discovery.table
        if !table.isLaidOut(as: recording.services) { (recording.services, position, refused) = (table, 0, []) }
        (names, jobs) = (recording.characteristicNames, [])
        for (service, found) in discovery.services.enumerated() {
            for (number, characteristic) in (found.characteristics ?? []).enumerated() where plan.readsValues {
                if characteristic.properties.contains(.read) {
                    jobs.append(.read(characteristic, service: service, characteristic: number))
                }
                for (place, descriptor) in (characteristic.descriptors ?? []).enumerated()
                where descriptor.uuid.uuidString != CBUUIDClientCharacteristicConfigurationString {
                    jobs.append(
                        .readDescriptor(descriptor, service: service, characteristic: number, descriptor: place))
                }
            }
        }
        let sources = discovery.services.flatMap { $0.characteristics ?? [] }.filter {
            !$0.properties.isDisjoint(with: [.notify, .indicate])
        }
        onNews(.reading(jobs.count))
        jobs += sources.map { .subscribe($0) }
        step = .working
        work()
    }

    private func work() {
        limitWaiting()
        while refused.contains(position) { position += 1 }
        guard let device, jobs.indices.contains(position) else { return listen() }
        switch jobs[position] {
        case .read(let characteristic, _, _): device.readValue(for: characteristic)
        case .readDescriptor(let descriptor, _, _, _): device.readValue(for: descriptor)
        case .subscribe(let characteristic): device.setNotifyValue(true, for: characteristic)
        }
    }

    /// The job that this is the answer to.
    private func answered(_ attribute: CBAttribute) -> Job? {
        guard step == .working, jobs.indices.contains(position), jobs[position].attribute === attribute else {
            return nil
        }
        return jobs[position]
    }

    private func listen() {
        step = .listening
        let count = jobs.count { if case .subscribe = $0 { true } else { false } }
        onNews(.listening(count))
        guard count > 0 else { return end(.complete) }
        after(plan.listening) { [weak self] in self?.end(.complete) }
    }

    private func save(_ value: [UInt8]?, _ error: (any Error)?, _ job: Job) {
        let code = (error as? CBATTError).flatMap { UInt8(exactly: $0.code.rawValue) }
        switch job {
        case .read(_, let service, let characteristic):
            recording.services[service].characteristics[characteristic].value = error == nil ? value : nil
            recording.services[service].characteristics[characteristic].error = code
        case .readDescriptor(_, let service, let characteristic, let descriptor):
            let place = (service, characteristic, descriptor)
            recording.services[place.0].characteristics[place.1].descriptors[place.2].value = error == nil ? value : nil
            recording.services[place.0].characteristics[place.1].descriptors[place.2].error = code
        case .subscribe: break
        }
        position += 1
        work()
    }

    private func notified(_ characteristic: CBCharacteristic, _ value: Data) {
        guard recording.notifications.count < Self.mostNotifications,
            let place = discovery.place(of: characteristic)
        else { return }
        let name = names[place.service][place.characteristic]
        recording.notifications.append(.init(time: elapsed, characteristic: name, value: [UInt8](value)))
    }

    // MARK: CBPeripheralDelegate

    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        if let error { return end(.failed("the services cannot be discovered: \(error.sentence)")) }
        limitWaiting()
        if discovery.found(peripheral.services ?? [], peripheral) { tableIsKnown() }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverIncludedServicesFor service: CBService, error: (any Error)?
    ) {
        limitWaiting()
        if discovery.found(service.includedServices ?? [], peripheral) { tableIsKnown() }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        limitWaiting()
        if discovery.foundCharacteristics(of: service, peripheral) { tableIsKnown() }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverDescriptorsFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        limitWaiting()
        if discovery.answered() { tableIsKnown() }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        if case .read? = answered(characteristic), let job = answered(characteristic) {
            save(characteristic.value.map { [UInt8]($0) }, error, job)
        } else if let value = characteristic.value, error == nil, [.working, .listening].contains(step) {
            notified(characteristic, value)
        }
    }

    func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor descriptor: CBDescriptor, error: (any Error)?) {
        guard let job = answered(descriptor) else { return }
        save([UInt8](descriptorValue: descriptor.value), error, job)
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic,
        error: (any Error)?
    ) {
        guard case .subscribe? = answered(characteristic), let job = answered(characteristic) else { return }
        save(nil, nil, job)
    }
}
