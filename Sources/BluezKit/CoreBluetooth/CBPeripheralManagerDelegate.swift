public import Foundation

/// Receives the events of a ``CBPeripheralManager``, on the queue given to its `init`, one at a time and in order.
///
/// Only ``peripheralManagerDidUpdateState(_:)`` must be implemented. Methods that are not implemented do nothing.
/// - Important: On Linux, a method whose name or types differ slightly is a different method: it compiles, but is never
///   called. Also, if a class conforms without a method that its *subclass* adds, the subclass' method is not called
///   either: give the base class an empty method and override that.
/// - SeeAlso: Apple, `CBPeripheralManagerDelegate`.
public protocol CBPeripheralManagerDelegate: NSObjectProtocol {
    /// The manager's `state` has changed. Always called once after `init`; no command is accepted before it.
    func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager)

    /// The manager was created with the restore identifier of a manager of an earlier process. The very first callback,
    /// if there is something to restore; no command is accepted yet.
    /// - Parameters:
    ///   - peripheral: The manager.
    ///   - dict: `CBPeripheralManagerRestoredState…` keys. Each may be missing.
    func peripheralManager(_ peripheral: CBPeripheralManager, willRestoreState dict: [String: Any])

    /// Answers `startAdvertising(_:)`. If there is an error, nothing is advertised, or the previous data.
    func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?)

    /// Answers `add(_:)`, in the order of the calls, with the same object. If there is an error it is not published.
    func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?)

    /// A central has subscribed; it is already in `subscribedCentrals`.
    func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic)

    /// A central has unsubscribed or disconnected, or the service was removed.
    func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic)

    /// A central reads a characteristic without a fixed value. Respond once, with `respond(to:withResult:)`.
    func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest)

    /// A central writes. All or nothing: respond once, with the first of these requests.
    func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest])

    /// `updateValue` returned false, and there is room again.
    func peripheralManagerIsReady(toUpdateSubscribers peripheral: CBPeripheralManager)

    /// Answers `publishL2CAPChannel(withEncryption:)`. If there is an error, the PSM is 0.
    func peripheralManager(
        _ peripheral: CBPeripheralManager, didPublishL2CAPChannel PSM: CBL2CAPPSM, error: (any Error)?)

    /// Answers `unpublishL2CAPChannel(_:)`.
    func peripheralManager(
        _ peripheral: CBPeripheralManager, didUnpublishL2CAPChannel PSM: CBL2CAPPSM, error: (any Error)?)

    /// A central has opened a published channel. Keep the channel: releasing it closes it.
    func peripheralManager(_ peripheral: CBPeripheralManager, didOpen channel: CBL2CAPChannel?, error: (any Error)?)
}

// Methods that Apple's protocol declares optional. The defaults do nothing, so a delegate may forward every call to
// another one.
extension CBPeripheralManagerDelegate {
    /// Does nothing.
    public func peripheralManager(_ peripheral: CBPeripheralManager, willRestoreState dict: [String: Any]) {}

    /// Does nothing.
    public func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?) {}

    /// Does nothing.
    public func peripheralManager(
        _ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?
    ) {}

    /// Does nothing.
    public func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
    ) {}

    /// Does nothing.
    public func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic
    ) {}

    /// Does nothing. The central gets no answer, and its transaction times out.
    public func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {}

    /// Does nothing. The central gets no answer, and its transaction times out.
    public func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) {}

    /// Does nothing.
    public func peripheralManagerIsReady(toUpdateSubscribers peripheral: CBPeripheralManager) {}

    /// Does nothing.
    public func peripheralManager(
        _ peripheral: CBPeripheralManager, didPublishL2CAPChannel PSM: CBL2CAPPSM, error: (any Error)?
    ) {}

    /// Does nothing.
    public func peripheralManager(
        _ peripheral: CBPeripheralManager, didUnpublishL2CAPChannel PSM: CBL2CAPPSM, error: (any Error)?
    ) {}

    /// Does nothing.
    public func peripheralManager(
        _ peripheral: CBPeripheralManager, didOpen channel: CBL2CAPChannel?, error: (any Error)?
    ) {}
}
