import BluezDBus
import BluezKitRestore
import Dispatch
import Foundation
import Synchronization

/// Where a central manager's app and the core meet: turns the core's events into changes of the app's objects and into
/// callbacks, on the app's queue and in the order in which they come.
// holds: `manager` and `onRequest` are set before others see this; the rest is safe
final class CentralMirror: @unchecked Sendable {
    weak var manager: CBCentralManager?
    /// For tests, which compare what an app asks with what it is answered: set before the first callback, and called
    /// in the app's call.
    var onRequest: (@Sendable (CBPeripheral, AttributeRequest) -> Void)?

    private let hasDied = Atomic(false)

    /// The app's process has ended, as a simulator has it: no callback follows.
    func die() { hasDied.store(true, ordering: .relaxed) }

    typealias Answer = @Sendable ((any Error)?) -> Void

    // holds: closures are called once, outside the lock
    private struct Waiting: Sendable { let answer: Answer }
    private let answers = Protected<(last: UInt32, waiting: [UInt32: Waiting])>((0, [:]))
    private let lastRequest = Atomic<UInt32>(0)

    /// What the app was asked about a peripheral, and may still show.
    private struct OpenQuestion: Sendable {
        /// Tickets are the core's, and begin again with another keeper.
        let number: Int
        let identity: DeviceIdentity
    }
    private let questions = Protected<(last: Int, open: [OpenQuestion])>((0, []))

    /// An identifier that no other connect or cancel of the manager's peripherals has.
    func newConnectionID() -> ConnectionID {
        ConnectionID(request: lastRequest.wrappingAdd(1, ordering: .relaxed).newValue)
    }

    /// The identifiers up to this one are taken, by what was restored.
    func skip(to connectionID: ConnectionID) { lastRequest.store(connectionID.request, ordering: .relaxed) }

    /// - Returns: The ticket of what `answer` waits for.
    func await(_ answer: @escaping Answer) -> UInt32 {
        answers.withLock { answers in
            answers.last &+= 1
            answers.waiting[answers.last] = Waiting(answer: answer)
            return answers.last
        }
    }

    /// MIS-5. An app that releases its manager as well is at its end.
    func logRelease(of identity: DeviceIdentity, wasConnected: Bool, after delay: Duration) {
        DispatchQueue.files.later(delay) { [weak manager = self.manager] in
            guard manager != nil else { return }
            Log.misuse(
                wasConnected
                    ? "Forcing disconnection of unused peripheral \(identity.addressText), "
                        + "Did you forget to cancel the connection?"
                    : "Cancelling connection for unused peripheral \(identity.addressText), "
                        + "Did you forget to keep a reference to it?")
        }
    }

    // MARK: Events

    func receive(_ events: [CentralEvent]) {
        for event in events where !hasDied.load(ordering: .relaxed) { receive(event) }
    }

    func receive(_ event: CentralEvent) {
        if case .bondRemoved(let ticket, let error) = event {
            let waiting = answers.withLock { $0.waiting.removeValue(forKey: ticket) }
            waiting?.answer(error?.error)
            return
        }
        guard let manager else { return }
        switch event {
        case .value(let value, let id, let identity, let connectionID):
            manager.known(identity)?.deliver(value, of: id, connectionID)
        case .peripheral(let identity, let event):
            if let peripheral = manager.known(identity) {
                receive(event, of: peripheral, manager)
            } else {
                decline(event, of: identity, manager.backend)
            }
        case .discovered(let identity, let properties, let token):
            manager.discovered(identity, properties, scan: token)
        case .state(let state, let generation, let stack, let adapter):
            if state.value != .poweredOn { endQuestions(manager) }
            manager.shared.withLock { shared in
                shared.adapter = adapter
                // Not before: until then a command from another thread belongs to the generation that the app knows.
                if state.value == .poweredOn { shared.generation = generation }
            }
            manager.enter(state.value, stackGeneration: stack)
        case .restored(let plan, let adapter): manager.restore(plan, adapter)
        case .handedOver(let snapshot, let handOver): manager.takeOver(snapshot, handOver)
        case .connectionEvent(let event, let identity, let name):
            let peripheral = manager.peripheral(identity)
            if let name { _ = peripheral.updateName(name) }
            manager.delegate?.centralManager(manager, connectionEventDidOccur: event.value, for: peripheral)
        case .bondRemoved, .checkpoint: break  // above, and not for an app
        }
    }

