import BluezKitRestore
import Foundation

/// What a central manager's app hears. The app's queue changes its objects and calls the delegate, in this order.
enum CentralEvent: Codable, Sendable {
    /// A notification or indication: by far the most frequent, so it is the one that needs no memory of its own.
    case value(Data, AttributeID, DeviceIdentity, ConnectionID)
    indirect case peripheral(DeviceIdentity, PeripheralEvent)
    indirect case discovered(DeviceIdentity, DeviceProperties, scan: UInt64)
    /// - stack: The run of bluetoothd and adapter (``Snapshot/bluetooth``), if the state is `.poweredOn`.
    indirect case state(Coded<CBManagerState>, generation: UInt64, stack: String?, adapter: String?)
    /// What an earlier process left. The connect of the item at `index` of the plan is that of
    /// ``RestorationPlan/connectionID(at:)``, and the token of its scan is 1.
    indirect case restored(RestorationPlan, adapter: String?)
    /// What an earlier process left with a keeper, which has continued. Of the app's own side.
    indirect case handedOver(Snapshot, HandOver)
    indirect case connectionEvent(Coded<CBConnectionEvent>, DeviceIdentity, name: String?)
    /// What comes before it has happened before a keeper asked. Not for an app.
    case checkpoint(UInt32)
    /// An app waits for it, whether it has the manager or not.
    indirect case bondRemoved(ticket: UInt32, AppError?)
}

/// What the app hears of one peripheral. What has a ``ConnectionID`` is of no interest once the app has another one.
enum PeripheralEvent: Codable, Sendable {
    /// `didConnect`.
    /// - isOurs: Whether programs with BluezKit have made the link; nil: a keeper of an earlier version does not tell.
    case connected(ConnectionID, mtuBytes: Int?, isOurs: Bool?)
    /// `didDisconnectPeripheral` with no error: the app has cancelled (CN-7).
    case cancelled(ConnectionID)
    /// `didDisconnectPeripheral` of a link that no app asked to end (CN-9 to CN-12, AR-2).
    /// - next: That of the next link, if it reconnects automatically.
    case lost(ConnectionID, next: ConnectionID?, AppError, at: CFAbsoluteTime)
    /// `didFailToConnect`: no attempt will succeed.
    case failed(ConnectionID, AppError)
    /// - isNews: Whether a callback is due: not for what BlueZ knew already.
    case name(String, isNews: Bool)
    /// The ATT_MTU of the link is known, or has grown.
    case mtu(Int, ConnectionID)
    /// - adapter: The address of the adapter that BlueZ says this of.
    case bonded(Bool, adapter: String?)
    /// The one behind the private address it had when it was found.
    case identity(DeviceIdentity)
    case answer(AttributeAnswer, ConnectionID)
    /// These attributes are not valid any longer (IV-1).
    case servicesChanged([AttributeID], ConnectionID)
    case written(CommandProgress, ConnectionID)
    /// It is time to say that there is room for writes without response.
    case room(ConnectionID)
    case question(PairingQuestion, ticket: Int)
    case questionEnded
    case channelOpened(UInt32, CBL2CAPPSM, PassedSocket, ConnectionID)
    case channelRefused(CBL2CAPPSM, AppError, ConnectionID)
    /// The link has ended, or the peripheral does not use it any longer.
    case endChannel(UInt32)
    /// The channel has ended, which is known by ``CentralRequest/channelEnded(_:_:)``.
    case channelEnded(UInt32)
}

extension CentralEvent {
    var outlivesManager: Bool { if case .bondRemoved = self { true } else { false } }
}

extension RestorationPlan {
    /// Of the connect that the item at `index` stands for.
    static func connectionID(at index: Int) -> ConnectionID {
        ConnectionID(request: UInt32(truncatingIfNeeded: index) &+ 1)
    }

    /// The token of the scan.
    static let scanToken: UInt64 = 1
}
