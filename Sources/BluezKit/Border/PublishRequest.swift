import BluezKitRestore
import Foundation

/// An attribute that an app has published: the characteristic at `index` of the service that its call number `call` has
/// added.
struct LocalAttributeID: Hashable, Codable, Sendable {
    let call: UInt64
    let index: Int
}

/// A service as it was when the app added it (PB-2).
struct LocalService: Codable, Sendable {
    /// Which of the app's calls has added it.
    let call: UInt64
    let uuid: CodableUUID
    let isPrimary: Bool
    /// The services that it includes, by their calls; 0: it was not added.
    let includes: [Included]
    let characteristics: [LocalCharacteristic]
    /// Where bluetoothd had placed it for an earlier process.
    let placement: Snapshot.Placement?

    struct Included: Codable, Sendable {
        let call: UInt64
        let uuid: CodableUUID
    }
}

struct LocalCharacteristic: Codable, Sendable {
    let uuid: CodableUUID
    let properties: Coded<CBCharacteristicProperties>
    let permissions: Coded<CBAttributePermissions>
    /// Fixed: the app is not asked (PB-3).
    let value: [UInt8]?
    let descriptors: [LocalDescriptor]
}

struct LocalDescriptor: Codable, Sendable {
    let uuid: CodableUUID
    /// Fixed. Nil: the app gave a value of a kind that has no bytes.
    let value: [UInt8]?
}

/// Which of the app's starts of its advertisement, and in which generation of Bluetooth the app was, as far as it had
/// heard (``AdapterController/generation``).
struct AdvertisingStart: Codable, Sendable {
    let token: UInt64
    let adapterGeneration: UInt64
}

/// What an app asks of the peripheral role through one manager. See ``CentralRequest``.
enum PublishRequest: Codable, Sendable {
    /// - isResumed: The app did not add it, but finds it there: it hears of no answer.
    case add(LocalService, isResumed: Bool)
    case remove(call: UInt64)
    case removeAll
    /// Once the services before it are there.
    case advertise(AdvertisementRequest, AdvertisingStart, isResumed: Bool)
    /// - token: That of the next start.
    case stopAdvertising(token: UInt64)
    /// - centrals: To whom; nil: all subscribers.
    case update(LocalAttributeID, [UInt8], centrals: Set<UUID>?)
    case respond(ticket: UInt64, Coded<CBATTError.Code>, Data?)
    /// - psm: That of an earlier process, or from before a reset: another one if it is not free; nil: any.
    /// - ticket: What waits for the answer; nil: the delegate.
    case publishChannel(isEncrypted: Bool, psm: CBL2CAPPSM?, ticket: UInt32?)
    case unpublishChannel(CBL2CAPPSM)
    /// The app has let go of a channel that a central had opened.
    case channelReleased(UInt32)
}

typealias PublishMessage = RequestMessage<PublishRequest>
