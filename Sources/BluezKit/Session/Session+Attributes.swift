import DBus
import Foundation

/// The attribute table of a connected device, and what apps do with it: one operation after the other (RW-1).
extension Session {
    // MARK: The table

    /// `ServicesResolved` is true: BlueZ has announced all attributes that it did not have before.
    func resolved(_ device: Device, _ link: Link) {
        guard link.machine.phase == .up, link.unreadObjects.isEmpty, !link.isDiscovered else { return }
        guard link.tree.mtuBytes != nil || !link.mayAskMTU else { return askMTU(of: device, link) }
        link.isDiscovered = true
        publishMTU(of: device, link)
        reconcile(device, link)
        if let running = link.queue.running, link.answerRunning == nil,
            link.isAdopted || running.operation.waitsForServices
        {
            execute(running, device, link)
        }
    }

    /// BlueZ announces the ATT_MTU with new attributes only: on a second link it must be asked. Old daemons do not know.
    private func askMTU(of device: Device, _ link: Link) {
        link.mayAskMTU = false
        guard let bus, let characteristic = link.tree.characteristics.first?.value else {
            // BlueZ signals objects in the order in which they changed first, so that the services can come after
            // `ServicesResolved`; but not after its next answer.
            return readChildren(of: device.path, device, link)
        }
        let epoch = link.epoch
        let proxy = BlueZProxy(bus: bus, path: characteristic.path, interface: BlueZ.characteristic)
        proxy.get("MTU") { [weak self, weak device] result in
            guard let self, let device, let link = device.link, link.epoch == epoch else { return }
            var reader = (try? result.get())?.reader
            let mtu = try? reader?.readVariant { (value) throws(BusError) in try value.readUInt16() }
            link.tree.setMTU(mtu.map(Int.init))
            resolved(device, link)
        }
    }

    /// Reads attributes that were there before us, level by level: names of children from the introspection data,
    /// properties by GetAll. What BlueZ adds or removes meanwhile it announces, in order with the answers.
    func readUnreadObjects(_ device: Device, _ link: Link) {
        guard let bus else { return }
        let epoch = link.epoch
        while let text = link.unreadObjects.next() {
            guard let path = ObjectPath(text), let interface = AttributeTree.interface(of: path) else {
                _ = link.unreadObjects.finish(text)
                continue
            }
            if interface != BlueZ.descriptor { readChildren(of: path, device, link) }
            if link.tree.has(text) {
                // It was read before, or has been announced meanwhile.
                _ = link.unreadObjects.finish(text)
                continue
            }
            blueZ.insist {
                BlueZProxy(bus: bus, path: path, interface: interface).getAll(completion: $0)
            } answered: {
                [weak self, weak device, weak link] result in
                guard let self, let device, let link, device.link === link, link.epoch == epoch else { return }
                _ = link.unreadObjects.finish(text)
                note(result.failure, reading: path, link)
                if case .success(let reply) = result {
                    var reader = reply.reader
                    do throws(BusError) {
                        _ = try link.tree.add(path, properties: &reader, uuids: &uuids)
                    } catch { Log.warning("\(path): \(error.message)") }
                }
                goOnReading(device, link)
            }
        }
    }

    /// What is below a device or an attribute is added to what must be read.
    func readChildren(of path: ObjectPath, _ device: Device, _ link: Link) {
        guard let bus else { return }
        let epoch = link.epoch
        link.unreadObjects.questionAsked()
        blueZ.insist {
            BlueZProxy.children(of: path, on: bus, completion: $0)
        } answered: {
            [weak self, weak device, weak link] result in
            guard let self, let device, let link, device.link === link, link.epoch == epoch else { return }
            link.unreadObjects.questionAnswered()
            note(result.failure, reading: path, link)
            for child in (try? result.get()) ?? [] where path != device.path || child.hasPrefix("service") {
                link.unreadObjects.add(path.rawValue + "/" + child)
            }
            if path != device.path || link.machine.phase == .up { goOnReading(device, link) }
        }
    }

    func goOnReading(_ device: Device, _ link: Link) {
        readUnreadObjects(device, link)
        if device.properties.areServicesResolved { resolved(device, link) }
    }

