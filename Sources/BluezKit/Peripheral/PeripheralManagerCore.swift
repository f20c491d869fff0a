import BluezKitRestore
import Dispatch
import Foundation

/// What the bus queue knows of one `CBPeripheralManager`. It outlives the manager where work is under way.
// holds: what other threads use is set before they see this, or locked; the rest is confined to the bus queue
final class PeripheralManagerCore: Recipient, @unchecked Sendable {
    typealias Event = (CBPeripheralManager) -> Void

    let role: PeripheralRole
    private let session: AnyObject
    private let inbox: Inbox<PeripheralManagerCore>
    private(set) weak var manager: CBPeripheralManager?

    /// Whether the app may publish services that Apple reserves for the system (PB-7).
    let allowsSystemServices: Bool
    /// Whether centrals may pair although the app is not asked.
    let allowsJustWorks: Bool

    /// Any thread.
    let updatesInFlight = UpdatesInFlight()
    private(set) lazy var gattServer = GATTServer(of: self)
    private(set) lazy var advertiser = Advertiser(of: self)
    private(set) lazy var channels = PublishedChannels(of: self)

    /// What an earlier process left, until the app has heard of it.
    private var preserved: Snapshot?
    /// What the app has heard last.
    private var announcedState = CBManagerState.unknown

    /// - Parameter session: Kept while the app has the manager, or work is under way.
    init(
        role: PeripheralRole, of session: AnyObject, place: any CallbackPlace, allowsSystemServices: Bool,
        allowsJustWorks: Bool, preserved: Snapshot?
    ) {
        (self.role, self.session, self.preserved) = (role, session, preserved)
        (self.allowsSystemServices, self.allowsJustWorks) = (allowsSystemServices, allowsJustWorks)
        inbox = Inbox(place)
    }

    deinit { inbox.end() }

    /// Once, before any other thread sees this.
    func setManager(_ manager: CBPeripheralManager) { self.manager = manager }

    var bus: BlueZBus { role.bus }

    // MARK: Events

    /// Adds an event to what is delivered when the bus queue has done its turn.
    func post(_ event: @escaping Event) {
        bus.assertOnQueue()
        if inbox.add(event) { bus.hasOutgoing(self) }
    }

    func flush(mayDeliver: () -> Bool) -> (() -> Void)? { inbox.flush(to: self, mayDeliver: mayDeliver) }

    /// The app has released the manager.
    func abandon() { inbox.abandon() }

    static func outlivesManager(_ event: Event) -> Bool { false }

    func deliver(_ event: Event) { if let manager { event(manager) } }

    // MARK: The state

    /// Tells the app the adapter's state, and before that what was restored. - Returns: the state; nil: it knows it.
    func announce(_ adapter: AdapterController) -> CBManagerState? {
        let state = adapter.state
        guard state != .unknown, state != announcedState else { return nil }
        if let snapshot = preserved {
            preserved = nil
            let live = RestorationPlan.Live(bluetooth: nil, adapter: adapter.name, peripherals: [:])
            manager?.restore(RestorationPlan(snapshot, live))
            post { manager in manager.tellRestored() }
        }
        announcedState = state
        let generations = (adapter.servicesGeneration, adapter.generation)
        post { manager in
            if state == .poweredOn {
                manager.shared.withLock { ($0.servicesGeneration, $0.adapterGeneration) = generations }
            }
            manager.enter(state)
        }
        return state
    }

    // MARK: The end

    /// Bluetooth is not on any more: there are no subscribers, and nothing is on its way to them.
    func dropUpdates() {
        updatesInFlight.reset()
        for characteristic in gattServer.characteristics { characteristic.subscribers.forget() }
    }

    /// Withdraws everything at once, in silence.
    func withdrawAll() {
        updatesInFlight.reset()
        advertiser.stop()
        role.requests.end { $0.characteristic.core === self }
        gattServer.withdrawAll()
        channels.withdrawAll()
    }
}
