/// Who is subscribed to one local characteristic, as far as BlueZ tells. Pure; generic over how a central is named.
///
/// BlueZ names the central when it subscribes. It says nothing when one of several unsubscribes, and something without
/// a name when the last one does; a link that ends is seen at the device. Of a bonded central it keeps the subscription
/// over the end of the link, and says nothing either when that comes back.
struct SubscriberBook<Central: Hashable> {
    enum Action: Equatable { case subscribed(Central), unsubscribed(Central) }

    /// In the order in which they subscribed.
    private(set) var subscribers: [Central] = []
    /// Bonded ones whose link has ended.
    private(set) var away: Set<Central> = []

    mutating func subscribed(_ central: Central) -> [Action] {
        away.remove(central)
        // BlueZ tells of changes only: it must have left without a word.
        let missed = remove(central)
        subscribers.append(central)
        return missed + [.subscribed(central)]
    }

    /// BlueZ says so of this one: its socket was closed.
    mutating func unsubscribed(_ central: Central) -> [Action] { remove(central) }

    /// The characteristic is withdrawn.
    mutating func allUnsubscribed() -> [Action] {
        defer { (subscribers, away) = ([], []) }
        return subscribers.map { .unsubscribed($0) }
    }

    /// Bluetooth is off, or the manager gone: the app does not hear of it.
    /// - Parameter isKept: Whether BlueZ keeps the subscription of a central: of a bonded one, while Bluetooth is off.
    mutating func forget(butFor isKept: (Central) -> Bool) {
        away = away.union(subscribers).filter(isKept)
        subscribers = []
    }

    /// The link of a central has ended, or BlueZ has forgotten one that was away.
    mutating func disconnected(_ central: Central, isBonded: Bool) -> [Action] {
        let actions = remove(central)
        if !isBonded { away.remove(central) } else if !actions.isEmpty { away.insert(central) }
        return actions
    }

    mutating func connected(_ central: Central) -> [Action] {
        away.contains(central) ? subscribed(central) : []
    }

    private mutating func remove(_ central: Central) -> [Action] {
        guard let index = subscribers.firstIndex(of: central) else { return [] }
        subscribers.remove(at: index)
        return [.unsubscribed(central)]
    }
}
