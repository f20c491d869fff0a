import BluezDBus
import Foundation

/// The attribute table of a connected device, and what apps do with it: one operation after the other (RW-1). Lives as
/// long as its link, or the attempt to make it: what BlueZ answers later finds it gone. Confined to the bus queue.
final class GATTClient: CustomStringConvertible {
    let device: Device
    let central: CentralRole
    var table = AttributeTable()
    var queue = AttributeQueue<AttributeOperation>()
    /// The operation that begins next, and whether one is beginning: see `execute`.
    var nextEntry: AttributeQueue<AttributeOperation>.Entry?
    var isExecuting = false
    /// For writes without response.
    var writers = CommandSockets()
    /// Characteristics whose notifications come by signals, as BlueZ gives no socket.
    var withoutNotifySocket: Set<String> = []
    /// Attributes that BlueZ had before we looked: they are not announced, so they are read.
    private var unreadObjects = PathQueue(limit: 8)
    private var mtu = MTU()
    /// Whether `ServicesResolved` is true and ``tree`` complete.
    var isDiscovered = false
    /// Whether an app was told why ``tree`` is not complete: the next discovery asks again.
    var didReportReadError = false
    /// Whether it was there before this process: attributes may be in use before ``tree`` is complete.
    var isAdopted = false
    /// Services that have changed since the app was told last, and whether a report is due.
    private(set) var changedServices: Set<String> = []
    var isChangeReportDue = false
    /// Answers the running operation, also in BlueZ's place; nil: BlueZ is not asked anything for it.
    var answerRunning: ((Result<Message, BusError>) -> Void)?
    /// The operation that ran when its attribute went.
    var lostOperation: Int?
    private(set) var calls = OperationCalls()
    /// Whether `Pair` is on its way.
    var isPairing = false
    private var bonding = Bonding()

    private struct Bonding {
        /// Whether the device is pairing, and BlueZ has not said yet that it is bonded.
        var isAwaited = false
        /// Answers the running operation, which has led to the pairing.
        var answer: (() -> Void)?
    }

    /// What is known of the ATT_MTU, besides ``tree``.
    private struct MTU {
        /// What the apps know.
        var published: Int?
        /// What waits until it is known, or until it turns out that BlueZ does not tell it.
        var waiting: [() -> Void] = []
        /// Whether it may still be asked for.
        var mayAsk = true
    }

    init(of device: Device, in central: CentralRole) {
        (self.device, self.central) = (device, central)
    }

    var description: String {
        let subscriptions = central.subscriptions.all(of: self).map(\.description)
        return (["discovered \(isDiscovered), table complete \(unreadObjects.isEmpty)"] + subscriptions)
            .joined(separator: "\n    ")
    }

    var bus: BlueZBus { central.bus }
    private var uuids: UUIDPool { central.store.uuids }
    private var clients: [PeripheralCore] { device.connection?.clients ?? [] }

    /// Whether its link, or the attempt, has not ended.
    var isCurrent: Bool { device.connection?.client === self }
    private var isUp: Bool { isCurrent && device.connection?.isUp == true }

    /// Whether the operation is still to be answered: not if the link has ended, or the attribute has gone.
    func isRunning(_ id: Int) -> Bool { queue.running?.id == id }

    /// The operation, if it is still to be answered. For what waits for BlueZ, which may never answer: until then it
    /// keeps nothing of the app.
    func running(_ id: Int) -> AttributeQueue<AttributeOperation>.Entry? { isRunning(id) ? queue.running : nil }

    // MARK: A bond

    func pairingAccepted() { bonding.isAwaited = !device.properties.isBonded }

    /// Whether the device is pairing, and BlueZ has not said yet that it is bonded.
    var awaitsBond: Bool { bonding.isAwaited }

