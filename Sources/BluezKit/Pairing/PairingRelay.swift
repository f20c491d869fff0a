import BluezDBus
import Synchronization

/// A question of BlueZ's that a session was handed by another one, to which the answer returns.
struct RelayedTicket: Sendable {
    fileprivate weak var relay: PairingRelay?
    /// No other question of this process has it.
    let number: Int

    /// Any thread. Only the first answer counts, and none once BlueZ has withdrawn the question.
    /// - Parameter accepts: Nil: the session does not have the device.
    func answer(_ accepts: Bool?, passkey: UInt32? = nil) { relay?.receive(accepts, passkey, for: number) }
}

/// Hands questions of BlueZ's to the other sessions of this process.
///
/// BlueZ asks the first agent of all, about the devices of every adapter, unless `Pair` has led to the question
/// (src/agent.c, `agent_get`; src/device.c, `new_auth`; 5.66 to 5.87). The session of that agent may not have the
/// device: it keeps the call, and the one that has it asks its app. Sessions know each other weakly, and what passes
/// between them are values, from one bus queue to another one.
final class PairingRelay: @unchecked Sendable {  // holds: `bus` is a constant; the rest is confined to its queue
    /// A question that BlueZ waits for, and that other sessions are asked in turn.
    private struct OpenQuestion {
        let call: IncomingCall
        let question: PairingQuestion
        let path: ObjectPath
        var others: [Entry]
        /// The one that has been asked last.
        weak var asked: PairingRelay?
    }

    private struct Entry: Sendable {
        weak var relay: PairingRelay?
        let identity: ObjectIdentifier
    }

    /// Whether others may ask this session, and it them.
    private enum Part { case notYet, taken, declined }

    /// Of the sessions that take part. None must end under the lock, so none is looked at there.
    private static let entries = Mutex<[Entry]>([])
    private static let lastNumber = Atomic(0)

    private let bus: BlueZBus
    /// Set before ``enter()``.
    weak var service: PairingService?
    private var part = Part.notYet
    private var open: [Int: OpenQuestion] = [:]

    init(_ bus: BlueZBus) { self.bus = bus }

    /// BlueZ gets its answers before the connection ends: bluetoothd calls itself without end where a `RequestPasskey`
    /// has none when its agent leaves (src/agent.c, `passkey_reply`, `agent_unref`; 5.66 to 5.87).
    deinit {
        leave()
        let left = Unanswered(calls: end(isRefusal: true))
        if !left.calls.isEmpty { bus.run { [bus] in for call in left.calls { bus.exportedObjects?.reject(call) } } }
    }

    // holds: used on the bus queue alone
    private struct Unanswered: @unchecked Sendable { let calls: [IncomingCall] }

    /// Others may ask this session from now on. On its bus queue, so that it is complete.
    func enter() {
        bus.assertOnQueue()
        guard part == .notYet else { return }
        part = .taken
        let entry = Entry(relay: self, identity: ObjectIdentifier(self))
        Self.entries.withLock { $0.append(entry) }
    }

    /// The session is a keeper's: its managers are those of several apps, none of which answers for another one.
    func decline() {
        bus.assertOnQueue()
        part = .declined
        leave()
    }

    private func leave() {
        let identity = ObjectIdentifier(self)
        Self.entries.withLock { entries in entries.removeAll { $0.identity == identity } }
    }

    // MARK: The session that BlueZ asks

    /// Whether BlueZ waits for what another session is asked.
    var isAsking: Bool { !open.isEmpty }

    /// Asks the others about a device that this session does not have. If none has it, the question is refused.
    func ask(_ question: PairingQuestion, about path: ObjectPath, _ call: IncomingCall) {
        bus.assertOnQueue()
        let number = Self.lastNumber.wrappingAdd(1, ordering: .relaxed).newValue
        let others = part == .taken ? Self.entries.withLock { $0 } : []
        open[number] = OpenQuestion(call: call, question: question, path: path, others: others)
        askNext(number)
    }

    private func askNext(_ number: Int) {
        guard var question = open[number] else { return }
        while let next = question.others.popLast() {
            guard let relay = next.relay, relay !== self, relay.bus.address == bus.address else { continue }
            question.asked = relay
            open[number] = question
            return relay.take(question.question, about: question.path, RelayedTicket(relay: self, number: number))
        }
        open[number] = nil
        bus.exportedObjects?.reject(question.call)
        service?.answered()
    }

    fileprivate func receive(_ accepts: Bool?, _ passkey: UInt32?, for number: Int) {
        bus.run { [self] in
            guard let accepts else { return askNext(number) }
            guard let call = open.removeValue(forKey: number)?.call else { return }
            bus.exportedObjects?.answer(call, accepts, passkey: passkey)
            service?.answered()
        }
    }

    /// BlueZ does not wait any longer: the app that is asked hears of that.
    /// - Parameter isRefusal: Whether BlueZ learns of it by being refused.
    /// - Returns: BlueZ's calls, which are not answered.
    func end(isRefusal: Bool) -> [IncomingCall] {
        defer { open = [:] }
        for (number, question) in open { question.asked?.withdraw(number, isRefusal: isRefusal) }
        return open.values.map(\.call)
    }

    // MARK: The session that another one asks. Any thread

    private func take(_ question: PairingQuestion, about path: ObjectPath, _ ticket: RelayedTicket) {
        bus.run { [self] in
            if service?.take(question, about: path, for: .session(ticket)) != true { ticket.answer(nil) }
        }
    }

    /// Comes to the queue after the question.
    private func withdraw(_ number: Int, isRefusal: Bool) {
        bus.run { [self] in service?.withdraw(number, isRefusal: isRefusal) }
    }
}
