import BluezKitRestore
import Foundation

/// A peripheral manager's app, with its core in a keeper.
typealias KeptPublisher = KeptManager<PublishSide>

extension KeptManager: PublishBackend where Side == PublishSide {
    func update(_ characteristic: LocalAttributeID, _ value: [UInt8], centrals: Set<UUID>?) -> Bool {
        if let own { return own.update(characteristic, value, centrals: centrals) }
        guard side.updates.admit(characteristic) else { return false }
        send(.update(characteristic, value, centrals: centrals), generation: nil)
        return true
    }
}

struct PublishSide: KeptSide {
    /// Those on their way to the keeper, and from there to BlueZ.
    let updates = UpdatesInFlight()

    static func configuration(in hello: KeeperHello) -> PeripheralManagerCore.Configuration? { hello.peripheral }

    static func core(
        _ configuration: PeripheralManagerCore.Configuration, in session: Session, preserved: Snapshot?,
        place: any CallbackPlace, isHosted: Bool, receive: @escaping @Sendable ([PublishEvent]) -> Void
    ) -> (core: PeripheralManagerCore, start: @Sendable () -> Void) {
        let core = PeripheralManagerCore(
            role: session.peripheral, of: session, receive: receive, place: place, preserved: preserved,
            configuration: configuration, isHosted: isHosted)
        return (core, { session.run { session.add(core, isHosted: isHosted) } })
    }

    /// As ``CentralSide/backend(_:_:_:_:_:_:_:)``.
    static func backend(
        _ hello: KeeperHello?, _ statePath: String?, _ key: Session.Key,
        _ configuration: PeripheralManagerCore.Configuration, _ preserved: Snapshot?, _ place: any CallbackPlace,
        _ receive: @escaping @Sendable ([PublishEvent]) -> Void
    ) -> (any PublishBackend, start: () -> Void) {
        if let kept = KeptPublisher.make(hello, statePath, side: Self(), place: place, receive: receive) {
            return (kept, kept.start)
        }
        return core(
            configuration, in: .shared(key), preserved: preserved, place: place, isHosted: false,
            receive: receive)
    }

    func lastingKind(of request: PublishRequest) -> String? { nil }

    func taken(over handOver: HandOver, _ preserved: Snapshot?) -> [PublishEvent] {
        guard case .peripheral(let work) = handOver.work else { return [] }
        return [.handedOver(preserved ?? .nothing(.peripheral), handOver), work.state].compactMap { $0 }
    }

    func passed(_ event: PublishEvent) -> PublishEvent? {
        switch event {
        case .sent(let characteristic): return updates.release(characteristic) ? .ready : nil
        case .state(let state, _, _) where state.value != .poweredOn:
            updates.reset()
            return event
        default: return event
        }
    }

    /// What was on its way to another keeper, or to none, has no answer.
    func begins() { updates.reset() }

    var lost: PublishEvent { .state(Coded(.resetting), servicesGeneration: 0, adapterGeneration: 0) }
}
