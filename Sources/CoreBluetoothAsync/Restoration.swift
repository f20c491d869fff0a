/// What was restored, until a consumer gets it.
struct Restoration<State: Sendable> {
    var state: State?
    private var consumers = EventHub<State, Never>()

    /// - Parameter isDecided: Whether Bluetooth's first state is known, before which it is restored.
    mutating func add(_ subscription: EventSubscription<State, Never>, isDecided: Bool) {
        if !isDecided, state == nil { return consumers.add(subscription) }
        if let state { subscription.send(state) }
        state = nil
        subscription.finish(throwing: nil)
    }

    /// Bluetooth's state is known.
    mutating func decide() {
        prune()
        guard !consumers.isEmpty else { return }
        if let state { consumers.send(state) }
        end()
    }

    mutating func prune() { consumers.prune() }

    mutating func end() {
        state = nil
        consumers.finish(throwing: nil)
    }
}
