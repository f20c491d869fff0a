/// The registration of this process's pairing agent, and whether devices can bond with it. Pure.
///
/// While there is no agent, bluetoothd has the kernel keep no keys. It compares with the setting that the kernel has
/// told it last, so an agent that follows another one within a moment may find that still on, and have it go off: what
/// pairs then is not bonded. Seen with 5.66 (src/adapter.c, `adapter_set_io_capability`). The agent is registered again
/// then.
struct AgentStateMachine {
    /// Which bluetoothd knows the agent, and what it was told that the agent can do.
    struct Registration: Equatable {
        let owner: String
        let capability: String
    }

    /// What happens with a registration.
    enum Event: Equatable {
        /// BlueZ has taken the agent.
        case registered
        /// - Parameter isAsking: Whether BlueZ waits for the answer to a question, which another registration would
        ///   end.
        case timerFired(isAsking: Bool)
        /// Whether keys are kept; nil: BlueZ does not say.
        case pairable(Bool?)
        /// BlueZ has let go of the agent, to be registered again.
        case unregistered
    }

    enum Action: Equatable {
        case register(Registration)
        /// The old registration ends. The new one follows at once; or ``Event/unregistered`` is awaited.
        case replace, unregister
        case startTimer(Duration)
        /// Ask whether devices can bond.
        case askPairable
        /// Bonding stays off: the user may want that.
        case warn
    }

    private let timing: BlueZTiming.Pairing
    private(set) var registration: Registration?
    private var tries = 0

    init(timing: BlueZTiming.Pairing = BlueZTiming.Pairing()) { self.timing = timing }

    /// A role needs an agent. BlueZ takes another capability from a new registration only.
    mutating func need(_ new: Registration) -> [Action] {
        guard registration != new else { return [] }
        let old = registration
        (registration, tries) = (new, 1)
        return (old?.owner == new.owner ? [.replace] : []) + [.register(new)]
    }

    /// BlueZ has dropped the agent, or is not there any more.
    mutating func released() { registration = nil }

    /// What is heard of an earlier registration leads to nothing.
    mutating func handle(_ event: Event, of registration: Registration) -> [Action] {
        guard registration == self.registration else { return [] }
        switch event {
        // By the end of the pause bluetoothd knows the kernel's setting, and acts on it.
        case .registered, .timerFired(isAsking: true): return [.startTimer(timing.agentRetry)]
        case .timerFired(isAsking: false): return [.askPairable]
        case .pairable(false): return [tries < timing.agentRetries ? .unregister : .warn]
        case .pairable: return []
        case .unregistered:
            tries += 1
            return [.register(registration)]
        }
    }
}
