import BluezDBus

/// Reads the attribute table of one link, follows what BlueZ announces of it, and tells the apps what has changed.
/// Lives as long as the link's ``GATTClient``. Confined to the bus queue.
final class TableReader: CustomStringConvertible {
    private let device: Device
    private let central: CentralRole
    private(set) var table = AttributeTable()
    /// Attributes that BlueZ had before we looked: they are not announced, so they are read.
    private var unreadObjects = PathQueue(limit: 8)
    private var mtu = MTU()
    /// Whether `ServicesResolved` is true and ``table`` complete.
    private(set) var isDiscovered = false
    /// Whether it was before: then changes are reported, also while it is read again.
    private var wasDiscovered = false
    private var firstServices = FirstServices.notAwaited
    /// Whether an app was told why ``table`` is not complete: the next service discovery asks again.
    private(set) var didReportReadError = false
    /// Whether the link was there before this process: attributes may be in use before ``table`` is complete.
    private(set) var isAdopted = false
    /// Services that have changed since the app was told last, and whether a report is due.
    private(set) var changedServices: Set<String> = []
    private(set) var isChangeReportDue = false

    /// What is known of the ATT_MTU, besides ``table``.
    private struct MTU {
        /// What the apps know.
        var published: Int?
        /// What waits until it is known, or until it turns out that BlueZ does not tell it.
        var waiting: [() -> Void] = []
        /// Whether it may still be asked for.
        var mayAsk = true
    }

    /// Services that `ServicesResolved` says nothing of.
    private enum FirstServices { case notAwaited, awaited, announced }

    init(of device: Device, in central: CentralRole) { (self.device, self.central) = (device, central) }

    var description: String { "discovered \(isDiscovered), table complete \(unreadObjects.isEmpty)" }

    private var bus: BlueZBus { central.bus }
    private var uuids: UUIDPool { central.store.uuids }
    private var clients: [PeripheralCore] { device.connection?.clients ?? [] }

    /// Whose table it is; nil: its link, or the attempt, has ended.
    private var client: GATTClient? {
        guard let client = device.connection?.client, client.reader === self else { return nil }
        return client
    }

    private var isCurrent: Bool { client != nil }
    private var isUp: Bool { isCurrent && device.connection?.isUp == true }

    /// The link has ended.
    func end() { mtu.waiting = [] }

    // MARK: What BlueZ announces

    /// BlueZ's object of the device is gone.
    func forget() { table = AttributeTable() }

    /// BlueZ has added an interface to an object below the device.
    func added(_ path: ObjectPath, _ interfaces: inout MessageReader) throws(BusError) {
        guard let service = try table.add(path, &interfaces, uuids: uuids) else { return }
        tableChanged(service)
        guard firstServices == .awaited, unreadObjects.isEmpty else { return }
        // BlueZ announces all of them in one go, and before its next answer.
        firstServices = .announced
        readChildren(of: device.path)
    }

    /// BlueZ has removed an interface of an object below the device.
    func removed(_ path: ObjectPath) {
        guard let gone = table.remove(path) else { return }
        client?.attributesRemoved(at: path, characteristics: gone.characteristics)
        tableChanged(gone.service)
    }

    /// PropertiesChanged of an attribute without a subscription.
    func receiveChange(_ message: Message, of path: UnsafePointer<CChar>) throws(BusError) {
        var reader = message.reader
        let interface = try reader.readCString()
        guard interface.matches("org.bluez.GattCharacteristic1") || interface.matches("org.bluez.GattService1") else {
            return
        }
        try table.change(String(cString: path), &reader, uuids: uuids)
        publishMTU()
    }

    /// The link is up. What was reported before it was resolved is of another link, or of the moment before the
    /// exchange.
    func linkUp() {
        guard !device.properties.areServicesResolved else { return }
        table.forgetMTU()
        guard device.properties.hasClass else { return }
        // Classic Bluetooth may have ended beside this link before it was ours, and `ServicesResolved` with it, for
        // good.
        bus.after(bus.timing.gatt.firstServices) { [weak self] in
            guard let self, isUp, !device.properties.areServicesResolved, !table.services.isEmpty,
                central.store.links.bearers(of: device.properties).contains(.le)
            else { return }
            device.markResolved()
            servicesResolved()
        }
    }

