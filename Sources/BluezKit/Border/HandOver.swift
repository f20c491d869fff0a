import BluezKitRestore
import Foundation

/// What a keeper has of a manager whose app has died: the app's objects are made as they were, and the events go on
/// where they had ended.
struct HandOver: Codable, Sendable {
    /// How many events the app has missed.
    let missed: Int
    /// How many values, requests and discoveries did not fit.
    let dropped: Int
    /// Whether the first event is one whose callback had begun.
    let repeatsFirst: Bool
    let work: Work

    /// By role.
    enum Work: Codable, Sendable {
        case central(KeptCentralWork)
        case peripheral(KeptPublications)
    }
}

/// Of a central manager.
struct KeptCentralWork: Codable, Sendable {
    /// What the app has heard of the state last; nil: nothing.
    var state: CentralEvent?
    /// The last connect or cancel of the manager.
    var lastRequest: UInt32
    let scan: ScanRequest?
    var scanToken: UInt64
    let peripherals: [KeptPeripheral]
}

/// What a keeper has of one peripheral.
struct KeptPeripheral: Codable, Sendable {
    let identity: DeviceIdentity
    /// The last connect or cancel that has come from the app.
    let newest: ConnectionID
    /// Whether a connect of the app continues.
    let isWanted: Bool
    /// Whether there is a link for it.
    let isUp: Bool
    /// The ATT_MTU of that.
    let mtuBytes: Int?
}

/// Of a peripheral manager.
struct KeptPublications: Codable, Sendable {
    /// What the app has heard of the state last; nil: nothing.
    var state: PublishEvent?
    /// The calls that have added the services that there are, and the last one that has come from the app.
    let calls: Set<UInt64>
    var lastCall: UInt64 = 0
    /// Who is subscribed now.
    var subscribers: [Subscribers] = []
    let isAdvertising: Bool
    /// That of the app's last start, or its next one.
    var advertisingToken: UInt64 = 0
    /// The PSMs of the L2CAP channels that the app has heard of.
    var channels: Set<CBL2CAPPSM>
    /// The last ticket of a channel that is to be published.
    var lastTicket: UInt32 = 0

    struct Subscribers: Codable, Sendable {
        let characteristic: LocalAttributeID
        let centrals: [CentralInfo]
    }
}
