import BluezKitRestore
import Foundation

/// What an app asks of the central role through one manager.
///
/// A message names a peripheral by its identity, an attribute by its number within a link, and what waits for an answer
/// by a ticket: it could be written down, or come from another process.
enum CentralRequest: Codable, Sendable {
    case startScan(ScanRequest, token: UInt64)
    case endScan
    case setPairing(PairingAbilities)
    /// Nil: no events.
    case setConnectionEvents(ConnectionEventFilter?)
    case connect(DeviceIdentity, ConnectionID, ConnectRequest)
    /// Of a peripheral that is connecting or connected, as far as the app knows (CN-4).
    /// - isAnswered: Whether a `didConnect` of its own is due: not where that of an earlier call is.
    case connectAgain(DeviceIdentity, ConnectionID, ConnectRequest, isAnswered: Bool)
    /// A connect that was interrupted by the end of Bluetooth.
    case resume(DeviceIdentity, ConnectionID, ConnectRequest)
    case cancel(DeviceIdentity, ConnectionID)
    /// The app has released the peripheral. The identifier is that of its last connect or cancel.
    case release(DeviceIdentity, ConnectionID)
    case perform(AttributeRequest, DeviceIdentity, ConnectionID)
    case openChannel(CBL2CAPPSM, DeviceIdentity, ConnectionID)
    /// The channel has ended, or the app has closed it.
    case channelEnded(UInt32, DeviceIdentity)
    case answerQuestion(ticket: Int, accepts: Bool, passkey: UInt32?)
    case removeBond(DeviceIdentity, ticket: UInt32)
}

/// A request, and what the app knew when it made it.
struct RequestMessage<Request: Codable & Sendable>: Codable, Sendable {
    let request: Request
    /// The generation of Bluetooth (``AdapterController/generation``) or of services
    /// (``AdapterController/servicesGeneration``), for what its end undoes; nil: that does not matter.
    var generation: UInt64?
}

typealias CentralMessage = RequestMessage<CentralRequest>

/// Which peers a manager has registered for (`registerForConnectionEvents`).
struct ConnectionEventFilter: Codable, Sendable {
    let services: Set<CodableUUID>
    let identifiers: Set<UUID>

    init(_ options: [CBConnectionEventMatchingOption: Any]) {
        services = Set((options[.serviceUUIDs] as? [CBUUID] ?? []).map(CodableUUID.init))
        identifiers = Set(options[.peripheralUUIDs] as? [UUID] ?? [])
    }

    func matches(_ identity: DeviceIdentity, _ found: [CBUUID]) -> Bool {
        identifiers.contains(identity.identifier) || found.contains { services.contains(CodableUUID($0)) }
    }
}

/// Which of BlueZ's devices an app asks for.
enum DeviceQuery: String, Codable, Sendable { case connected, bonded }

/// A device that BlueZ knows.
struct KnownDevice: Codable, Sendable {
    let identity: DeviceIdentity
    let name: String?
    let services: [CodableUUID]
}
