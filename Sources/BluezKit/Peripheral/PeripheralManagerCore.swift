import BluezKitRestore
import Dispatch
import Foundation

/// What the core knows of one peripheral manager. It outlives the manager where work is under way.
// holds: what other threads use is set before they see this, or locked; the rest is confined to the bus queue
final class PeripheralManagerCore: PublishBackend, EventSource, Recipient, @unchecked Sendable {
    let role: PeripheralRole
    private let session: AnyObject
    private let inbox: Inbox<PeripheralManagerCore>
    private let receive: @Sendable ([PublishEvent]) -> Void

    /// What the app has set when it made the manager.
    struct Configuration: Codable, Equatable, Sendable {
        /// Whether the app may publish services that Apple reserves for the system (PB-7).
        var allowsSystemServices = false
        /// Whether centrals may pair although the app is not asked.
        var allowsJustWorks = false
    }

    let configuration: Configuration
    /// Whether the app is another process, which counts its own updates.
    let isHosted: Bool

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
        role: PeripheralRole, of session: AnyObject, receive: @escaping @Sendable ([PublishEvent]) -> Void,
        place: any CallbackPlace,
        preserved: Snapshot?, configuration: Configuration, isHosted: Bool = false
    ) {
        (self.role, self.session, self.receive, self.preserved) = (role, session, receive, preserved)
        (self.configuration, self.isHosted) = (configuration, isHosted)
        inbox = Inbox(place, time: role.bus.time)
    }

    deinit { inbox.end() }

    var bus: BlueZBus { role.bus }

    // MARK: What the app asks for

    func send(_ request: PublishRequest, generation: UInt64?) {
        let message = BorderFormat.passed(PublishMessage(request: request, generation: generation))
        bus.run { [self] in carryOut(message) }
    }

    func update(_ characteristic: LocalAttributeID, _ value: [UInt8], centrals: Set<UUID>?) -> Bool {
        guard updatesInFlight.admit(characteristic) else { return false }
        send(.update(characteristic, value, centrals: centrals))
        return true
    }

    private func carryOut(_ message: PublishMessage) {
        let isUndone = message.generation.map { $0 != role.adapter.servicesGeneration } ?? false
        switch message.request {
        case .add(let service, let isResumed):
            // A keeper has it already, and the app's next process does not know.
            if isUndone || isResumed && gattServer.calls.contains(service.call) { return }
            gattServer.perform(.add(PublishedService(service, core: self, isResumed: isResumed)))
        case .remove(let call): gattServer.perform(.remove(call: call))
        case .removeAll: gattServer.perform(.removeAll)
        case .advertise(let request, let start, let isResumed):
            gattServer.perform(.advertise(request, start, isResumed: isResumed))
        case .stopAdvertising(let token): advertiser.stop(before: token)
        case .update(let id, let value, let centrals): role.updates.update(id, to: value, for: centrals, by: self)
        case .respond(let ticket, let code, let value): role.requests.respond(ticket, code.value, value, by: self)
        case .publishChannel(let isEncrypted, let psm, let ticket):
            if !isUndone { channels.publish(isEncrypted: isEncrypted, psm: psm, ticket: ticket) }
        case .unpublishChannel(let psm): channels.unpublish(psm)
        case .channelReleased(let number): channels.released(number)
        }
    }

    // MARK: Events

    /// Adds an event to what is delivered when the bus queue has done its turn.
    func post(_ event: PublishEvent) {
        bus.assertOnQueue()
        if inbox.add(event) { bus.hasOutgoing(self) }
    }

    func flush(mayDeliver: () -> Bool) -> (() -> Void)? { inbox.flush(to: self, mayDeliver: mayDeliver) }

    func report(_ event: PublishEvent) { bus.run { [self] in post(event) } }

    func release() {
        inbox.abandon()
        bus.run { [self] in role.remove(self) }
    }

    func die() { inbox.abandon() }

    var timing: BlueZTiming { bus.timing }
    var isKept: Bool { false }

    func daemonVersion(_ answer: @escaping @Sendable (String) -> Void) {
        bus.run { [self] in if let version = role.adapter.daemon.version { answer(version.description) } }
    }

    static func outlivesManager(_ event: PublishEvent) -> Bool { false }

    func deliver(_ events: [PublishEvent]) { receive(BorderFormat.passed(events)) }

    // MARK: A keeper

    /// What continues for an app that has died.
    struct Kept: Sendable {
        let publications: KeptPublications
        /// Of the requests that the app can still answer.
        let tickets: Set<UInt64>
        /// The app has not heard yet what an earlier process left.
        let isRestoring: Bool

        /// Whether anything is under way that the app has asked for.
        var continues: Bool {
            isRestoring || publications.isAdvertising || !publications.calls.isEmpty || !publications.channels.isEmpty
        }
    }

    /// The events so far are followed by this one. For a keeper.
    func postCheckpoint(_ number: UInt32) { post(.checkpoint(number)) }

    func kept() -> Kept {
        let isAdvertising = advertiser.isWanted || gattServer.willAdvertise
        return Kept(
            publications: KeptPublications(
                calls: gattServer.calls, isAdvertising: isAdvertising, channels: channels.wanted),
            tickets: role.requests.tickets, isRestoring: preserved != nil)
    }

    // MARK: The state

    /// Tells the app the adapter's state, and before that what was restored. - Returns: the state; nil: it knows it.
    func announce(_ adapter: AdapterController) -> CBManagerState? {
        let state = adapter.state
        guard state != .unknown, state != announcedState else { return nil }
        if let snapshot = preserved {
            preserved = nil
            let live = RestorationPlan.Live(bluetooth: nil, adapter: adapter.name, peripherals: [:])
            post(.restored(RestorationPlan(snapshot, live)))
        }
        announcedState = state
        post(
            .state(
                Coded(state), servicesGeneration: adapter.servicesGeneration, adapterGeneration: adapter.generation))
        return state
    }

    // MARK: The end

    /// Bluetooth is not on any more: there are no subscribers, and nothing is on its way to them. BlueZ keeps the
    /// subscriptions of bonded centrals with its services.
    func dropUpdates() {
        updatesInFlight.reset()
        for characteristic in gattServer.characteristics {
            characteristic.subscribers.forget(butFor: role.remoteCentrals.isBonded)
        }
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
