import CoreBluetooth

/// The consumers of characteristics' values, by the numbers of these; and the values of subscriptions that were
/// restored, until their first consumers.
struct ValueHubs {
    /// How many wait for the first consumer of a characteristic. The oldest are dropped.
    private static let mostEarly = 10_000

    private var hubs: [UInt64: EventHub<Data, any Error>] = [:]
    private var early: [UInt64: [Data]] = [:]

    var numbers: [UInt64] { Array(hubs.keys) }

    func hasConsumers(_ number: UInt64) -> Bool { hubs[number] != nil }

    /// What comes before the first consumer waits for it.
    mutating func keepEarly(_ number: UInt64) { early[number] = [] }
    mutating func forgetEarly(_ number: UInt64) { early[number] = nil }
    mutating func forgetEarly() { early = [:] }

    mutating func send(_ value: Data, _ number: UInt64) {
        guard let count = early[number]?.count else {
            hubs[number]?.send(value)
            return
        }
        if count == Self.mostEarly { early[number]?.removeFirst() }
        early[number]?.append(value)
    }

    /// - Returns: Whether it is the first.
    mutating func add(_ subscription: EventSubscription<Data, any Error>, _ number: UInt64) -> Bool {
        for value in early.removeValue(forKey: number) ?? [] { subscription.send(value) }
        defer { hubs[number, default: EventHub()].add(subscription) }
        return hubs[number] == nil
    }

    /// - Returns: Whether the last one has gone.
    mutating func prune(_ number: UInt64) -> Bool {
        hubs[number]?.prune()
        guard let hub = hubs[number], hub.isEmpty else { return false }
        hubs[number] = nil
        return true
    }

    mutating func end(_ number: UInt64, _ error: any Error) {
        var hub = hubs.removeValue(forKey: number)
        hub?.finish(throwing: error)
    }
}
