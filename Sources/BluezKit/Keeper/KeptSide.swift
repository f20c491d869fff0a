import BluezKitRestore
import Foundation

/// What is particular to a role.
protocol KeptSide<Request, Event>: Sendable {
    associatedtype Request: Codable & Sendable
    associatedtype Event: Codable & Sendable
    associatedtype Core: Backend<Request, Event>
    associatedtype Configuration
    /// What the app has set; nil: it is of another role.
    static func configuration(in hello: KeeperHello) -> Configuration?
    /// A core in this process. Call `start` when its events can be received.
    /// - Parameters:
    ///   - isHosted: Whether the app is another process.
    ///   - receive: Gets its events, at `place`.
    static func core(
        _ configuration: Configuration, in session: Session, preserved: Snapshot?, place: any CallbackPlace,
        isHosted: Bool, receive: @escaping @Sendable ([Event]) -> Void
    ) -> (core: Core, start: @Sendable () -> Void)
    /// Nil: a new keeper need not hear of the request; otherwise what the next one of this kind replaces.
    func lastingKind(of request: Request) -> String?
    /// What the app hears first of a manager that the keeper has kept.
    func taken(over: HandOver, _ preserved: Snapshot?) -> [Event]
    /// What the app hears of an event; nil: nothing.
    func passed(_ event: Event) -> Event?
    /// There is another keeper.
    func begins()
    /// The keeper is gone, and with it all that it did.
    var lost: Event { get }
}

extension Snapshot {
    /// All that a keeper does is to end.
    static func nothing(_ role: Role) -> Snapshot {
        Snapshot(role: role, identifier: "", app: StateDirectory.app, boot: StateDirectory.boot, saved: Date())
    }
}