    /// Does `body` when the bond is known that was made for the running operation. BlueZ says so after the operation's
    /// answer (``BlueZDifference/lateBonds``), and an app that has got its value expects to find the bond.
    func whenBonded(_ body: @escaping () -> Void) {
        guard bonding.isAwaited, !device.properties.isBonded else { return body() }
        bonding.answer = body
        // There may be none: bonding can be off at the peer.
        bus.after(bus.timing.pairing.bond) { [weak self] in self?.bondAnnounced() }
    }

    /// BlueZ has announced it, or there will be none.
    func bondAnnounced() {
        let answer = bonding.answer
        bonding = Bonding()
        answer?()
    }

    // MARK: Calls that BlueZ may never answer

    /// - Returns: `completion`, which notes that BlueZ has answered.
    func noting(_ completion: @escaping BlueZProxy.Completion) -> BlueZProxy.Completion {
        let call = OperationCall()
        calls.open = call
        let ordered = calls.lane?.inOrder(completion) ?? completion
        return { [weak self] result in
            call.ended(result.failure)
            if let self, calls.open === call, call.isAnswered { calls.open = nil }
            ordered(result)
        }
    }

    /// An attempt begins.
    /// - Returns: Whether there is a lane for its link.
    func takeLane() -> Bool {
        calls = OperationCalls(lane: bus.callLane())
        return calls.lane != nil
    }

    /// No link is there or attempted. A connect can wait without a limit, and would keep a connection to the bus open
    /// for nothing.
    func leaveLane() { calls.lane = nil }

    /// For a call that is no operation (``UnansweredCalls/counting(_:on:)``).
    func countedProxy(_ path: ObjectPath, _ interface: String) -> BlueZProxy? {
        guard let lane, var proxy = proxy(path, interface, on: lane) else { return nil }
        proxy.counting = central.unanswered.counting(device, on: lane)
        return proxy
    }

    /// A question about the device or its attributes, which count as above.
    func ask<Answer>(
        _ path: ObjectPath, _ interface: String,
        _ question: @escaping (BlueZProxy, @escaping (Result<Answer, BusError>) -> Void) -> Void,
        answered: @escaping (Result<Answer, BusError>) -> Void
    ) {
        let counting = { [weak self] (lane: CallLane) in
            self.map { $0.central.unanswered.counting($0.device, on: lane) }
        }
        bus.ask(path, interface, counting: counting, question, answered: answered)
    }

    /// Over which calls go; without a link, that of new ones.
    var lane: CallLane? { calls.lane ?? bus.callLane() ?? bus.firstLane }

    /// The running operation is over, whether or not BlueZ has answered.
    func abandonCall() {
        guard let call = calls.open else { return }
        calls.open = nil
        if let lostOperation, lostOperation == queue.running?.id { call.isOfRemovedAttribute = true }
        calls.abandon(call)
        central.unanswered.record(call, about: device.identity, on: calls.lane)
        if isCurrent { device.connection?.callWasLost() }
    }

    /// BlueZ answers nothing on this link any more, which is being ended: what runs gets `failure`, what waits no
    /// answer (CN-10).
    func halt(_ failure: BusError) {
        calls.isHalted = true
        answerRunning?(.failure(failure))
    }

    // MARK: The end

    /// The link has ended: nothing is answered any longer. ``endSubscriptions()`` follows.
    func end() {
        abandonCall()
        queue.removeAll()
        (answerRunning, bonding.answer, mtu.waiting) = (nil, nil, [])
        writers.closeAll()
    }

    /// A peripheral does not use the link any longer, without a callback.
    func endWork(of core: PeripheralCore) {
        queue.removeWaiting { $0.core === core }
        unsubscribeAll(of: core)
    }

    // MARK: The table

    /// BlueZ's object of the device is gone.
    func forgetTable() { table = AttributeTable() }

    /// Begins to read what BlueZ has of the table already.
    func readTable() {
        forgetTable()
        readChildren(of: device.path)
    }

