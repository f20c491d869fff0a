import Foundation

/// Receives the events of a ``CBCentralManager``, on the queue given to its `init`, one at a time and in order.
///
/// Only ``centralManagerDidUpdateState(_:)`` must be implemented. What is left out does nothing.
/// - Important: On Linux a method that is spelt, or typed, a little differently is a method of its own: it compiles, and
///   is never called. And if a class conforms without a method that its *subclass* adds, the subclass's is not called
///   either: give the base an empty one and override that.
/// - SeeAlso: Apple, `CBCentralManagerDelegate`.
public protocol CBCentralManagerDelegate: NSObjectProtocol {
    /// The manager's `state` has changed. Comes once after `init` in any case; no command is accepted before it.
    func centralManagerDidUpdateState(_ central: CBCentralManager)

    /// The manager was created with the restore identifier of one that the process lost. The very first callback, if
    /// there is something to restore; no command is accepted yet.
    /// - Parameters:
    ///   - central: The manager.
    ///   - dict: `CBCentralManagerRestoredState…` keys. Each may be missing.
    func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any])

    /// A scan has found a peripheral. Keep the peripheral if you want to connect to it.
    /// - Parameters:
    ///   - central: The manager that scans.
    ///   - peripheral: The same object each time, as long as the app keeps it.
    ///   - advertisementData: `CBAdvertisementData…` keys, from advertisement and scan response together. A key is there
    ///     if its data is; `CBAdvertisementDataIsConnectable` always.
    ///   - RSSI: Signal strength in dBm; 127: not available.
    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber)

    /// The peripheral is connected. Nothing is discovered yet.
    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral)

    /// An attempt to connect has ended for good. Rare: attempts do not time out. Never comes after a cancel.
    func centralManager(_ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?)

    /// A connection has ended, or an attempt was cancelled. Called by the default of
    /// ``centralManager(_:didDisconnectPeripheral:timestamp:isReconnecting:error:)``: implement either one.
    /// - Parameters:
    ///   - central: The manager.
    ///   - peripheral: Whose connection or attempt it was.
    ///   - error: Nil if the app asked for it.
    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?)

    /// A connection has ended, or an attempt was cancelled. The peripheral's services are gone.
    /// - Parameters:
    ///   - central: The manager.
    ///   - peripheral: Whose connection or attempt it was.
    ///   - timestamp: When the link went down.
    ///   - isReconnecting: Whether `CBConnectPeripheralOptionEnableAutoReconnect` makes it connect again by itself.
    ///   - error: Nil if the app asked for it; else a ``CBError`` with the reason.
    /// - Important: Unlike Apple's, always this one is called; its default calls the one without time. A delegate with
    ///   both gets this one only.
    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?)

    /// A peer that was registered for has connected to, or disconnected from, this system.
    func centralManager(
        _ central: CBCentralManager, connectionEventDidOccur event: CBConnectionEvent, for peripheral: CBPeripheral)

    /// `ancsAuthorized` has changed. Never called: Linux has no Apple Notification Center Service.
    func centralManager(_ central: CBCentralManager, didUpdateANCSAuthorizationFor peripheral: CBPeripheral)
}

// What Apple's protocol declares optional. The defaults do nothing, so a delegate may forward every call to another.
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

    /// Calls the method without time.
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
