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
        guard let running = queue.running, let attribute = running.operation.place?.path,
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
        if !isDiscovered, operation.request.waitsForServices || isAdopted { return }
        // Sockets and calls reach BlueZ on different ways; what was written first must be there first (O-27).
        guard isDrained(before: operation) else { return awaitDrained(entry) }
        if operation.request.waitsForServices, didReportReadError { return readAgain() }
        if isStale(operation) {
            let end: (Result<Message, BusError>) -> Void = { [weak self] _ in
                guard let self else { return }
                // What was restored the app has not asked for: `didModifyServices` reports it.
                if case .resubscribe = operation.request {} else { operation.fail(staleAttribute) }
                finish(entry.id)
            }
            guard isChangeReportDue else { return end(.failure(BlueZErrorName.gone)) }
            // As with what goes during an operation (`noteEnd`).
            (answerRunning, lostOperation) = (end, entry.id)
            return
        }
        if operation.request.waitsForServices, let readError = table.readError {
            // What is too large stays so.
            if case .limit = readError {} else { didReportReadError = true }
            operation.fail(error(readError, .attributeRead))
            return finish(entry.id)
        }
        let (core, path, version) = (operation.core, operation.path, operation.place?.version)
        switch operation.request {
        case .discoverServices(let wanted):
            let services = table.visibleServices().matching(wanted, \.uuid)
            operation.answer(.services(core.found(services)))
        case .discoverIncludedServices(let wanted, let service):
            let included = table.includedServices(of: path).matching(wanted, \.uuid)
            operation.answer(.includedServices(core.found(included), of: service))
        case .discoverCharacteristics(let wanted, let service):
            let found = table.characteristics(of: path, isBonded: device.properties.isBonded)
                .matching(wanted, \.uuid)
            operation.answer(.characteristics(core.found(found, version: version), of: service))
        case .discoverDescriptors(let characteristic):
            let found = table.descriptors(of: path)
            operation.answer(.descriptors(core.found(found, version: version), of: characteristic))
        case .read(let characteristic): return read(characteristic, entry)
        case .readDescriptor(let descriptor): return readDescriptor(descriptor, entry)
        case .write(let data, let characteristic): return write(data, to: characteristic, entry)
        case .writeDescriptor(let data, let descriptor): return writeDescriptor(data, descriptor, entry)
        case .setNotify(let enabled, let characteristic): return setNotify(enabled, characteristic, entry)
        case .resubscribe(let characteristic): return resubscribe(characteristic, entry)
        case .writeWithoutResponse(let data, _): return writeWithoutResponse(data, to: path, entry)
        case .readRSSI: return readRSSI(entry)
        }
        finish(entry.id)
    }

    /// Whether another attribute may have got its place in the table (IV-1).
    private func isStale(_ operation: AttributeOperation) -> Bool {
        guard operation.request.attribute != nil else { return false }
        guard let place = operation.place else { return true }
        let service = AttributeTable.service(of: place.path)
        let version = place.version ?? operation.core.restoredVersions[service]
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

    private func read(_ characteristic: AttributeID, _ entry: Entry) {
        let (operation, path) = (entry.operation, entry.operation.path)
        let subscription = central.subscriptions[path]
        subscription?.readStarted()
        call(path, BlueZ.characteristic, entry, { $0.readValue(completion: $1) }) { [weak self] result in
            guard let self else { return }
            // It may have ended with the change of its service.
            let current = subscription.flatMap { $0.isCurrent ? $0 : nil }
            switch Self.bytes(result) {
            case .success(let bytes):
                current?.readReplied(bytes)
                operation.answer(.value(Data(bytes), of: characteristic))
            case .failure(let failure):
                current?.readReplied(nil)
                operation.fail(error(failure, .attributeRead))
            }
        }
    }

    private func readDescriptor(_ descriptor: AttributeID, _ entry: Entry) {
        let operation = entry.operation
        call(operation.path, BlueZ.descriptor, entry, { $0.readValue(completion: $1) }) {
            [weak self] result in
            guard let self else { return }
            switch Self.bytes(result) {
            case .success(let bytes): operation.answer(.descriptorValue(Data(bytes), of: descriptor))
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
            operation.answer(.rssi(device.lastRSSI))
        }
    }

    // MARK: Writing

    private func write(_ data: [UInt8], to characteristic: AttributeID, _ entry: Entry) {
        let operation = entry.operation
        guard data.count <= 512 else {
            operation.fail(CBATTError(.invalidAttributeValueLength))
            return finish(entry.id)
        }
        let path = operation.path
        releaseWriter(of: path)
        call(
            path, BlueZ.characteristic, entry, { $0.writeValue(data, type: "request", completion: $1) }
        ) { [weak self] result in
            guard let self else { return }
            if let failure = result.failure { return operation.fail(error(failure, .attributeWrite)) }
            operation.answer(.written(characteristic))
        }
    }

    private func writeDescriptor(_ data: [UInt8], _ descriptor: AttributeID, _ entry: Entry) {
        let operation = entry.operation
        call(
            operation.path, BlueZ.descriptor, entry, { $0.writeValue(data, type: nil, completion: $1) }
        ) { [weak self] result in
            guard let self else { return }
            if let failure = result.failure { return operation.fail(error(failure, .attributeWrite)) }
            operation.answer(.descriptorWritten(descriptor))
        }
    }

    // MARK: Pairing for an operation

    /// Whether an operation that was refused so goes well after a pairing, and one may be tried.
    private func mayPair(after error: BusError) -> Bool {
        error.name == BlueZErrorName.notPermitted && error.message == BlueZErrorName.notPaired
            && !device.properties.isBonded
            && device.connection?.clients.contains { $0.request != nil && !$0.abilities.isEmpty } == true
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
    fileprivate func matching(_ wanted: [CodableUUID]?, _ uuid: (Element) -> CBUUID) -> [Element] {
        guard let wanted, !wanted.isEmpty else { return self }
        let set = Set(wanted)
        return filter { set.contains(CodableUUID(uuid($0))) }
    }
}