    private func receive(_ event: PeripheralEvent, of peripheral: CBPeripheral, _ manager: CBCentralManager) {
        switch event {
        case .connected(let connectionID, let mtuBytes, let isOurs):
            guard peripheral.enterConnected(connectionID: connectionID, mtuBytes: mtuBytes, isOurs: isOurs) else {
                return
            }
            manager.preserve(peripheral)
            manager.delegate?.centralManager(manager, didConnect: peripheral)
        case .cancelled(let connectionID):
            guard peripheral.leave(after: connectionID) else { return }
            manager.delegate?.centralManager(
                manager, didDisconnectPeripheral: peripheral, timestamp: CFAbsoluteTimeGetCurrent(),
                isReconnecting: false, error: nil)
        case .lost(let connectionID, let next, let error, let time):
            guard peripheral.leave(connectionID: connectionID, for: next) else { return }
            if next != nil, !manager.backend.isKept { manager.preserve(peripheral) }
            manager.delegate?.centralManager(
                manager, didDisconnectPeripheral: peripheral, timestamp: time, isReconnecting: next != nil,
                error: error.error)
            // Not before: a process that ends inside the callback, and has not acted on it yet, gets it again.
            if next == nil || manager.backend.isKept { manager.preserve(peripheral) }
        case .failed(let connectionID, let error):
            guard peripheral.leave(connectionID: connectionID) else { return }
            manager.delegate?.centralManager(manager, didFailToConnect: peripheral, error: error.error)
            manager.preserve(peripheral)
        case .name(let name, let isNews):
            // A connected app hears of each change (IV-4); but not of one that was on its way when Bluetooth went off
            // (O-18).
            guard peripheral.updateName(name), isNews || peripheral.state == .connected, manager.state == .poweredOn
            else { return }
            peripheral.delegate?.peripheralDidUpdateName(peripheral)
        case .mtu(let bytes, let connectionID): peripheral.update(mtuBytes: bytes, connectionID: connectionID)
        case .bonded(let isBonded, let adapter): peripheral.update(isBonded: isBonded, with: adapter)
        case .identity(let identity): peripheral.update(identity)
        case .answer(let answer, let connectionID):
            if peripheral.isCurrent(connectionID) { peripheral.receive(answer) }
        case .servicesChanged(let ids, let connectionID):
            guard peripheral.isCurrent(connectionID) else { return }
            let services = peripheral.invalidate(ids)
            peripheral.delegate?.peripheral(peripheral, didModifyServices: services)
        case .written(let progress, let connectionID):
            if peripheral.note(progress, connectionID) { peripheral.announceRoom(connectionID) }
        case .room(let connectionID): peripheral.announceRoom(connectionID)
        case .question(let question, let ticket): ask(question, ticket: ticket, about: peripheral, manager)
        case .questionEnded:
            if forgetQuestion(about: peripheral.identity) { manager.pairing.ended?(peripheral) }
        case .channelOpened(let number, let psm, let passed, let connectionID):
            if peripheral.isCurrent(connectionID) { peripheral.opened(number, psm, passed.socket) }
        case .channelRefused(let psm, let error, let connectionID):
            guard peripheral.isCurrent(connectionID) else { return }
            Log.debug("channel \(psm.hex) of \(peripheral): \(error.error)")
            peripheral.delegate?.peripheral(peripheral, didOpen: nil, error: error.error)
        case .endChannel(let number): peripheral.endpoint(of: number)?.end()
        case .channelEnded(let number): peripheral.updateChannels { $0.channels.removeAll { $0.number == number } }
        }
    }

    /// The app has released the peripheral: a question about it would wait for an answer.
    private func decline(_ event: PeripheralEvent, of identity: DeviceIdentity, _ backend: any CentralBackend) {
        if case .questionEnded = event { forgetQuestion(about: identity) }
        guard case .question(_, let ticket) = event else { return }
        backend.send(.answerQuestion(ticket: ticket, accepts: false, passkey: nil))
    }

    // MARK: Questions

    /// An answer that comes when the question has ended reaches no one: another one may have its ticket by then.
    private func ask(
        _ question: PairingQuestion, ticket: Int, about peripheral: CBPeripheral, _ manager: CBCentralManager
    ) {
        let identity = peripheral.identity
        let number = questions.withLock { questions in
            questions.last += 1
            questions.open.append(OpenQuestion(number: questions.last, identity: identity))
            return questions.last
        }
        manager.pairing.ask(question, about: peripheral) { [self, backend = manager.backend] accepts, passkey in
            let isOpen = questions.withLock { questions in questions.open.contains { $0.number == number } }
            if isOpen { backend.send(.answerQuestion(ticket: ticket, accepts: accepts, passkey: passkey)) }
        }
    }

    /// - Returns: Whether there was one.
    @discardableResult
    private func forgetQuestion(about identity: DeviceIdentity) -> Bool {
        questions.withLock { questions in
            let count = questions.open.count
            questions.open.removeAll { $0.identity == identity }
            return questions.open.count < count
        }
    }

    /// Bluetooth has ended, or the keeper, which cannot tell any more that its questions have.
    private func endQuestions(_ manager: CBCentralManager) {
        let ended = questions.withLock { questions in
            defer { questions.open = [] }
            return questions.open
        }
        for question in ended {
            if let peripheral = manager.known(question.identity) { manager.pairing.ended?(peripheral) }
        }
    }
}
