/// The registration with BlueZ of the services of one GATT application: nearly always one, or those that include each
/// other, which BlueZ only takes together. BlueZ looks at an application once, so a change means to withdraw it and to
/// register it again. Pure.
struct ApplicationStateMachine<Service: Hashable> {
    enum Phase: Equatable { case idle, registering, registered, withdrawing }

    enum Action: Equatable {
        /// Export these, in this order, and register them.
        case register([Service])
        /// Withdraw the application; its objects are not needed any more.
        case withdraw
        /// The service is in BlueZ's table for the first time.
        case confirm(Service)
        /// BlueZ does not take the service.
        case fail(Service)
    }

    private(set) var phase = Phase.idle
    /// What should be in BlueZ's table: what is included before what includes it.
    private(set) var wanted: [Service] = []
    /// What the registration that is there, or on its way, has.
    private var current: [Service] = []
    private var unconfirmed: Set<Service> = []

    mutating func add(_ service: Service) -> [Action] {
        wanted.append(service)
        unconfirmed.insert(service)
        return next()
    }

    /// Takes services over from another application: they were confirmed there.
    mutating func adopt(_ services: [Service]) -> [Action] {
        wanted += services
        return next()
    }

    mutating func remove(_ service: Service) -> [Action] {
        wanted.removeAll { $0 == service }
        unconfirmed.remove(service)
        return next()
    }

    mutating func registerReplied(_ succeeded: Bool) -> [Action] {
        guard phase == .registering else { return [] }
        let news = current.filter { unconfirmed.contains($0) }
        unconfirmed.subtract(news)
        guard succeeded else {
            (phase, current) = (.idle, [])
            // BlueZ does not say what it dislikes. If nothing is new, trying again would lead to the same.
            let refused = news.isEmpty ? wanted : news
            wanted.removeAll { refused.contains($0) }
            return refused.map { .fail($0) } + next()
        }
        phase = .registered
        return news.map { .confirm($0) } + next()
    }

    /// Whatever BlueZ has answered, the application is not registered any more.
    mutating func withdrawReplied() -> [Action] {
        guard phase == .withdrawing else { return [] }
        (phase, current) = (.idle, [])
        return next()
    }

    /// BlueZ has lost all registrations.
    mutating func lost() { (phase, current) = (.idle, []) }

    private mutating func next() -> [Action] {
        switch phase {
        case .idle where !wanted.isEmpty:
            (phase, current) = (.registering, wanted)
            return [.register(wanted)]
        case .registered where wanted != current:
            phase = .withdrawing
            return [.withdraw]
        default: return []
        }
    }
}
