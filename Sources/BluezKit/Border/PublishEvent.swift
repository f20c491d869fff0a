import BluezKitRestore
import Foundation

/// A central, as the app sees it.
struct CentralInfo: Codable, Equatable, Sendable {
    let identifier: UUID
    /// In bytes.
    var maximumUpdateValueLength: Int
}

/// A read or a write by a central.
struct AttributeAccess: Codable, Sendable {
    /// Identifies the call that waits for the response. 0: none.
    let ticket: UInt64
    let central: CentralInfo
    let characteristic: LocalAttributeID
    let offset: Int
    /// What is to be written; nil: it is a read.
    let value: Data?
}

/// What a peripheral manager's app hears. The app's queue changes its objects and calls the delegate, in this order.
enum PublishEvent: Codable, Sendable {
    indirect case access(AttributeAccess)
    case subscribed(CentralInfo, LocalAttributeID)
    case unsubscribed(CentralInfo, LocalAttributeID)
    /// Its ATT_MTU has become known.
    case centralChanged(CentralInfo)
    /// It is not followed any longer: the next object for it is another one (ID-4).
    case centralForgotten(UUID)
    /// There is room for updates again.
    case ready
    /// An update has left: only for an app with a keeper, on whose side it counts.
    case sent(LocalAttributeID)
    /// What comes before it has happened before a keeper asked. Not for an app.
    case checkpoint(UInt32)
    /// Bluetooth is off, or away: the characteristic has no subscribers, of which the state alone tells.
    case forgetSubscribers(LocalAttributeID)
    indirect case state(Coded<CBManagerState>, servicesGeneration: UInt64, adapterGeneration: UInt64)
    /// What an earlier process left. Its services have the calls from 1 on, in the order of the plan.
    indirect case restored(RestorationPlan)
    /// What an earlier process left with a keeper, which has continued. Of the app's own side.
    indirect case handedOver(Snapshot, HandOver)
    /// What has become of a service.
    /// - isResumed: The app did not add it: it hears of no answer.
    indirect case added(call: UInt64, AppError?, isResumed: Bool)
    /// bluetoothd has chosen the handle of a service.
    indirect case placed(call: UInt64, Snapshot.Placement)
    /// The core has nothing of the service any more. - isForgotten: Nor is it to come back.
    case withdrawn(call: UInt64, isForgotten: Bool)
    indirect case advertising(isOnAir: Bool, token: UInt64, AppError?, isResumed: Bool)
    /// A start that could not be asked for.
    indirect case notAdvertised(AppError, token: UInt64)
    /// BlueZ has taken it off the air.
    case advertisingReleased(token: UInt64)
    indirect case channelPublished(Snapshot.PublishedChannel, old: CBL2CAPPSM?, ticket: UInt32?)
    indirect case channelNotPublished(AppError, ticket: UInt32?)
    indirect case channelUnpublished(CBL2CAPPSM, AppError?)
    indirect case channelOpened(UInt32, CBL2CAPPSM, CentralInfo, PassedSocket)
    /// The channels with this PSM have ended; nil: all.
    case endChannels(CBL2CAPPSM?)
}