    /// `ServicesResolved` is true: BlueZ has announced all attributes that it did not have before.
    func servicesResolved() {
        guard isUp, unreadObjects.isEmpty, !isDiscovered else { return }
        guard table.mtuBytes != nil || !mtu.mayAsk else { return askMTU() }
        if table.services.isEmpty, awaitsServices() { return }
        if let refusal, clients.contains(where: { $0.postponeComparison() }) { return compareLater(refusal) }
        (isDiscovered, wasDiscovered) = (true, true)
        mtuKnown()
        publishMTU()
        reconcile()
        client?.tableComplete()
    }

    /// Whether `ServicesResolved` may be about classic Bluetooth: it does not change then when the services of LE are
    /// known, and BlueZ does not tell whether there are any.
    private func awaitsServices() -> Bool {
        if firstServices == .notAwaited, central.store.links.bearers(of: device.properties).contains(.classic) {
            firstServices = .awaited
            mtuKnown()
            bus.after(bus.timing.gatt.firstServices) { [weak self] in
                guard let self, firstServices == .awaited else { return }
                firstServices = .announced
                servicesResolved()
            }
        }
        return firstServices == .awaited
    }

    // MARK: Reading

    /// Begins to read what BlueZ has of the table already.
    func read() {
        forget()
        readChildren(of: device.path)
    }

    /// Reads attributes that were there before us, level by level: names of children from the introspection data,
    /// properties by GetAll. What BlueZ adds or removes meanwhile it announces, in order with the answers.
    func readUnreadObjects() {
        guard bus.connection != nil else { return }
        while let text = unreadObjects.next() {
            guard let path = ObjectPath(text), let interface = AttributeTable.interface(of: path) else {
                _ = unreadObjects.finish(text)
                continue
            }
            if interface != BlueZ.descriptor { readChildren(of: path) }
            if table.has(text) {
                // It was read before, or has been announced meanwhile.
                _ = unreadObjects.finish(text)
                continue
            }
            central.unanswered.ask(about: device, path, interface, { $0.getAll(completion: $1) }) {
                [weak self] result in
                guard let self, isCurrent else { return }
                _ = unreadObjects.finish(text)
                report(result.failure, reading: path)
                if case .success(let reply) = result {
                    var reader = reply.reader
                    do throws(BusError) {
                        _ = try table.add(path, properties: &reader, uuids: uuids)
                    } catch { Log.warning("\(path): \(error.message)") }
                    // Before `ServicesResolved` the MTU may not have been exchanged: it is asked for then.
                    if !device.properties.areServicesResolved { table.forgetMTU() }
                    if table.mtuBytes != nil { mtuKnown() }
                }
                continueReading()
            }
        }
    }

    /// What is below a device or an attribute is added to what must be read.
    func readChildren(of path: ObjectPath) {
        guard bus.connection != nil else { return }
        unreadObjects.questionAsked()
        central.unanswered.ask(about: device, path, BlueZ.device, { $0.children(completion: $1) }) {
            [weak self] result in
            guard let self, isCurrent else { return }
            unreadObjects.questionAnswered()
            report(result.failure, reading: path)
            for child in (try? result.get()) ?? [] where path != device.path || child.hasPrefix("service") {
                unreadObjects.add(path.rawValue + "/" + child)
            }
            if path != device.path || isUp { continueReading() }
        }
    }

    func continueReading() {
        readUnreadObjects()
        if device.properties.areServicesResolved { servicesResolved() }
    }

    /// Asks again for what BlueZ has not told. ``servicesResolved()`` follows.
    func readAgain() {
        (isDiscovered, didReportReadError, table.readError) = (false, false, nil)
        readChildren(of: device.path)
    }

    private func report(_ failure: BusError?, reading path: ObjectPath) {
        guard let failure, BlueZErrorName.meansNoAnswer(failure) else { return }
        Log.warning("the attributes of \(path) cannot be read: \(failure.message) (\(failure.name))")
        table.readError = failure
    }

    /// For an operation that needs the whole table: why it is not complete. The next one has it read again.
    func takeReadError() -> BusError? {
        guard let error = table.readError else { return nil }
        if case .limit = error {} else { didReportReadError = true }  // what is too large stays so
        return error
    }

