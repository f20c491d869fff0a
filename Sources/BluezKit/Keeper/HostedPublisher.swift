import BluezDBus
import BluezKitRestore
import Dispatch
import Foundation

/// The core of a peripheral manager in a keeper.
final class HostedPublisher: HostedRole, @unchecked Sendable {  // holds: confined to the host's queue
    typealias Side = PublishSide

    private let session: Session
    private let core: PeripheralManagerCore
    /// What the app has heard of the state last, and of which channels.
    private var heardState: PublishEvent?
    private var heardChannels: Set<CBL2CAPPSM> = []
    /// The numbers that the app has used last.
    private var last = (call: UInt64(0), advertisingToken: UInt64(0), ticket: UInt32(0))
    /// Who is subscribed.
    private var subscribers: [LocalAttributeID: [CentralInfo]] = [:]
    /// The channels that centrals have opened to a process of the app: they end with it.
    private var channels: Set<UInt32> = []

    init(_ core: PeripheralManagerCore, in session: Session) { (self.core, self.session) = (core, session) }

    func kind(of event: PublishEvent) -> EventLog.Kind {
        switch event {
        case .access(let access): access.ticket == 0 ? .value : .request(access.ticket)
        case .sent: .unnumbered
        case .ready, .channelOpened, .endChannels, .centralChanged, .centralForgotten: .passing
        case .subscribed(let central, let id): .begin("\(central.identifier) \(id.call) \(id.index)")
        case .unsubscribed(let central, let id): .end("\(central.identifier) \(id.call) \(id.index)")
        case .channelNotPublished(_, let ticket): ticket == nil ? .other : .passing
        default: .other
        }
    }

    func reason(of event: PublishEvent) -> String? {
        switch event {
        case .access(let access): access.value == nil ? "a read" : "a write"
        case .subscribed: "a subscription"
        case .unsubscribed: "the end of a subscription"
        // As with links: what was published is gone, and the app's own file has it.
        case .state(let state, _, _) where state.value == .poweredOn: "Bluetooth is on"
        default: nil
        }
    }

    func isRestoration(_ event: PublishEvent) -> Bool { if case .restored = event { true } else { false } }

    func isNoted(_ event: PublishEvent) -> Bool {
        switch event {
        case .state, .channelPublished: true
        default: false
        }
    }

    func heard(_ event: PublishEvent) {
        switch event {
        case .state: heardState = event
        case .channelPublished(let channel, _, _): heardChannels.insert(channel.psm)
        default: break
        }
    }

    func state(in event: PublishEvent) -> CBManagerState? {
        if case .state(let state, _, _) = event { state.value } else { nil }
    }

    func checkpoint(in event: PublishEvent) -> UInt32? {
        if case .checkpoint(let number) = event { number } else { nil }
    }

    func asked(_ request: PublishRequest) {
        switch request {
        case .add(let service, _): last.call = max(last.call, service.call)
        case .advertise(_, let start, _): last.advertisingToken = max(last.advertisingToken, start.token)
        case .stopAdvertising(let token): last.advertisingToken = max(last.advertisingToken, token)
        case .publishChannel(_, _, let ticket): last.ticket = max(last.ticket, ticket ?? 0)
        case .channelReleased(let number): channels.remove(number)
        case .remove, .removeAll, .update, .respond, .unpublishChannel: break
        }
    }

    func carryOut(_ message: PublishMessage) { core.send(message.request, generation: message.generation) }
    func answers() -> [PublishEvent] { [] }

    func happened(_ event: PublishEvent, hasApp: Bool) {
        switch event {
        case .subscribed(let central, let id): subscribers[id, default: []].append(central)
        case .unsubscribed(let central, let id):
            subscribers[id]?.removeAll { $0.identifier == central.identifier }
        case .forgetSubscribers(let id): subscribers[id] = nil
        case .withdrawn(let call, _): subscribers = subscribers.filter { $0.key.call != call }
        case .centralChanged(let central):
            for (id, centrals) in subscribers {
                subscribers[id] = centrals.map { $0.identifier == central.identifier ? central : $0 }
            }
        case .channelOpened(let number, _, _, _) where hasApp: channels.insert(number)
        default: break
        }
    }

    func decline(_ event: PublishEvent) {
        if case .channelOpened(let number, _, _, _) = event { core.send(.channelReleased(number)) }
    }

    func appDied() {
        for number in channels { core.send(.channelReleased(number)) }
        channels = []
        // That process' updates are not counted any more.
        core.updatesInFlight.reset()
    }

    func answer(_ frame: Frame, _ reply: @escaping @Sendable (Frame) -> Void) throws {
        throw FrameReader.Failure.malformed
    }

    func look(_ checkpoint: UInt32, _ found: @escaping @Sendable (HostedState) -> Void) {
        session.run { [core] in
            let kept = core.kept()
            found(
                HostedState(
                    continues: kept.continues, isRestoring: kept.isRestoring, tickets: kept.tickets,
                    work: .peripheral(kept.publications)))
            core.postCheckpoint(checkpoint)
        }
    }

    func work(_ state: HostedState) -> HandOver.Work {
        guard case .peripheral(var work) = state.work else { return state.work }
        work.state = heardState
        (work.lastCall, work.advertisingToken, work.lastTicket) = (last.call, last.advertisingToken, last.ticket)
        work.subscribers = subscribers.filter { !$0.value.isEmpty }
            .map { .init(characteristic: $0.key, centrals: $0.value) }
        work.channels = work.channels.intersection(heardChannels)
        return .peripheral(work)
    }
}
