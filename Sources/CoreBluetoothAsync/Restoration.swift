/// What was restored, until a consumer takes it.
struct Restoration<State: Sendable> {
    var state: State?
    /// Whether Bluetooth has been on: until then it waits, and a reset afterwards ends everything.
    var hasBeenOn = false
    private var consumers = EventHub<State, Never>()
    /// How many consumers were given it, and may take it.
    private var holders = 0

    /// - Parameter isDecided: Whether Bluetooth's first state is known, before which it is restored.
    mutating func add(_ subscription: EventSubscription<State, Never>, isDecided: Bool) {
        if !isDecided, state == nil { return consumers.add(subscription) }
        if let state, subscription.send(state) { (self.state, holders) = (nil, 1) }
        subscription.finish(throwing: nil)
    }

    /// Bluetooth's state is known.
    mutating func decide() {
        prune()
        if let state {
            holders = consumers.send(state)
            if holders > 0 { self.state = nil }
        }
        consumers.finish(throwing: nil)
    }

    /// A consumer has ended without taking it.
    mutating func giveBack(_ state: State) {
        holders -= 1
        if holders == 0 { self.state = state }
    }

    mutating func prune() { consumers.prune() }

    mutating func end() {
        (state, holders) = (nil, 0)
        consumers.finish(throwing: nil)
    }
}
