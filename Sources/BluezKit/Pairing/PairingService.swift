import BluezDBus
import Foundation

/// What has a part in pairing: the central and the peripheral role.
protocol PairingRole: AnyObject {
    /// Whether a pairing may concern this role now. Without any agent BlueZ stores no keys, and never answers a read
    /// that needs a pairing.
    var needsAgent: Bool { get }
    /// What the apps can do.
    var abilities: [PairingAbilities] { get }
    /// The app's peripherals that BlueZ's device is; nil: this role does not use it.
    func pairingPeers(at path: ObjectPath) -> [any PairingPeer]?
    /// Whether a device that no role uses may pair without being asked about.
    func mayPairUnasked(at path: ObjectPath) -> Bool
    /// A pairing was accepted, and makes a bond.
    func pairingAccepted(at path: ObjectPath)
    /// A pairing was refused: BlueZ does not answer what has led to it.
    func pairingRefused(at path: ObjectPath)
}

/// An app's peripheral that may pair.
protocol PairingPeer: AnyObject {
    var abilities: PairingAbilities { get }
    /// Asks the app. Its answer comes to ``PairingService/answer(_:accepts:passkey:)``.
    func ask(_ question: PairingQuestion, ticket: Int)
    /// The question does not hold any longer.
    func questionEnded()
}

/// This process as BlueZ's pairing agent: BlueZ's questions, and the answers of the apps. Confined to the bus queue.
final class PairingService: @unchecked Sendable {  // holds: confined to the bus queue
    /// Who waits for an answer.
    enum Asker {
        /// BlueZ asks this session's agent.
        case blueZ(IncomingCall)
        /// BlueZ asks that of another session of this process.
        case session(RelayedTicket)
    }

    /// A question that BlueZ waits for, or that an app was asked and may still show.
    private struct AskedQuestion {
        let ticket: Int
        let asker: Asker
        /// Whether it needs an answer.
        var isOpen: Bool
        let peer: any PairingPeer
        let path: ObjectPath
    }

    private struct Role { weak var role: (any PairingRole)? }

    private let bus: BlueZBus
    private let adapter: AdapterController
    /// The way to the other sessions of this process.
    let relay: PairingRelay
    private var roles: [Role] = []
    private lazy var agent = AgentStateMachine(timing: bus.timing.pairing)
    /// One for each device at most, in the order in which they were asked.
    private var questions: [AskedQuestion] = []
    private var questionCount = 0
    /// Whether the agent is to be looked at when BlueZ has its answer.
    private var isUpdateDue = false

    init(_ bus: BlueZBus, _ adapter: AdapterController) {
        (self.bus, self.adapter, relay) = (bus, adapter, PairingRelay(bus))
        relay.service = self
    }

    /// Set up before the bus is opened.
    func add(_ role: any PairingRole) { roles.append(Role(role: role)) }

    private var allRoles: [any PairingRole] { roles.compactMap(\.role) }

    /// The connection to the bus is gone, and BlueZ's questions with it.
    func busLost() {
        agent.released()
        isUpdateDue = false
        rejectRelayed()
        endQuestion()
    }

    // MARK: The agent

    /// Registers the agent if a role needs it.
    func updateAgent() {
        bus.assertOnQueue()
        relay.enter()
        // bluetoothd does not survive it if it drops an agent that it waits for (Docs/BLUEZ-REPORTS.md).
        isUpdateDue = isAsking
        guard !isAsking, let owner = bus.owner, allRoles.contains(where: \.needsAgent),
            let objects = bus.exportObjects()
        else { return }
        let wanted = AgentStateMachine.Registration(
            owner: owner, capability: PairingAbilities.capability(allRoles.flatMap(\.abilities)))
        if !objects.has(PairingAgent.interface.name, at: PairingAgent.path) {
            objects.add(PairingAgent.interface, to: PairingAgent.path, owner: PairingAgent(self))
        }
        apply(agent.need(wanted), wanted)
    }

    private func handle(_ event: AgentStateMachine.Event, _ registration: AgentStateMachine.Registration) {
        apply(agent.handle(event, of: registration), registration)
    }

    private func apply(_ actions: [AgentStateMachine.Action], _ registration: AgentStateMachine.Registration) {
        guard let proxy = bus.proxy(BlueZ.root, BlueZ.agentManager) else { return }
        for action in actions {
            switch action {
            case .register: register(registration, proxy)
            case .replace: proxy.unregisterAgent(PairingAgent.path) { _ in }
            case .unregister:
                proxy.unregisterAgent(PairingAgent.path) { [weak self] _ in self?.handle(.unregistered, registration) }
            case .startTimer(let delay):
                bus.after(delay) { [weak self] in
                    guard let self else { return }
                    handle(.timerFired(isAsking: isAsking), registration)
                }
            case .askPairable:
                adapter.path.flatMap { bus.proxy($0, BlueZ.adapter) }?.get("Pairable") { [weak self] result in
                    guard let self else { return }
                    // BlueZ may have asked since, and is to keep the agent then.
                    if isAsking { return handle(.timerFired(isAsking: true), registration) }
                    handle(.pairable((try? result.get().values().first)?.boolValue), registration)
                }
            case .warn:
                Log.warning(
                    "\(adapter.name ?? "the adapter") is not `Pairable`, so no keys are kept of what pairs: "
                        + "`bluetoothctl pairable on` changes that")
            }
        }
    }

