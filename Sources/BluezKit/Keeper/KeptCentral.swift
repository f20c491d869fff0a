import BluezKitRestore
import Foundation

/// A central manager's app, with its core in a keeper.
typealias KeptCentral = KeptManager<CentralSide>

extension KeptManager: CentralBackend where Side == CentralSide {
    /// What is asked of BlueZ is with the keeper when this returns.
    func sendHere(_ request: CentralRequest, generation: UInt64?) { send(request, generation: generation) }

    func write(_ request: CentralRequest, on connectionID: ConnectionID) -> CommandProgress? {
        send(request, generation: nil)
        return nil
    }

    func knownDevices(_ query: DeviceQuery) -> [KnownDevice] {
        own.map { $0.knownDevices(query) } ?? ask(query, [KnownDevice].self) ?? []
    }
}

struct CentralSide: KeptSide {
    static func configuration(in hello: KeeperHello) -> CentralManagerCore.Configuration? { hello.central }

    static func core(
        _ configuration: CentralManagerCore.Configuration, in session: Session, preserved: Snapshot?,
        place: any CallbackPlace, isHosted: Bool, receive: @escaping @Sendable ([CentralEvent]) -> Void
    ) -> (core: CentralManagerCore, start: @Sendable () -> Void) {
        let core = CentralManagerCore(
            central: session.central, of: session, receive: receive, place: place, preserved: preserved,
            configuration: configuration)
        return (core, { session.run { session.add(core, isHosted: isHosted) } })
    }

    /// Where the manager's core is. Call `start` when the manager is ready for events.
    static func backend(
        _ hello: KeeperHello?, _ statePath: String?, _ key: Session.Key,
        _ configuration: CentralManagerCore.Configuration, _ preserved: Snapshot?, _ place: any CallbackPlace,
        _ receive: @escaping @Sendable ([CentralEvent]) -> Void
    ) -> (any CentralBackend, start: () -> Void) {
        if let kept = KeptCentral.make(hello, statePath, side: Self(), place: place, receive: receive) {
            return (kept, kept.start)
        }
        return core(
            configuration, in: .shared(key), preserved: preserved, place: place, isHosted: false,
            receive: receive)
    }

    func lastingKind(of request: CentralRequest) -> String? {
        switch request {
        case .setPairing: "pairing"
        case .setConnectionEvents: "connection events"
        default: nil
        }
    }

    func taken(over handOver: HandOver, _ preserved: Snapshot?) -> [CentralEvent] {
        guard case .central(let work) = handOver.work else { return [] }
        return [.handedOver(preserved ?? .nothing(.central), handOver), work.state].compactMap { $0 }
    }

    func passed(_ event: CentralEvent) -> CentralEvent? { event }
    func begins() {}

    var lost: CentralEvent { .state(Coded(.resetting), generation: 0, stack: nil, adapter: nil) }
}