    /// Asks again for what BlueZ has not told. ``resolved(_:_:)`` follows, and goes on with the discovery that runs.
    private func readAgain(_ device: Device, _ link: Link) {
        (link.isDiscovered, link.isFlawTold, link.tree.flaw) = (false, false, nil)
        readChildren(of: device.path, device, link)
    }

    private func note(_ failure: BusError?, reading path: ObjectPath, _ link: Link) {
        guard let failure, BlueZErrorName.meansNoAnswer(failure) else { return }
        Log.warning("the attributes of \(path) cannot be read: \(failure.message) (\(failure.name))")
        link.tree.flaw = failure
    }

    /// PropertiesChanged of an attribute that nobody is subscribed to.
    func receiveAttributeChange(
        _ message: Message, _ path: UnsafePointer<CChar>, _ link: Link
    ) throws(BusError) {
        var reader = message.reader
        let interface = try reader.readCString()
        guard interface.matches("org.bluez.GattCharacteristic1") || interface.matches("org.bluez.GattService1") else {
            return
        }
        try link.tree.change(String(cString: path), &reader, uuids: &uuids)
        if let device = devicesByPath.find(path, BlueZ.devicePathLength(path) ?? 0) { publishMTU(of: device, link) }
    }

    func publishMTU(of device: Device, _ link: Link) {
        guard let mtu = link.tree.mtuBytes else { return }
        for core in device.clients where core.isUp { core.peripheral?.mtuBytes = mtu }
    }

    /// A service has come, gone or changed while the link was up (IV-1): told once, when the changes have ended.
    func tableChanged(_ service: String, of device: Device, _ link: Link) {
        guard link.isDiscovered else { return }
        link.changedServices.insert(service)
        guard !link.isChangeReportDue else { return }
        link.isChangeReportDue = true
        let epoch = link.epoch
        blueZ.after(blueZ.timing.tableChange) { [weak self, weak device, weak link] in
            guard let self, let device, let link, device.link === link, link.epoch == epoch else { return }
            reportChangedServices(of: device, link)
        }
    }

    func reportChangedServices(of device: Device, _ link: Link) {
        let changed = link.tree.versions(of: link.changedServices)
        (link.changedServices, link.isChangeReportDue) = ([], false)
        if let lost = link.lostOperation, link.queue.running?.id == lost {
            link.answerRunning?(.failure(BlueZErrorName.gone))
        }
        endSubscriptions(of: device, in: changed)
        for core in device.clients where core.isUp {
            core.post { peripheral, delegate in
                let invalidated = peripheral.invalidate(services: changed)
                delegate?.peripheral(peripheral, didModifyServices: invalidated)
            }
        }
    }

    // MARK: Operations

    /// An operation of an app, in the order of its calls.
    func perform(_ kind: AttributeOperation.Kind, for core: PeripheralCore, link token: UInt64) {
        guard core.isUp, core.wish?.link == token, let device = core.device, let link = device.link else {
            // The link has ended meanwhile: no answer (CN-10).
            if case .writeWithoutResponse = kind { core.peripheral?.commandDone(link: token) }
            return
        }
        let operation = AttributeOperation(core: core, link: token, kind: kind)
        if let entry = link.queue.add(operation) { execute(entry, device, link) }
    }

    /// The running operation is over: on with the next.
    func finish(_ id: Int, _ device: Device, _ link: Link) {
        guard link.queue.running?.id == id else { return }
        link.answerRunning = nil
        if let next = link.queue.finish(id) { execute(next, device, link) }
    }

    /// An object of BlueZ has gone, with all below it. BlueZ answers nothing that is under way for that, not even with an
    /// error. It ends when the change is told (IV-3): it may show by then that the link has ended, and all of it.
    func noteEnd(of path: ObjectPath, _ link: Link) {
        guard let running = link.queue.running, let attribute = running.operation.attribute?.objectPath,
            attribute == path.rawValue || attribute.hasPrefix(path.rawValue + "/")
        else { return }
        link.lostOperation = running.id
    }

    /// Begins an operation. Many are over at once, and so is then the next one: they follow each other in a loop, not
    /// inside each other.
    func execute(_ entry: AttributeQueue<AttributeOperation>.Entry, _ device: Device, _ link: Link) {
        link.nextEntry = entry
        guard !link.isExecuting else { return }
        link.isExecuting = true
        defer { link.isExecuting = false }
        while let entry = link.nextEntry {
            link.nextEntry = nil
            if link.queue.running?.id == entry.id { begin(entry, device, link) }
        }
    }

