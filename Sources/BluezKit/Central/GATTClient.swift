import BluezDBus
import Foundation

/// What apps do with the attributes of a connected device: one operation after the other, in the order of the calls
/// (RW-1). Lives as long as its link, or the attempt to make it: what BlueZ answers later finds it gone. Confined to
/// the bus queue.
final class GATTClient: CustomStringConvertible {
    let device: Device
    let central: CentralRole
    let reader: TableReader
    private(set) var queue = AttributeQueue<AttributeOperation>()
    /// The operation that begins next, and whether one is beginning: see `execute`.
    private var nextEntry: Entry?
    private var isExecuting = false
    /// Answers the running operation, also in BlueZ's place; nil: BlueZ is not asked anything for it.
    private(set) var answerRunning: ((Result<Message, BusError>) -> Void)?
    /// The operation that ran when its attribute went.
    private var lostOperation: Int?
    private(set) var calls = OperationCalls()
    private var bonding = Bonding()
    /// Whether `Pair` is on its way.
    var isPairing = false
    /// For writes without response.
    var writers = CommandSockets()
    /// Characteristics whose notifications come by signals, as BlueZ gives no socket.
    var withoutNotifySocket: Set<String> = []

    typealias Entry = AttributeQueue<AttributeOperation>.Entry

    private struct Bonding {
        /// Whether the device is pairing, and BlueZ has not said yet that it is bonded.
        var isAwaited = false
        /// Answers the running operation, which has led to the pairing.
        var answer: (() -> Void)?
    }

    init(of device: Device, in central: CentralRole) {
        (self.device, self.central) = (device, central)
        reader = TableReader(of: device, in: central)
    }

    var description: String {
        let subscriptions = central.subscriptions.all(of: self).map(\.description)
        return ([reader.description] + subscriptions).joined(separator: "\n    ")
    }

    var bus: BlueZBus { central.bus }

    /// Whether its link, or the attempt, has not ended.
    var isCurrent: Bool { device.connection?.client === self }
    private var isUp: Bool { isCurrent && device.connection?.isUp == true }

    /// Whether the operation is still to be answered: not if the link has ended, or the attribute has gone.
    func isRunning(_ id: Int) -> Bool { queue.running?.id == id }

    /// The operation, if it is still to be answered. For what waits for BlueZ, which may never answer: until then it
    /// keeps nothing of the app.
    func running(_ id: Int) -> Entry? { isRunning(id) ? queue.running : nil }