    // MARK: The ATT_MTU

    /// BlueZ announces the ATT_MTU with new attributes only: on a second link it must be asked. Old daemons do not
    /// know.
    private func askMTU() {
        mtu.mayAsk = false
        guard let characteristic = table.characteristics.first?.value else {
            // BlueZ signals objects in the order in which they changed first, so that the services can come after
            // `ServicesResolved`; but not after its next answer.
            return readChildren(of: device.path)
        }
        unreadObjects.questionAsked()  // nothing is resolved before its answer, however often BlueZ says so
        central.unanswered.ask(about: device, characteristic.path, BlueZ.characteristic) {
            $0.get("MTU", completion: $1)
        } answered: { [weak self] result in
            guard let self, isCurrent else { return }
            unreadObjects.questionAnswered()
            var reader = (try? result.get())?.reader
            let answer = try? reader?.readVariant { (value) throws(BusError) in try value.readUInt16() }
            table.setMTU(answer.map(Int.init))
            // Another one knows it too, if this one has gone meanwhile.
            mtu.mayAsk = answer == nil && table.characteristics[characteristic.path.rawValue] == nil
            servicesResolved()
        }
    }

    /// Does `body` when the ATT_MTU is known; at once if BlueZ has not resolved the link, so that it cannot tell it
    /// yet.
    func awaitMTU(_ body: @escaping () -> Void) {
        guard device.properties.areServicesResolved, table.mtuBytes == nil, !isDiscovered else { return body() }
        mtu.waiting.append(body)
        guard mtu.waiting.count == 1 else { return }
        bus.after(bus.timing.gatt.mtu) { [weak self] in self?.mtuKnown() }
    }

    private func mtuKnown() {
        let waiting = mtu.waiting
        mtu.waiting = []
        for body in waiting { body() }
    }

    /// Tells the apps that are connected. Those that come later learn it with `didConnect`.
    private func publishMTU() {
        guard let bytes = table.mtuBytes, bytes != mtu.published else { return }
        mtu.published = bytes
        client?.updateWriters(mtuBytes: bytes)
        for core in clients where core.isUp { core.updateMTU(bytes) }
    }

    /// BlueZ tells the MTU with a socket, too.
    func updateMTU(_ mtuBytes: Int) {
        table.setMTU(mtuBytes)
        publishMTU()
    }

    // MARK: Changes

    /// A service has come, gone or changed while the link was up (IV-1): told once, when the changes have ended.
    private func tableChanged(_ service: String) {
        guard wasDiscovered else { return }
        changedServices.insert(service)
        guard !isChangeReportDue else { return }
        isChangeReportDue = true
        bus.after(bus.timing.gatt.tableChange) { [weak self] in
            guard let self, isCurrent else { return }
            reportChangedServices()
        }
    }

    func reportChangedServices() {
        let changed = table.versions(of: changedServices)
        (changedServices, isChangeReportDue) = ([], false)
        client?.servicesChanged(changed)
        for core in clients where core.isUp { core.servicesChanged(changed) }
    }

    // MARK: What an earlier process knew

    /// The link was there before this process: attributes are in use before the table is read.
    func adopt(for core: PeripheralCore) {
        if let bytes = table.mtuBytes, device.properties.areServicesResolved { core.updateMTU(bytes) }
        if isDiscovered, refusal == nil { return reconcile() }
        isAdopted = true
        if isDiscovered { readAgain() }
    }

    /// Why the table may lack what BlueZ would tell another time. What is too large stays so.
    private var refusal: BusError? { if case .limit? = table.readError { nil } else { table.readError } }

    /// What could not be read has not gone: the table is read again before it is compared with what an earlier process
    /// knew.
    private func compareLater(_ refusal: BusError) {
        readAgain()
        client?.failServiceDiscovery(refusal)
    }

    /// Compares what an earlier process knew with the table, and reports what has changed.
    private func reconcile() {
        for core in clients {
            // What has changed on this link and is not reported yet may look as before.
            let changed = core.reconcile { service in
                changedServices.contains(service) ? nil : (table.layout(of: service), table.version(of: service))
            }
            if !changed.isEmpty { core.servicesChanged(table.versions(of: changed)) }
        }
    }
}