    private func begin(_ entry: AttributeQueue<AttributeOperation>.Entry, _ device: Device, _ link: Link) {
        let operation = entry.operation
        // BlueZ resolves the whole table by itself; who comes earlier waits (GD-13).
        if !link.isDiscovered, operation.waitsForServices || link.isAdopted { return }
        // Sockets and calls reach BlueZ on different ways; what was written first must be there first (O-27).
        guard link.isDrained(before: operation) else { return awaitDrained(entry, device, link) }
        if operation.waitsForServices, link.isFlawTold { return readAgain(device, link) }
        if isStale(operation, link) {
            let end: (Result<Message, BusError>) -> Void = { [weak self, weak device, weak link] _ in
                guard let self, let device, let link else { return }
                // Of what was restored `didModifyServices` tells: nobody has asked.
                if case .resubscribe = operation.kind {} else { fail(operation, staleAttribute) }
                finish(entry.id, device, link)
            }
            guard link.isChangeReportDue else { return end(.failure(BlueZErrorName.gone)) }
            // As with what goes during an operation (`noteEnd`).
            (link.answerRunning, link.lostOperation) = (end, entry.id)
            return
        }
        if operation.waitsForServices, let flaw = link.tree.flaw {
            // What is too large stays so.
            if case .limit = flaw {} else { link.isFlawTold = true }
            fail(operation, error(flaw, .attributeRead, device))
            return finish(entry.id, device, link)
        }
        switch operation.kind {
        case .discoverServices(let wanted):
            let services = link.tree.visibleServices().matching(wanted, \.uuid)
            operation.answer { peripheral, delegate in
                peripheral.reveal(services: services)
                delegate?.peripheral(peripheral, didDiscoverServices: nil)
            }
        case .discoverIncludedServices(let wanted, let service):
            let included = link.tree.includedServices(of: service.objectPath).matching(wanted, \.uuid)
            operation.answer { peripheral, delegate in
                peripheral.reveal(includedServices: included, of: service)
                delegate?.peripheral(peripheral, didDiscoverIncludedServicesFor: service, error: nil)
            }
        case .discoverCharacteristics(let wanted, let service):
            let found = link.tree.characteristics(of: service.objectPath, isBonded: device.properties.isBonded)
                .matching(wanted, \.uuid)
            operation.answer { peripheral, delegate in
                peripheral.reveal(characteristics: found, of: service)
                delegate?.peripheral(peripheral, didDiscoverCharacteristicsFor: service, error: nil)
            }
        case .discoverDescriptors(let characteristic):
            let found = link.tree.descriptors(of: characteristic.objectPath)
            operation.answer { peripheral, delegate in
                peripheral.reveal(descriptors: found, of: characteristic)
                delegate?.peripheral(peripheral, didDiscoverDescriptorsFor: characteristic, error: nil)
            }
        case .read(let characteristic): return read(characteristic, entry, device)
        case .readDescriptor(let descriptor): return read(descriptor, entry, device)
        case .write(let data, let characteristic): return write(data, to: characteristic, entry, device)
        case .writeDescriptor(let data, let descriptor): return write(data, to: descriptor, entry, device)
        case .setNotify(let enabled, let characteristic): return setNotify(enabled, characteristic, entry, device, link)
        case .resubscribe(let characteristic): return resubscribe(characteristic, entry, device, link)
        case .writeWithoutResponse(let data, let characteristic):
            return writeWithoutResponse(data, to: characteristic, entry, device, link)
        case .readRSSI: return readRSSI(entry, device)
        }
        finish(entry.id, device, link)
    }

    /// Whether another attribute may have got its place in the table (IV-1).
    private func isStale(_ operation: AttributeOperation, _ link: Link) -> Bool {
        guard let attribute = operation.attribute else { return false }
        let service = AttributeTree.service(of: attribute.objectPath)
        let version = attribute.version ?? operation.core.restoredVersions[service]
        return version != link.tree.version(of: service)
    }

