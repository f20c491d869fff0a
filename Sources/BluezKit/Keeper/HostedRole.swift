import BluezKitRestore
import Dispatch

/// What is particular to a role in a keeper. Confined to the host's queue.
protocol HostedRole: AnyObject, Sendable {
    associatedtype Side: KeptSide
    typealias Request = Side.Request
    typealias Event = Side.Event

    init(_ core: Side.Core, in session: Session)

    // What the keeper does with an event.
    func kind(of event: Event) -> EventLog.Kind
    /// Why the app is started for it (RS-5); nil: it is not.
    func reason(of event: Event) -> String?
    /// Whether it tells what an earlier process has left.
    func isRestoration(_ event: Event) -> Bool
    /// Whether ``heard(_:)`` is to be called for it.
    func isNoted(_ event: Event) -> Bool
    /// Nil: it does not tell the state.
    func state(in event: Event) -> CBManagerState?
    /// Nil: it is no ``Side/Event/checkpoint(_:)``.
    func checkpoint(in event: Event) -> UInt32?

    // What becomes of the app.
    /// The app asks for something.
    func asked(_ request: Request)
    func carryOut(_ message: RequestMessage<Request>)
    /// What has become by now of what the app has asked for.
    func answers() -> [Event]
    /// Something has happened, which the app hears now or later.
    func happened(_ event: Event, hasApp: Bool)
    /// The app has delivered a noted event.
    func heard(_ event: Event)
    /// Something has happened that means nothing without a process of the app.
    func decline(_ event: Event)
    /// What ends with a process of the app.
    func appDied()
    /// The app asks what is not one of its requests.
    func answer(_ frame: Frame, _ reply: @escaping @Sendable (Frame) -> Void) throws

    /// Looks at the core: `found` is called on another queue, and then the events end with that checkpoint.
    func look(_ checkpoint: UInt32, _ found: @escaping @Sendable (HostedState) -> Void)
    /// What the app's next process takes over.
    func work(_ state: HostedState) -> HandOver.Work
}

/// What a manager's core does at present.
struct HostedState: Sendable {
    /// Whether anything is under way that the app has asked for.
    let continues: Bool
    /// The app has not heard yet what an earlier process left.
    let isRestoring: Bool
    /// Whether there is a scan: its reports mean nothing without one.
    var isScanning = true
    /// The requests of centrals that can still be answered.
    var tickets: Set<UInt64> = []
    let work: HandOver.Work
}