    // MARK: One operation after the other

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
        if !reader.isDiscovered, operation.request.waitsForServices || reader.isAdopted { return }
        // Sockets and calls reach BlueZ on different ways; what was written first must be there first (O-27).
        guard isDrained(before: operation) else { return awaitDrained(entry) }
        if operation.request.waitsForServices, reader.didReportReadError { return reader.readAgain() }
        if isStale(operation) {
            let end: (Result<Message, BusError>) -> Void = { [weak self] _ in
                guard let self else { return }
                // What was restored the app has not asked for: `didModifyServices` reports it.
                if case .resubscribe = operation.request {} else { operation.fail(staleAttribute) }
                finish(entry.id)
            }
            guard reader.isChangeReportDue else { return end(.failure(BlueZErrorName.gone)) }
            // As with what goes during an operation.
            (answerRunning, lostOperation) = (end, entry.id)
            return
        }
        if operation.request.waitsForServices, let readError = reader.takeReadError() {
            operation.fail(error(readError, .attributeRead))
            return finish(entry.id)
        }
        perform(entry)
    }

    /// Whether another attribute may have got its place in the table (IV-1).
    private func isStale(_ operation: AttributeOperation) -> Bool {
        guard operation.request.attribute != nil else { return false }
        guard let place = operation.place else { return true }
        let service = AttributeTable.service(of: place.path)
        let version = place.version ?? operation.core.restoredVersions[service]
        return version != reader.table.version(of: service)
    }

    var staleAttribute: any Error { CBError(.invalidHandle) }

    /// BlueZ is asked for the running operation.
    /// - Parameter answer: Gets what it says, or what is said in its place.
    func awaitAnswer(_ answer: @escaping (Result<Message, BusError>) -> Void) { answerRunning = answer }

    /// Makes a call for the running operation. `answer` gets the result if the link is still the same one; then the
    /// next operation runs.
    /// - Parameter bytes: How long the value may be that the peer is asked for, or to take; nil: BlueZ answers.
    func call(
        _ path: String, _ interface: String, _ entry: Entry, bytes: Int? = nil,
        _ make: @escaping (BlueZProxy, @escaping BlueZProxy.Completion) -> Void,
        answer: @escaping (Result<Message, BusError>) -> Void
    ) {
        guard isCurrent, let path = ObjectPath(path), var proxy = proxy(path, interface) else { return }
        if let bytes {
            let further = max(bytes - 1, 0) / (max(reader.table.mtuBytes ?? 23, 23) - 5)
            proxy.attributeDeadline += bus.timing.gatt.furtherAnswer * further
        }
        let id = entry.id
        awaitAnswer { [weak self] result in
            guard let self else { return }
            if bytes != nil, result.failure == nil { writers.peerAnswered() }
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
            } else if let error = result.failure {
                if BlueZErrorName.isUnlikelyError(error) { device.connection?.operationFailed() }
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

    // MARK: What the table says

    /// The table is complete: what waits for that begins.
    func tableComplete() {
        guard let running = queue.running, answerRunning == nil,
            reader.isAdopted || running.operation.request.waitsForServices
        else { return }
        execute(running)
    }

    /// The table cannot be read: a service discovery that waits for it is over.
    func failServiceDiscovery(_ failure: BusError) {
        guard let running = queue.running, answerRunning == nil, running.operation.request.waitsForServices else {
            return
        }
        running.operation.fail(error(failure, .attributeRead))
        finish(running.id)
    }

    /// An object of BlueZ has gone, with all below it. BlueZ answers nothing that is under way for that, not even with
    /// an error. It ends when the change is reported (IV-3): it may show by then that the link has ended, and all of
    /// it.
    func attributesRemoved(at path: ObjectPath, characteristics: [String]) {
        for characteristic in characteristics { central.subscriptions[characteristic] = nil }
        if let running = queue.running, let attribute = running.operation.place?.path,
            attribute == path.rawValue || attribute.hasPrefix(path.rawValue + "/")
        {
            lostOperation = running.id
        }
        for characteristic in characteristics { releaseWriter(of: characteristic) }
    }

    /// These services have changed, and have these versions now.
    func servicesChanged(_ changed: [String: Int]) {
        if let lostOperation, isRunning(lostOperation) { answerRunning?(.failure(BlueZErrorName.gone)) }
        endSubscriptions(in: changed)
    }

    // MARK: A bond

    func pairingAccepted() { bonding.isAwaited = !device.properties.isBonded }

    /// Whether the device is pairing, and BlueZ has not said yet that it is bonded.
    var awaitsBond: Bool { bonding.isAwaited }

    /// Does `body` when the bond is known that was made for the running operation. BlueZ says so after the operation's
    /// answer (5.82 and later), and an app that has got its value expects to find the bond.
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

    /// The link is up.
    func linkUp() {
        // Of a link that another program has made.
        if calls.lane == nil { calls.lane = lane }
        reader.linkUp()
    }

    /// No link is there or attempted. A connect can wait without a limit, and would keep a connection to the bus open
    /// for nothing.
    func leaveLane() { calls.lane = nil }

    /// For a call that BlueZ may never answer, and for what must follow such a call.
    func proxy(_ path: ObjectPath, _ interface: String, on lane: CallLane? = nil) -> BlueZProxy? {
        guard let connection = (lane ?? self.lane)?.connection else { return nil }
        var proxy = BlueZProxy(bus: connection, path: path, interface: interface)
        let timing = bus.timing.gatt
        proxy.attributeDeadline = device.properties.isBonded ? timing.answer : timing.pairingAnswer
        proxy.attributeDeadline += writers.unsent
        return proxy
    }

    /// For a call that is no operation (``UnansweredCalls/counting(_:on:)``).
    func countedProxy(_ path: ObjectPath, _ interface: String) -> BlueZProxy? {
        guard let lane, var proxy = proxy(path, interface, on: lane) else { return nil }
        proxy.counting = central.unanswered.counting(device, on: lane)
        return proxy
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
        if isCurrent { callWasLost() }
    }

    // MARK: A link on which BlueZ answers nothing any more

    /// BlueZ has given no answer within the time that the peer has for one: after that nothing may be asked on the
    /// link.
    func timedOut() {
        device.connection?.endUseless(
            (DisconnectReason.timeout, "a request was not answered in time"), failing: .timedOut)
    }

    /// BlueZ will never answer a call of the running operation, which is over.
    func callWasLost() {
        let isLeftAlone = central.unanswered.pause(of: device.identity) != nil
        guard isUp, !calls.isHalted, isLeftAlone || calls.burdenLane(bus.timing.unanswered) else { return }
        device.connection?.endUseless((DisconnectReason.unanswered, "BlueZ does not answer"), failing: .timedOut)
    }

    /// BlueZ began to pair for the operation that runs. Refused, it never answers that, nor anything that follows on
    /// this link, and forgets the device 30 s later (seen with 5.66). So both end now.
    func pairingRefused() {
        guard !isPairing, answerRunning != nil else { return }
        device.connection?.endUseless(
            (DisconnectReason.authentication, "pairing was refused"),
            failing: .remote(name: BlueZErrorName.notPermitted, message: BlueZErrorName.notPaired))
    }

    /// The link is being ended: what runs gets `failure`, what waits no answer (CN-10).
    func halt(_ failure: BusError) {
        calls.isHalted = true
        answerRunning?(.failure(failure))
    }

    // MARK: The end

    /// The link has ended: nothing is answered any longer. ``endSubscriptions()`` follows.
    func end() {
        abandonCall()
        queue.removeAll()
        (answerRunning, bonding.answer) = (nil, nil)
        reader.end()
        writers.closeAll()
    }

    /// A peripheral does not use the link any longer, without a callback.
    func endWork(of core: PeripheralCore) {
        queue.removeWaiting { $0.core === core }
        unsubscribeAll(of: core)
    }
}

extension Result {
    var failure: Failure? { if case .failure(let failure) = self { failure } else { nil } }
}