    /// Answers an operation with an error.
    func fail(_ operation: AttributeOperation, _ error: any Error) {
        switch operation.kind {
        case .discoverServices: operation.answer { $1?.peripheral($0, didDiscoverServices: error) }
        case .discoverIncludedServices(_, let service):
            operation.answer { $1?.peripheral($0, didDiscoverIncludedServicesFor: service, error: error) }
        case .discoverCharacteristics(_, let service):
            operation.answer { $1?.peripheral($0, didDiscoverCharacteristicsFor: service, error: error) }
        case .discoverDescriptors(let characteristic):
            operation.answer { $1?.peripheral($0, didDiscoverDescriptorsFor: characteristic, error: error) }
        case .read(let characteristic):
            operation.answer { $1?.peripheral($0, didUpdateValueFor: characteristic, error: error) }
        case .readDescriptor(let descriptor):
            operation.answer { $1?.peripheral($0, didUpdateValueFor: descriptor, error: error) }
        case .write(_, let characteristic):
            operation.answer { $1?.peripheral($0, didWriteValueFor: characteristic, error: error) }
        case .writeDescriptor(_, let descriptor):
            operation.answer { $1?.peripheral($0, didWriteValueFor: descriptor, error: error) }
        case .writeWithoutResponse(_, let characteristic):
            let path = characteristic.objectPath
            Log.warning(from: path, "dropped a write without response: \(error.localizedDescription)")
            operation.core.peripheral?.commandDone(link: operation.link)
        case .setNotify(_, let characteristic), .resubscribe(let characteristic):
            operation.answer { peripheral, delegate in
                peripheral.noteSubscription(false, to: characteristic)
                characteristic.setNotifying(false)
                delegate?.peripheral(peripheral, didUpdateNotificationStateFor: characteristic, error: error)
            }
        case .readRSSI: break  // asks for nothing that can fail so
        }
    }

    var staleAttribute: any Error { CBError(.invalidHandle) }

    /// Makes a call for the running operation. `answer` gets the result if the link is still the same one; then the
    /// next operation runs.
    func call(
        _ path: String, _ interface: String, _ entry: AttributeQueue<AttributeOperation>.Entry, _ device: Device,
        _ make: @escaping (BlueZProxy, @escaping BlueZProxy.Completion) -> Void,
        answer: @escaping (Result<Message, BusError>) -> Void
    ) {
        guard let bus, let path = ObjectPath(path), let link = device.link else { return }
        let proxy = BlueZProxy(bus: bus, path: path, interface: interface)
        let id = entry.id
        link.answerRunning = { [weak self, weak device, weak link] result in
            guard let self, let device, let link else { return }
            answer(result)
            finish(id, device, link)
        }
        attempt(id, proxy, device, link, make: make)
    }

    /// What BlueZ never answers keeps nothing of the app: the link has the answer, and the call the operation's number.
    private func attempt(
        _ id: Int, _ proxy: BlueZProxy, _ device: Device, _ link: Link, attemptsLeft: Int = 8,
        make: @escaping (BlueZProxy, @escaping BlueZProxy.Completion) -> Void
    ) {
        make(proxy) { [weak self, weak device, weak link] result in
            guard let self, let device, let link, link.isRunning(id) else { return }
            if let error = result.failure, BlueZErrorName.meansAcquired(error), attemptsLeft > 0 {
                // BlueZ notices some moments later that we have closed a socket; until then it refuses other writes.
                blueZ.after(.milliseconds(5 << (8 - attemptsLeft))) { [weak self, weak device, weak link] in
                    guard let device, let link, link.isRunning(id) else { return }
                    self?.attempt(id, proxy, device, link, attemptsLeft: attemptsLeft - 1, make: make)
                }
            } else if let error = result.failure, mayPair(after: error, with: device) {
                // CN-14: the app sees only what comes of the second attempt.
                let answered: BlueZProxy.Completion = { [weak link] result in
                    if let link, link.isRunning(id) { link.answerRunning?(result) }
                }
                pair(device, link) { [weak link] isPaired in
                    isPaired && link?.isRunning(id) == true ? make(proxy, answered) : answered(result)
                }
            } else {
                link.answerRunning?(result)
            }
        }
    }

    func error(_ error: BusError, _ context: BlueZErrorContext, _ device: Device) -> any Error {
        if BlueZErrorName.meansUnknownObject(error.name) { return staleAttribute }
        return coreBluetoothError(
            name: error.name, message: error.message, context: context, isBonded: device.properties.isBonded)
    }

    // MARK: Reading

