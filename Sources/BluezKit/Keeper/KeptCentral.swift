import BluezKitRestore
import Foundation

/// A central manager's app, with its core in a keeper.
typealias KeptCentral = KeptManager<CentralRequest, CentralEvent>

extension KeptManager: Backend where Request == CentralRequest, Event == CentralEvent {}

extension KeptManager: CentralBackend where Request == CentralRequest, Event == CentralEvent {
    /// What is asked of BlueZ is with the keeper when this returns.
    func sendHere(_ request: CentralRequest, generation: UInt64?) { send(request, generation: generation) }

    func write(_ request: CentralRequest, on connectionID: ConnectionID) -> CommandProgress? {
        send(request, generation: nil)
        return nil
    }

    func knownDevices(_ query: DeviceQuery) -> [KnownDevice] { ask(query, [KnownDevice].self) ?? [] }
}

struct KeptCentralSide: KeptSide {
    func lastingKind(of request: CentralRequest) -> String? {
        switch request {
        case .setPairing: "pairing"
        case .setConnectionEvents: "connection events"
        default: nil
        }
    }

    func taken(over handOver: HandOver, _ preserved: Snapshot?) -> [CentralEvent] {
        // Nothing is preserved: all that the keeper still does is to end.
        let nothing = Snapshot(
            role: .central, identifier: "", app: StateDirectory.app, boot: StateDirectory.boot, saved: Date())
        return [.handedOver(preserved ?? nothing, handOver), handOver.state].compactMap { $0 }
    }

    var lost: CentralEvent { .state(Coded(.resetting), generation: 0, stack: nil, adapter: nil) }
}
