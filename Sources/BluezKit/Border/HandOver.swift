import BluezKitRestore
import Foundation

/// What a keeper has of a manager whose app has died: the app's objects are made as they were, and the events go on
/// where they had ended.
struct HandOver: Codable, Sendable {
    /// What the app has heard of the state last; nil: nothing.
    let state: CentralEvent?
    /// The last connect or cancel of the manager.
    let lastRequest: UInt32
    let scan: ScanRequest?
    let scanToken: UInt64
    let peripherals: [KeptPeripheral]
    /// How many values, and discoveries, did not fit.
    let dropped: Int
    /// Whether the first event is one whose callback had begun.
    let repeatsFirst: Bool
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
