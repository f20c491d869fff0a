import Synchronization

/// Something that the first one who takes it gets.
final class Once<Content: Sendable>: Sendable {
    private let content = Mutex<Content?>(nil)

    /// Puts something in the place of what is there.
    func put(_ new: Content?) { replace { _ in new } }

    func take() -> Content? { replace { _ in nil } }

    /// Changes what is there, if it has not been taken.
    func change(_ body: (Content) -> Content) { replace { $0.map(body) } }

    /// - Returns: What was there. It is not released under the lock: it may hold peripherals, which end then.
    @discardableResult
    private func replace(_ body: (Content?) -> Content?) -> Content? {
        content.withLock { content in
            let old = content
            content = body(old)
            return old
        }
    }
}

/// What was restored, until a consumer takes it at the end of its sequence. Those who come before Bluetooth's first
/// state wait for that.
struct Restoration<State: Sendable> {
    let once: Once<State>
    /// Whether Bluetooth has been on: until then it waits, and a reset afterwards ends everything.
    var hasBeenOn = false
    private var consumers = EventHub<State, Never>()

    init(_ once: Once<State>) { self.once = once }

    /// - Parameter isDecided: Whether Bluetooth's first state is known, before which it is restored.
    mutating func add(_ subscription: EventSubscription<State, Never>, isDecided: Bool) {
        if isDecided { subscription.finish(throwing: nil) } else { consumers.add(subscription) }
    }

    /// Bluetooth's state is known.
    mutating func decide() { consumers.finish(throwing: nil) }

    mutating func prune() { consumers.prune() }

    mutating func end() {
        once.put(nil)
        consumers.finish(throwing: nil)
    }
}