    private func register(_ registration: AgentStateMachine.Registration, _ proxy: BlueZProxy) {
        proxy.registerAgent(PairingAgent.path, capability: registration.capability) { [weak self] result in
            if let error = result.failure {
                return Log.warning(
                    "BlueZ does not take this program's pairing agent: \(error.message) (\(error.name))")
            }
            self?.handle(.registered, registration)
        }
    }

    /// bluetoothd ends, or was made to drop the agent.
    func agentReleased() {
        bus.assertOnQueue()
        agent.released()
        endQuestion()
    }

    // MARK: Questions

    /// Whether BlueZ waits for this session's agent.
    private var isAsking: Bool {
        relay.isAsking || questions.contains { if case .blueZ = $0.asker { $0.isOpen } else { false } }
    }

    /// BlueZ has an answer.
    func answered() { if isUpdateDue, !isAsking { updateAgent() } }

    /// A question of BlueZ's to this session's agent.
    func receive(_ question: PairingQuestion, about path: ObjectPath, _ call: IncomingCall) {
        bus.assertOnQueue()
        // The first agent of a system is asked about the devices of every program, and of every adapter.
        if !take(question, about: path, for: .blueZ(call)) { relay.ask(question, about: path, call) }
    }

    /// - Returns: Whether it is this session that answers; otherwise nothing has been done.
    func take(_ question: PairingQuestion, about path: ObjectPath, for asker: Asker) -> Bool {
        bus.assertOnQueue()
        guard let peers = allRoles.lazy.compactMap({ $0.pairingPeers(at: path) }).first else {
            guard question == .consent, allRoles.contains(where: { $0.mayPairUnasked(at: path) }) else { return false }
            reply(to: asker, true)
            return true
        }
        if peers.contains(where: { question.policy($0.abilities) == .accept }) {
            reply(to: asker, true)
            accepted(at: path)
        } else if let peer = peers.first(where: { question.policy($0.abilities) == .ask }) {
            ask(question, of: peer, at: path, for: asker)
        } else {
            let address = String(path.lastElement.dropFirst(4).replacing("_", with: ":"))
            Log.warning(
                from: address,
                "pairing request from \(address) refused: no handler is set in CBCentralManager.pairing")
            reply(to: asker, false)
            refused(at: path)
        }
        return true
    }

    private func ask(_ question: PairingQuestion, of peer: any PairingPeer, at path: ObjectPath, for asker: Asker) {
        endQuestion(about: path)
        questionCount += 1
        let ticket = questionCount
        var isOpen = true
        if case .display = question {
            reply(to: asker, true)
            isOpen = false
            accepted(at: path)
        }
        questions.append(AskedQuestion(ticket: ticket, asker: asker, isOpen: isOpen, peer: peer, path: path))
        peer.ask(question, ticket: ticket)
    }

    private func reply(to asker: Asker, _ accepts: Bool, passkey: UInt32? = nil) {
        switch asker {
        case .blueZ(let call):
            bus.exportedObjects?.answer(call, accepts, passkey: passkey)
            answered()
        case .session(let ticket): ticket.answer(accepts, passkey: passkey)
        }
    }

    /// What the app has answered to the question with this ticket. The first answer counts.
    func answer(_ ticket: Int, accepts: Bool, passkey: UInt32?) {
        bus.assertOnQueue()
        guard let index = questions.firstIndex(where: { $0.ticket == ticket && $0.isOpen }) else { return }
        questions[index].isOpen = false
        let asked = questions[index]
        if accepts, (passkey ?? 0) < 1_000_000 {
            reply(to: asked.asker, true, passkey: passkey)
            accepted(at: asked.path)
        } else {
            reply(to: asked.asker, false)
            endQuestion(about: asked.path)
            refused(at: asked.path)
        }
    }

    /// BlueZ has withdrawn the question that it waits for, wherever that is shown. It waits for one at a time, and
    /// never for a number that is displayed: that is shown until its pairing ends (src/agent.c, `agent_cancel`,
    /// `agent_display_passkey`).
    func cancelled() {
        bus.assertOnQueue()
        rejectRelayed()
        let asked = questions.last { if case .blueZ = $0.asker { $0.isOpen } else { false } }
        if let asked { endQuestion(about: asked.path) }
    }

    /// BlueZ waits no longer for what other sessions are asked, or may not be there any more.
    private func rejectRelayed() {
        for call in relay.end(isRefusal: false) { bus.exportedObjects?.reject(call) }
        answered()
    }

    /// The question with this number has ended for the session that has handed it to this one.
    /// - Parameter isRefusal: Whether BlueZ learns of it by being refused.
    func withdraw(_ number: Int, isRefusal: Bool) {
        bus.assertOnQueue()
        let asked = questions.first {
            if case .session(let ticket) = $0.asker { ticket.number == number } else { false }
        }
        guard let asked else { return }
        endQuestion(about: asked.path)
        if isRefusal { refused(at: asked.path) }
    }

    /// Ends the question about the device at `path`, or all; its app may take the dialog away. No one can answer it any
    /// more, so nothing waits for that.
    func endQuestion(about path: ObjectPath? = nil) {
        let ended = questions.filter { path == nil || $0.path == path }
        questions.removeAll { path == nil || $0.path == path }
        for asked in ended {
            if asked.isOpen { reply(to: asked.asker, false) }
            asked.peer.questionEnded()
        }
    }

    private func accepted(at path: ObjectPath) { for role in allRoles { role.pairingAccepted(at: path) } }
    private func refused(at path: ObjectPath) { for role in allRoles { role.pairingRefused(at: path) } }
}
