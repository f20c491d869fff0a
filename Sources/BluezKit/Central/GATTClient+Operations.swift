import BluezDBus
import Foundation

/// What an operation asks of BlueZ, or of the table.
extension GATTClient {
    func perform(_ entry: Entry) {
        let operation = entry.operation
        let (core, path, version) = (operation.core, operation.path, operation.place?.version)
        switch operation.request {
        case .discoverServices(let wanted):
            let services = reader.table.visibleServices().matching(wanted, \.uuid)
            operation.answer(.services(core.found(services)))
        case .discoverIncludedServices(let wanted, let service):
            let included = reader.table.includedServices(of: path).matching(wanted, \.uuid)
            operation.answer(.includedServices(core.found(included), of: service))
        case .discoverCharacteristics(let wanted, let service):
            let found = reader.table.characteristics(of: path, isBonded: device.properties.isBonded)
                .matching(wanted, \.uuid)
            operation.answer(.characteristics(core.found(found, version: version), of: service))
        case .discoverDescriptors(let characteristic):
            let found = reader.table.descriptors(of: path)
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
        call(path, BlueZ.characteristic, entry, bytes: 512, { $0.readValue(completion: $1) }) { [weak self] result in
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
        call(operation.path, BlueZ.descriptor, entry, bytes: 512, { $0.readValue(completion: $1) }) {
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
            path, BlueZ.characteristic, entry, bytes: data.count,
            { $0.writeValue(data, type: "request", completion: $1) }
        ) { [weak self] result in
            guard let self else { return }
            if let failure = result.failure { return operation.fail(error(failure, .attributeWrite)) }
            operation.answer(.written(characteristic))
        }
    }

    private func writeDescriptor(_ data: [UInt8], _ descriptor: AttributeID, _ entry: Entry) {
        let operation = entry.operation
        call(
            operation.path, BlueZ.descriptor, entry, bytes: data.count,
            { $0.writeValue(data, type: nil, completion: $1) }
        ) { [weak self] result in
            guard let self else { return }
            if let failure = result.failure { return operation.fail(error(failure, .attributeWrite)) }
            operation.answer(.descriptorWritten(descriptor))
        }
    }

    // MARK: Pairing for an operation

    /// Whether an operation that was refused so goes well after a pairing, and one may be tried.
    func mayPair(after error: BusError) -> Bool {
        error.name == BlueZErrorName.notPermitted && error.message == BlueZErrorName.notPaired
            && !device.properties.isBonded
            && device.connection?.clients.contains { $0.request != nil && !$0.abilities.isEmpty } == true
    }

    /// Pairs. Not with a device that is bonded: BlueZ before 5.79 would look for it on BR/EDR.
    func pair(completion: @escaping (_ isPaired: Bool) -> Void) {
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
}

extension Array {
    /// GD-2: a list restricts; none, or an empty one, does not.
    fileprivate func matching(_ wanted: [CodableUUID]?, _ uuid: (Element) -> CBUUID) -> [Element] {
        guard let wanted, !wanted.isEmpty else { return self }
        let set = Set(wanted)
        return filter { set.contains(CodableUUID(uuid($0))) }
    }
}
