import BluezDBus
import Foundation

/// What apps do with the attributes, in the order of the calls (RW-1).
extension GATTClient {
    typealias Entry = AttributeQueue<AttributeOperation>.Entry

    /// An operation of an app.
    func add(_ operation: AttributeOperation) {
        if let entry = queue.add(operation) { execute(entry) }
    }

    /// The running operation is over: on with the next.
    func finish(_ id: Int) {
        guard queue.running?.id == id else { return }
        answerRunning = nil
        abandonCall()
        if let next = queue.finish(id) { execute(next) }
    }

    /// An object of BlueZ has gone, with all below it. BlueZ answers nothing that is under way for that, not even with
    /// an error. It ends when the change is reported (IV-3): it may show by then that the link has ended, and all of
    /// it.
    func loseOperation(on path: ObjectPath) {
        guard let running = queue.running, let attribute = running.operation.attribute?.objectPath,
            attribute == path.rawValue || attribute.hasPrefix(path.rawValue + "/")
        else { return }
        lostOperation = running.id
    }

    /// Begins an operation. Many are over at once, and so is then the next one: they follow each other in a loop, not
    /// inside each other.
    func execute(_ entry: Entry) {
        nextEntry = entry
        guard !isExecuting else { return }
        isExecuting = true
        defer { isExecuting = false }
        while let entry = nextEntry {
            nextEntry = nil
            if queue.running?.id == entry.id { begin(entry) }
        }
    }

    private func begin(_ entry: Entry) {
        if calls.isHalted { return }
        let operation = entry.operation
        // BlueZ resolves the whole table on its own; an earlier request waits (GD-13).
        if !isDiscovered, operation.waitsForServices || isAdopted { return }
        // Sockets and calls reach BlueZ on different ways; what was written first must be there first (O-27).
        guard isDrained(before: operation) else { return awaitDrained(entry) }
        if operation.waitsForServices, didReportReadError { return readAgain() }
        if isStale(operation) {
            let end: (Result<Message, BusError>) -> Void = { [weak self] _ in
                guard let self else { return }
                // What was restored the app has not asked for: `didModifyServices` reports it.
                if case .resubscribe = operation.kind {} else { operation.fail(staleAttribute) }
                finish(entry.id)
            }
            guard isChangeReportDue else { return end(.failure(BlueZErrorName.gone)) }
            // As with what goes during an operation (`noteEnd`).
            (answerRunning, lostOperation) = (end, entry.id)
            return
        }
        if operation.waitsForServices, let readError = table.readError {
            // What is too large stays so.
            if case .limit = readError {} else { didReportReadError = true }
            operation.fail(error(readError, .attributeRead))
            return finish(entry.id)
        }
        switch operation.kind {
        case .discoverServices(let wanted):
            let services = table.visibleServices().matching(wanted, \.uuid)
            operation.answer { peripheral, delegate in
                peripheral.addDiscovered(services: services)
                delegate?.peripheral(peripheral, didDiscoverServices: nil)
            }
        case .discoverIncludedServices(let wanted, let service):
            let included = table.includedServices(of: service.objectPath).matching(wanted, \.uuid)
            operation.answer { peripheral, delegate in
                peripheral.addDiscovered(includedServices: included, of: service)
                delegate?.peripheral(peripheral, didDiscoverIncludedServicesFor: service, error: nil)
            }
        case .discoverCharacteristics(let wanted, let service):
            let found = table.characteristics(of: service.objectPath, isBonded: device.properties.isBonded)
                .matching(wanted, \.uuid)
            operation.answer { peripheral, delegate in
                peripheral.addDiscovered(characteristics: found, of: service)
                delegate?.peripheral(peripheral, didDiscoverCharacteristicsFor: service, error: nil)
            }
        case .discoverDescriptors(let characteristic):
            let found = table.descriptors(of: characteristic.objectPath)
            operation.answer { peripheral, delegate in
                peripheral.addDiscovered(descriptors: found, of: characteristic)
                delegate?.peripheral(peripheral, didDiscoverDescriptorsFor: characteristic, error: nil)
            }
        case .read(let characteristic): return read(characteristic, entry)
        case .readDescriptor(let descriptor): return read(descriptor, entry)
        case .write(let data, let characteristic): return write(data, to: characteristic, entry)
        case .writeDescriptor(let data, let descriptor): return write(data, to: descriptor, entry)
        case .setNotify(let enabled, let characteristic): return setNotify(enabled, characteristic, entry)
        case .resubscribe(let characteristic): return resubscribe(characteristic, entry)
        case .writeWithoutResponse(let data, let characteristic):
            return writeWithoutResponse(data, to: characteristic, entry)
        case .readRSSI: return readRSSI(entry)
        }
        finish(entry.id)
    }