    /// BlueZ has added an interface to an object below the device.
    func added(_ path: ObjectPath, _ interfaces: inout MessageReader) throws(BusError) {
        guard let service = try table.add(path, &interfaces, uuids: uuids) else { return }
        tableChanged(service)
    }

    /// BlueZ has removed an interface of an object below the device.
    func removed(_ path: ObjectPath) {
        guard let gone = table.remove(path) else { return }
        for characteristic in gone.characteristics { central.subscriptions[characteristic] = nil }
        loseOperation(on: path)
        for characteristic in gone.characteristics { releaseWriter(of: characteristic) }
        tableChanged(gone.service)
    }

    /// `ServicesResolved` is true: BlueZ has announced all attributes that it did not have before.
    func servicesResolved() {
        guard isUp, unreadObjects.isEmpty, !isDiscovered else { return }
        guard table.mtuBytes != nil || !mtu.mayAsk else { return askMTU() }
        if let refusal, clients.contains(where: { $0.postponeComparison() }) { return compareLater(refusal) }
        isDiscovered = true
        mtuKnown()
        publishMTU()
        reconcile()
        if let running = queue.running, answerRunning == nil,
            isAdopted || running.operation.request.waitsForServices
        {
            execute(running)
        }
    }

    /// BlueZ announces the ATT_MTU with new attributes only: on a second link it must be asked. Old daemons do not
    /// know.
    private func askMTU() {
        mtu.mayAsk = false
        guard let characteristic = table.characteristics.first?.value else {
            // BlueZ signals objects in the order in which they changed first, so that the services can come after
            // `ServicesResolved`; but not after its next answer.
            return readChildren(of: device.path)
        }
        ask(characteristic.path, BlueZ.characteristic) {
            $0.get("MTU", completion: $1)
        } answered: { [weak self] result in
            guard let self, isCurrent else { return }
            var reader = (try? result.get())?.reader
            let answer = try? reader?.readVariant { (value) throws(BusError) in try value.readUInt16() }
            table.setMTU(answer.map(Int.init))
            // Another one knows it too, if this one has gone meanwhile.
            mtu.mayAsk = answer == nil && table.characteristics[characteristic.path.rawValue] == nil
            servicesResolved()
        }
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
            ask(path, interface) {
                $0.getAll(completion: $1)
            } answered: {
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
        ask(path, BlueZ.device) {
            $0.children(completion: $1)
        } answered: {
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

    /// Asks again for what BlueZ has not told. ``servicesResolved()`` follows, and continues the discovery that runs.
    func readAgain() {
        (isDiscovered, didReportReadError, table.readError) = (false, false, nil)
        readChildren(of: device.path)
    }

    private func report(_ failure: BusError?, reading path: ObjectPath) {
        guard let failure, BlueZErrorName.meansNoAnswer(failure) else { return }
        Log.warning("the attributes of \(path) cannot be read: \(failure.message) (\(failure.name))")
        table.readError = failure
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
        // Of a link that another program has made.
        if calls.lane == nil { calls.lane = lane }
        if !device.properties.areServicesResolved { table.forgetMTU() }
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
        writers.updateMTU(bytes)
        for core in clients where core.isUp { core.updateMTU(bytes) }
    }

    /// BlueZ tells the MTU with a socket, too.
    func updateMTU(of writer: CommandSocket) {
        table.setMTU(writer.capacity + 3)
        publishMTU()
    }

    /// A service has come, gone or changed while the link was up (IV-1): told once, when the changes have ended.
    private func tableChanged(_ service: String) {
        guard isDiscovered else { return }
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
        if let lost = lostOperation, queue.running?.id == lost {
            answerRunning?(.failure(BlueZErrorName.gone))
        }
        endSubscriptions(in: changed)
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
        guard let running = queue.running, answerRunning == nil, running.operation.request.waitsForServices else {
            return
        }
        running.operation.fail(error(refusal, .attributeRead))
        finish(running.id)
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