    private func read(
        _ characteristic: CBCharacteristic, _ entry: AttributeQueue<AttributeOperation>.Entry, _ device: Device
    ) {
        let path = characteristic.objectPath
        let operation = entry.operation
        let subscription = subscriptions[path]
        subscription?.machine.readStarted()
        call(path, BlueZ.characteristic, entry, device, { $0.readValue(completion: $1) }) { [weak self] result in
            guard let self else { return }
            // It may have ended with the change of its service.
            let subscription = subscription.flatMap { subscriptions[path] === $0 ? $0 : nil }
            switch Self.bytes(result) {
            case .success(let bytes):
                if let subscription { apply(subscription.machine.readReplied(bytes), to: subscription) }
                let value = Data(bytes)
                operation.answer { peripheral, delegate in
                    characteristic.setValue(value)
                    delegate?.peripheral(peripheral, didUpdateValueFor: characteristic, error: nil)
                }
            case .failure(let failure):
                if let subscription { apply(subscription.machine.readReplied(nil), to: subscription) }
                fail(operation, error(failure, .attributeRead, device))
            }
        }
    }

    private func read(
        _ descriptor: CBDescriptor, _ entry: AttributeQueue<AttributeOperation>.Entry, _ device: Device
    ) {
        let operation = entry.operation
        call(descriptor.objectPath, BlueZ.descriptor, entry, device, { $0.readValue(completion: $1) }) {
            [weak self] result in
            guard let self else { return }
            switch Self.bytes(result) {
            case .success(let bytes):
                let value = Data(bytes)
                operation.answer { peripheral, delegate in
                    descriptor.setValue(value)
                    delegate?.peripheral(peripheral, didUpdateValueFor: descriptor, error: nil)
                }
            case .failure(let failure): fail(operation, error(failure, .attributeRead, device))
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
    private func readRSSI(_ entry: AttributeQueue<AttributeOperation>.Entry, _ device: Device) {
        let operation = entry.operation
        call(device.path.rawValue, BlueZ.device, entry, device, { $0.get("RSSI", completion: $1) }) { result in
            if case .success(let reply) = result, var reader = Optional(reply.reader),
                let rssi = try? reader.readVariant({ (value) throws(BusError) in try value.readInt16() })
            {
                device.lastRSSI = rssi
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
        _ data: [UInt8], to characteristic: CBCharacteristic, _ entry: AttributeQueue<AttributeOperation>.Entry,
        _ device: Device
    ) {
        let operation = entry.operation
        guard data.count <= 512 else {
            fail(operation, CBATTError(.invalidAttributeValueLength))
            if let link = device.link { finish(entry.id, device, link) }
            return
        }
        let path = characteristic.objectPath
        device.link?.releaseWriter(of: path)
        call(
            path, BlueZ.characteristic, entry, device, { $0.writeValue(data, type: "request", completion: $1) }
        ) { [weak self] result in
            guard let self else { return }
            if let failure = result.failure { return fail(operation, error(failure, .attributeWrite, device)) }
            operation.answer { $1?.peripheral($0, didWriteValueFor: characteristic, error: nil) }
        }
    }

    private func write(
        _ data: [UInt8], to descriptor: CBDescriptor, _ entry: AttributeQueue<AttributeOperation>.Entry,
        _ device: Device
    ) {
        let operation = entry.operation
        call(
            descriptor.objectPath, BlueZ.descriptor, entry, device, { $0.writeValue(data, type: nil, completion: $1) }
        ) { [weak self] result in
            guard let self else { return }
            if let failure = result.failure { return fail(operation, error(failure, .attributeWrite, device)) }
            operation.answer { $1?.peripheral($0, didWriteValueFor: descriptor, error: nil) }
        }
    }
}

extension Result {
    var failure: Failure? { if case .failure(let failure) = self { failure } else { nil } }
}

extension AttributeOperation {
    fileprivate var waitsForServices: Bool {
        switch kind {
        case .discoverServices, .discoverIncludedServices, .discoverCharacteristics, .discoverDescriptors: true
        default: false
        }
    }
}

extension Array {
    /// GD-2: a list restricts; none, or an empty one, does not.
    fileprivate func matching(_ wanted: [CBUUID]?, _ uuid: (Element) -> CBUUID) -> [Element] {
        guard let wanted, !wanted.isEmpty else { return self }
        let set = Set(wanted)
        return filter { set.contains(uuid($0)) }
    }
}