    /// Whether another attribute may have got its place in the table (IV-1).
    private func isStale(_ operation: AttributeOperation) -> Bool {
        guard let attribute = operation.attribute else { return false }
        let service = AttributeTable.service(of: attribute.objectPath)
        let version = attribute.version ?? operation.core.restoredVersions[service]
        return version != table.version(of: service)
    }

    var staleAttribute: any Error { CBError(.invalidHandle) }

    /// Makes a call for the running operation. `answer` gets the result if the link is still the same one; then the
    /// next operation runs.
    func call(
        _ path: String, _ interface: String, _ entry: Entry,
        _ make: @escaping (BlueZProxy, @escaping BlueZProxy.Completion) -> Void,
        answer: @escaping (Result<Message, BusError>) -> Void
    ) {
        guard isCurrent, let path = ObjectPath(path), let proxy = proxy(path, interface) else { return }
        let id = entry.id
        answerRunning = { [weak self] result in
            guard let self else { return }
            answer(result)
            finish(id)
        }
        attempt(id, proxy, make: make)
    }

    /// What BlueZ never answers keeps nothing of the app: the link has the answer, and the call the operation's number.
    private func attempt(
        _ id: Int, _ proxy: BlueZProxy, tries: Int = 0,
        make: @escaping (BlueZProxy, @escaping BlueZProxy.Completion) -> Void
    ) {
        let replied: BlueZProxy.Completion = { [weak self] result in
            guard let self, isRunning(id) else { return }
            if result.failure == .timedOut { return timedOut() }
            if let error = result.failure, BlueZErrorName.meansAcquired(error), tries < bus.timing.gatt.writerRetries {
                // BlueZ notices some moments later that we have closed a socket; until then it refuses other writes.
                bus.after(bus.timing.gatt.writerRetry * (1 << tries)) { [weak self] in
                    guard let self, isRunning(id) else { return }
                    attempt(id, proxy, tries: tries + 1, make: make)
                }
            } else if let error = result.failure, mayPair(after: error) {
                // CN-14: the app sees only what comes of the second attempt.
                let answered: BlueZProxy.Completion = { [weak self] result in
                    guard let self, isRunning(id) else { return }
                    if result.failure == .timedOut { return timedOut() }
                    answerRunning?(result)
                }
                pair { [weak self] isPaired in
                    guard let self, isPaired, isRunning(id) else { return answered(result) }
                    make(proxy, noting(answered))
                }
            } else if result.failure != nil {
                bondAnnounced()
                answerRunning?(result)
            } else {
                whenBonded { [weak self] in
                    if let self, isRunning(id) { answerRunning?(result) }
                }
            }
        }
        make(proxy, noting(replied))
    }

    /// For a call that BlueZ may never answer, and for what must follow such a call.
    func proxy(_ path: ObjectPath, _ interface: String, on lane: CallLane? = nil) -> BlueZProxy? {
        guard let connection = (lane ?? self.lane)?.connection else { return nil }
        var proxy = BlueZProxy(bus: connection, path: path, interface: interface)
        let timing = bus.timing.gatt
        proxy.attributeDeadline = device.properties.isBonded ? timing.answer : timing.pairingAnswer
        return proxy
    }

    /// BlueZ has given no answer within the time that the peer has for one: after that nothing may be asked on the
    /// link.
    func timedOut() { device.connection?.operationTimedOut() }

    func error(_ error: BusError, _ context: BlueZErrorContext) -> any Error {
        if BlueZErrorName.meansUnknownObject(error.name) { return staleAttribute }
        return coreBluetoothError(
            name: error.name, message: error.message, context: context, isBonded: device.properties.isBonded)
    }

    // MARK: Reading

    private func read(
        _ characteristic: CBCharacteristic, _ entry: Entry
    ) {
        let path = characteristic.objectPath
        let operation = entry.operation
        let subscription = central.subscriptions[path]
        subscription?.readStarted()
        call(path, BlueZ.characteristic, entry, { $0.readValue(completion: $1) }) { [weak self] result in
            guard let self else { return }
            // It may have ended with the change of its service.
            let current = subscription.flatMap { $0.isCurrent ? $0 : nil }
            switch Self.bytes(result) {
            case .success(let bytes):
                current?.readReplied(bytes)
                let value = Data(bytes)
                operation.answer { peripheral, delegate in
                    characteristic.setValue(value)
                    delegate?.peripheral(peripheral, didUpdateValueFor: characteristic, error: nil)
                }
            case .failure(let failure):
                current?.readReplied(nil)
                operation.fail(error(failure, .attributeRead))
            }
        }
    }

