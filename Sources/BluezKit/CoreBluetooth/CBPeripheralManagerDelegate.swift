public import Foundation

/// Receives the events of a ``CBPeripheralManager``, on the queue given to its `init`, one at a time and in order.
///
/// Only ``peripheralManagerDidUpdateState(_:)`` must be implemented. Methods that are not implemented do nothing.
/// - Important: On Linux, a method whose name or types differ slightly is a different method: it compiles, but is never
///   called. Also, if a class conforms without a method that its *subclass* adds, the subclass' method is not called
///   either: give the base class an empty method and override that.
/// - SeeAlso: Apple, `CBPeripheralManagerDelegate`.
public protocol CBPeripheralManagerDelegate: NSObjectProtocol {
    /// The manager's `state` has changed. Always called once after `init`; no command is accepted before it. Add
    /// services and start advertising here, in `.poweredOn`: the comment of ``CBPeripheralManager`` shows it, and says
    /// what stays in the other states.
    func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager)

    /// The manager was created with the restore identifier of a manager of an earlier process. The very first callback,
    /// if there is something to restore, and called once at most. Services, advertisement and channels are published
    /// again when Bluetooth is on; do not add the services.
    ///
    /// ```swift
    /// func peripheralManager(_ peripheral: CBPeripheralManager, willRestoreState dict: [String: Any]) {
    ///     services = dict[CBPeripheralManagerRestoredStateServicesKey] as? [CBMutableService] ?? []
    ///     let characteristics = services.flatMap { $0.characteristics ?? [] }
    ///     measurement = characteristics.first { $0.uuid == CBUUID(string: "FFF1") } as? CBMutableCharacteristic
    /// }
    /// ```
    /// Requests refer to these objects, so use them in place of new ones; ``CBMutableService/restored(from:)`` finds
    /// the one that this version of the app would publish. No command is accepted yet, except those that withdraw:
    /// ``CBPeripheralManager/remove(_:)``, ``CBPeripheralManager/removeAllServices()``,
    /// ``CBPeripheralManager/stopAdvertising()`` and ``CBPeripheralManager/unpublishL2CAPChannel(_:)``. Their
    /// `subscribedCentrals` are empty: BlueZ has ended the subscriptions, and centrals subscribe again.
    /// - Parameters:
    ///   - peripheral: The manager.
    ///   - dict: `CBPeripheralManagerRestoredState…` keys, and ``BluezPeripheralManagerRestoredStateChannelsKey``. Each
    ///     may be missing.
    /// - SeeAlso: <doc:StateRestoration>.
    func peripheralManager(_ peripheral: CBPeripheralManager, willRestoreState dict: [String: Any])

    /// Answers ``CBPeripheralManager/startAdvertising(_:)``. If there is an error, nothing is advertised, or, with
    /// `CBError.alreadyAdvertising`, the previous data. Not called for restored advertising, nor for a start that
    /// ``CBPeripheralManager/stopAdvertising()`` has undone.
    func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?)

    /// Answers ``CBPeripheralManager/add(_:)``, in the order of the calls, with the same object. If there is an error
    /// it is not published.
    func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?)

    /// A central has subscribed; it is already in ``CBMutableCharacteristic/subscribedCentrals``. Begin to send:
    ///
    /// ```swift
    /// func peripheralManager(
    ///     _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
    /// ) {
    ///     guard characteristic === measurement, let value = values.last else { return }
    ///     _ = peripheral.updateValue(value, for: measurement, onSubscribedCentrals: [central])
    /// }
    /// ```
    func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic)

    /// A central has unsubscribed or disconnected, or the service was removed.
    func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic)

    /// A central reads a characteristic without a fixed value. Respond once, with
    /// ``CBPeripheralManager/respond(to:withResult:)``, here or later, within 5 s. What permissions forbid is refused
    /// without asking the app (RQ-7).
    func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest)

    /// A central writes, with or without response. All or nothing: respond once, with the first of these requests, as
    /// at ``CBPeripheralManager/respond(to:withResult:)``. There is at least one; here always one, because BlueZ makes
    /// a call for each.
    func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest])

    /// ``CBPeripheralManager/updateValue(_:for:onSubscribedCentrals:)`` returned false because there was no room, and
    /// there is room again. Each characteristic has its own room, and this does not tell which has it: try all for
    /// which it returned false.
    func peripheralManagerIsReady(toUpdateSubscribers peripheral: CBPeripheralManager)

    /// Answers ``CBPeripheralManager/publishL2CAPChannel(withEncryption:)``. If there is an error, the PSM is 0. Also
    /// called for each channel that is published again after a restoration, or where the manager resumes after a reset.
    func peripheralManager(
        _ peripheral: CBPeripheralManager, didPublishL2CAPChannel PSM: CBL2CAPPSM, error: (any Error)?)

    /// Answers ``CBPeripheralManager/unpublishL2CAPChannel(_:)``, when listening has ended. The streams of channels
    /// that were open end as well.
    func peripheralManager(
        _ peripheral: CBPeripheralManager, didUnpublishL2CAPChannel PSM: CBL2CAPPSM, error: (any Error)?)

    /// A central has opened a published channel. Keep the channel: releasing it closes it. Its `peer` is the
    /// ``CBCentral``, and its streams are not open yet: see ``CBL2CAPChannel``. Here `channel` is never nil: a central
    /// that cannot be accepted is refused, with a log line.
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

    /// Does nothing. After 5 s the central gets the error Unlikely Error (0x0E).
    public func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {}

    /// Does nothing. After 5 s the central gets the error Unlikely Error (0x0E), unless it expects no response.
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
