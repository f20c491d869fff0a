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
    ///
    /// Begin here, and not after `init`, what needs Bluetooth. In any other state than `.poweredOn` the scan, attempts
    /// and connections have ended, of which there is no other callback: `isScanning` is false and each peripheral
    /// `.disconnected` already, unless the manager resumes (``BluezManagerOptionResumeAfterResetKey``).
    ///
    /// ```swift
    /// func centralManagerDidUpdateState(_ central: CBCentralManager) {
    ///     switch central.state {
    ///     case .poweredOn: central.scanForPeripherals(withServices: nil)
    ///     case .poweredOff: print("Bluetooth is switched off")
    ///     case .unauthorized: print("the D-Bus policy keeps this program from BlueZ")
    ///     case .unsupported: print("there is no adapter")
    ///     case .resetting, .unknown: break  // another state follows
    ///     }
    /// }
    /// ```
    func centralManagerDidUpdateState(_ central: CBCentralManager)

    /// The manager was created with the restore identifier of a manager of an earlier process. The very first callback,
    /// if there is something to restore, and called once at most; no command is accepted yet.
    ///
    /// Keep the peripherals, otherwise they are disconnected, and set their delegates: what has happened to them in
    /// the meantime is reported after ``centralManagerDidUpdateState(_:)``, which is the next callback.
    ///
    /// ```swift
    /// func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {
    ///     peripherals = dict[CBCentralManagerRestoredStatePeripheralsKey] as? [CBPeripheral] ?? []
    ///     for peripheral in peripherals { peripheral.delegate = self }
    /// }
    /// ```
    /// A peripheral has its state, `.connecting` or `.connected`, the services that were known, and `isNotifying`
    /// (RS-11). The scan, attempts and subscriptions resume automatically; the app need not ask for them again.
    /// - Parameters:
    ///   - central: The manager.
    ///   - dict: `CBCentralManagerRestoredState…` keys, and
    ///     ``BluezCentralManagerRestoredStateEndedChannelsKey``. Each may be missing.
    /// - SeeAlso: <doc:StateRestoration>.
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

    /// The peripheral is connected. Nothing has been discovered yet: `services` is nil, also if the link is another
    /// program's or comes back after a loss. Next, set its delegate and call ``CBPeripheral/discoverServices(_:)``.
    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral)

    /// An attempt to connect has failed permanently. Rare, because attempts do not time out. Never called after a
    /// cancel. The peripheral is `.disconnected`, and can be connected again when the cause is gone:
    /// `CBError.connectionLimitReached` (the adapter has no room for another link),
    /// `.peerRemovedPairingInformation` (see ``CBCentralManager/removeBond(with:completion:)``), or another one of
    /// `Docs/ERRORS.md`. ``BluezErrorAttemptsKey`` lists what was tried.
    func centralManager(_ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?)

    /// A connection has ended, or an attempt was cancelled. Called by the default implementation of
    /// ``centralManager(_:didDisconnectPeripheral:timestamp:isReconnecting:error:)``: implement either one.
    ///
    /// Requests to the peripheral that were not answered yet get no answer, so what waits for one must be ended here.
    /// Nothing connects again unless the app asks for it:
    ///
    /// ```swift
    /// func centralManager(
    ///     _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
    /// ) {
    ///     guard let error else { return }  // the app has cancelled it
    ///     print("lost \(peripheral.name ?? "the sensor"): \(error.localizedDescription)")
    ///     central.connect(peripheral)  // waits until it is back
    /// }
    /// ```
    /// - Parameters:
    ///   - central: The manager.
    ///   - peripheral: The peripheral.
    ///   - error: Nil if the app requested it.
    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?)

    /// A connection has ended, or an attempt was cancelled. The peripheral's services are nil now, its attributes are
    /// invalid, and its delegate gets no more callbacks (CN-10, CN-11). There is one call for each end, and none where
    /// Bluetooth was switched off or reset, or where the app has released the peripheral.
    ///
    /// If it reconnects, `peripheral.state` is `.connecting` here, and `didConnect` follows when the link is up:
    /// discover and subscribe again. ``CBCentralManager/cancelPeripheralConnection(_:)`` ends that.
    /// - Parameters:
    ///   - central: The manager.
    ///   - peripheral: The peripheral.
    ///   - timestamp: When the link ended, in seconds since the start of 2001 (UTC), like
    ///     `Date.timeIntervalSinceReferenceDate`.
    ///   - isReconnecting: Whether `CBConnectPeripheralOptionEnableAutoReconnect` makes it reconnect automatically.
    ///   - error: Nil if the app requested it; otherwise a ``CBError`` with the reason: `.connectionTimeout` (out of
    ///     range, or without power), `.peripheralDisconnected` (the peer has ended the link, or BlueZ, before 5.83,
    ///     gives no reason), or another one of `Docs/ERRORS.md`.
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