    private func read(
        _ descriptor: CBDescriptor, _ entry: Entry
    ) {
        let operation = entry.operation
        call(descriptor.objectPath, BlueZ.descriptor, entry, { $0.readValue(completion: $1) }) {
            [weak self] result in
            guard let self else { return }
            switch Self.bytes(result) {
            case .success(let bytes):
                let value = Data(bytes)
                operation.answer { peripheral, delegate in
                    descriptor.setValue(value)
                    delegate?.peripheral(peripheral, didUpdateValueFor: descriptor, error: nil)
                }
            case .failure(let failure): operation.fail(error(failure, .attributeRead))
            }
        }
    }

    private static func bytes(_ result: Result<Message, BusError>) -> Result<UnsafeRawBufferPointer, BusError> {
        result.flatMap { reply in
            var reader = reply.reader
            do throws(BusError) { return .success(try reader.readBytes()) } catch { return .failure(error) }
        }
    }

    /// BlueZ measures a device's strength by its advertisements; of a link it tells nothing. So the answer is the last
    /// known value, and an error where there is none.
    private func readRSSI(_ entry: Entry) {
        let operation = entry.operation
        call(device.path.rawValue, BlueZ.device, entry, { $0.get("RSSI", completion: $1) }) { [device] result in
            if case .success(let reply) = result, var reader = Optional(reply.reader),
                let rssi = try? reader.readVariant({ (value) throws(BusError) in try value.readInt16() })
            {
                device.measured(rssi)
            }
            let rssi = NSNumber(value: device.lastRSSI ?? 127)
            let error: (any Error)? = device.lastRSSI == nil ? CBError(.operationNotSupported) : nil
            operation.answer { peripheral, delegate in
                if error == nil { peripheral.setRSSI(rssi) }
                delegate?.peripheral(peripheral, didReadRSSI: rssi, error: error)
                delegate?.peripheralDidUpdateRSSI(peripheral, error: error)
            }
        }
    }

    // MARK: Writing

    private func write(
        _ data: [UInt8], to characteristic: CBCharacteristic, _ entry: Entry
    ) {
        let operation = entry.operation
        guard data.count <= 512 else {
            operation.fail(CBATTError(.invalidAttributeValueLength))
            return finish(entry.id)
        }
        let path = characteristic.objectPath
        releaseWriter(of: path)
        call(
            path, BlueZ.characteristic, entry, { $0.writeValue(data, type: "request", completion: $1) }
        ) { [weak self] result in
            guard let self else { return }
            if let failure = result.failure { return operation.fail(error(failure, .attributeWrite)) }
            operation.answer { $1?.peripheral($0, didWriteValueFor: characteristic, error: nil) }
        }
    }

    private func write(
        _ data: [UInt8], to descriptor: CBDescriptor, _ entry: Entry
    ) {
        let operation = entry.operation
        call(
            descriptor.objectPath, BlueZ.descriptor, entry, { $0.writeValue(data, type: nil, completion: $1) }
        ) { [weak self] result in
            guard let self else { return }
            if let failure = result.failure { return operation.fail(error(failure, .attributeWrite)) }
            operation.answer { $1?.peripheral($0, didWriteValueFor: descriptor, error: nil) }
        }
    }

    // MARK: Pairing for an operation

    /// Whether an operation that was refused so goes well after a pairing, and one may be tried.
    private func mayPair(after error: BusError) -> Bool {
        error.name == BlueZErrorName.notPermitted && error.message == BlueZErrorName.notPaired
            && !device.properties.isBonded
            && device.connection?.clients.contains { $0.request != nil && $0.pairing.permitsAnything } == true
    }

    /// Pairs. Not with a device that is bonded: BlueZ before 5.79 would look for it on BR/EDR.
    private func pair(completion: @escaping (_ isPaired: Bool) -> Void) {
        // That has the agent, and cannot be replaced as others are.
        guard let first = bus.firstLane else { return }
        guard first.lost < bus.timing.unanswered.fullLane else { return completion(false) }
        var proxy = BlueZProxy(bus: first.connection, path: device.path, interface: BlueZ.device)
        proxy.counting = central.unanswered.counting(device, on: first)
        isPairing = true
        proxy.pair { [weak self] result in
            guard let self, isCurrent else { return }
            isPairing = false
            central.pairing.endQuestion(about: device.path)
            let error = result.failure
            if let error { Log.debug("pair \(device.path): \(error.name) \(error.message)") }
            completion(error == nil || error?.name == "org.bluez.Error.AlreadyExists")
        }
    }

    /// Whether BlueZ may be pairing for the operation that runs.
    var mayPairForOperation: Bool { !isPairing && answerRunning != nil }
}

extension Result {
    var failure: Failure? { if case .failure(let failure) = self { failure } else { nil } }
}

extension Array {
    /// GD-2: a list restricts; none, or an empty one, does not.
    fileprivate func matching(_ wanted: [CBUUID]?, _ uuid: (Element) -> CBUUID) -> [Element] {
        guard let wanted, !wanted.isEmpty else { return self }
        let set = Set(wanted)
        return filter { set.contains(uuid($0)) }
    }
}
