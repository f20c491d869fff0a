public import Foundation

/// Receives the events of a ``CBCentralManager``, on the queue given to its `init`, one at a time and in order.
///
/// Only ``centralManagerDidUpdateState(_:)`` must be implemented. Methods that are not implemented do nothing.
/// - Important: On Linux, a method whose name or types differ slightly is a different method: it compiles, but is never
///   called. Also, if a class conforms without a method that its *subclass* adds, the subclass' method is not called
///   either: give the base class an empty method and override that.
/// - SeeAlso: Apple, `CBCentralManagerDelegate`.
public protocol CBCentralManagerDelegate: NSObjectProtocol {
    /// The manager's `state` has changed. Always called once after `init`; no command is accepted before it.
    func centralManagerDidUpdateState(_ central: CBCentralManager)

    /// The manager was created with the restore identifier of a manager of an earlier process. The very first callback,
    /// if there is something to restore; no command is accepted yet.
    /// - Parameters:
    ///   - central: The manager.
    ///   - dict: `CBCentralManagerRestoredState…` keys. Each may be missing.
    func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any])

    /// A scan has found a peripheral. Keep the peripheral if you want to connect to it.
    /// - Parameters:
    ///   - central: The manager that scans.
    ///   - peripheral: The same object each time, as long as the app keeps it.
    ///   - advertisementData: `CBAdvertisementData…` keys, from advertisement and scan response together. A key is
    ///     present if its data is; `CBAdvertisementDataIsConnectable` always is.
    ///   - RSSI: Signal strength in dBm; 127: not available.
    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber)

    /// The peripheral is connected. Nothing has been discovered yet.
    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral)

    /// An attempt to connect has failed permanently. Rare, because attempts do not time out. Never called after a
    /// cancel.
    func centralManager(_ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?)

    /// A connection has ended, or an attempt was cancelled. Called by the default implementation of
    /// ``centralManager(_:didDisconnectPeripheral:timestamp:isReconnecting:error:)``: implement either one.
    /// - Parameters:
    ///   - central: The manager.
    ///   - peripheral: The peripheral.
    ///   - error: Nil if the app requested it.
    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?)

    /// A connection has ended, or an attempt was cancelled. The peripheral's services are nil now.
    /// - Parameters:
    ///   - central: The manager.
    ///   - peripheral: The peripheral.
    ///   - timestamp: When the link ended.
    ///   - isReconnecting: Whether `CBConnectPeripheralOptionEnableAutoReconnect` makes it reconnect automatically.
    ///   - error: Nil if the app requested it; otherwise a ``CBError`` with the reason.
    /// - Important: Unlike Apple's, this method is always the one called; its default implementation calls the one
    ///   without a timestamp. A delegate with both gets only this one.
    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?)

    /// A peer that matches the registration has connected to, or disconnected from, this system.
    func centralManager(
        _ central: CBCentralManager, connectionEventDidOccur event: CBConnectionEvent, for peripheral: CBPeripheral)

    /// `ancsAuthorized` has changed. Never called: Linux has no Apple Notification Center Service.
    func centralManager(_ central: CBCentralManager, didUpdateANCSAuthorizationFor peripheral: CBPeripheral)
}

// Methods that Apple's protocol declares optional. The defaults do nothing, so a delegate may forward every call to
// another one.
extension CBCentralManagerDelegate {
    /// Does nothing.
    public func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {}

    /// Does nothing.
    public func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) {}

    /// Does nothing.
    public func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {}

    /// Does nothing.
    public func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) {}

    /// Does nothing.
    public func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
    ) {}

    /// Calls the method without a timestamp.
    public func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
    ) {
        centralManager(central, didDisconnectPeripheral: peripheral, error: error)
    }

    /// Does nothing.
    public func centralManager(
        _ central: CBCentralManager, connectionEventDidOccur event: CBConnectionEvent, for peripheral: CBPeripheral
    ) {}

    /// Does nothing.
    public func centralManager(
        _ central: CBCentralManager, didUpdateANCSAuthorizationFor peripheral: CBPeripheral
    ) {}
}
