import Synchronization

/// A part of an app, as far as a simulator of BlueZ in the same process may touch it: a manager, or a connection of
/// managers to the bus. Any thread.
package protocol LocalAppPart: AnyObject, Sendable {
    /// The app's process has ended, for all that others can see. Nothing is undone, and nothing is reported.
    func die()
    /// - Returns: Whether the app has heard that this central has subscribed to a characteristic with this UUID, all 36
    ///   characters in lower case; nil: it has published none.
    func hasHeard(ofSubscriber address: String, of uuid: String) -> Bool?
}

extension LocalAppPart {
    package func hasHeard(ofSubscriber address: String, of uuid: String) -> Bool? { nil }
}

/// The parts of apps in this process, by their bus. Only tests, with a simulator in their process, ask for them.
package enum LocalApps {
    /// In the order in which they die: what reports to the app falls silent before its connection ends.
    package enum Kind: CaseIterable, Sendable { case manager, connection }

    private struct Entry: Sendable {
        weak var part: (any LocalAppPart)?
        let identity: ObjectIdentifier
        let kind: Kind
        let address: BusAddress
        let adapter: String?
    }

    private static let entries = Mutex<[Entry]>([])

    /// Until ``remove(_:)``, which a part calls when it is released. No other part is looked at, not even whether it is
    /// still there: it would be held for that moment, and hear of something after its release.
    /// - Parameter adapter: The name or address of the adapter that the app has asked for; nil: none.
    package static func add(_ part: any LocalAppPart, _ kind: Kind, on address: BusAddress, adapter: String?) {
        let entry = Entry(
            part: part, identity: ObjectIdentifier(part), kind: kind, address: address.endpoint, adapter: adapter)
        entries.withLock { $0.append(entry) }
    }

    /// - Parameter identity: Of a part that is being released.
    package static func remove(_ identity: ObjectIdentifier) {
        entries.withLock { entries in entries.removeAll { $0.identity == identity } }
    }

    /// - Parameter adapters: Those that the app may have asked for; nil: any, or none.
    package static func parts(_ kind: Kind, on address: BusAddress, adapters: [String]? = nil) -> [any LocalAppPart] {
        let found = entries.withLock { entries in
            entries.filter { $0.kind == kind && $0.address == address.endpoint }.map { ($0.part, $0.adapter) }
        }
        return found.compactMap { part, adapter in
            adapters.map { wanted in adapter.map(wanted.contains) ?? false } ?? true ? part : nil
        }
    }

    /// Ends what an app has on a bus, as the end of its process does.
    package static func kill(on address: BusAddress, adapters: [String]?) {
        for kind in Kind.allCases {
            for part in parts(kind, on: address, adapters: adapters) { part.die() }
        }
    }
}
