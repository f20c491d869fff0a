// MARK: Options of CBCentralManager.init

/// Manager option, Bool: show a system alert if Bluetooth is off. Accepted on Linux, without effect.
public let CBCentralManagerOptionShowPowerAlertKey: String = "kCBInitOptionShowPowerAlert"

/// Manager option, String: preserve and restore this manager's state under this name, unique within the app.
public let CBCentralManagerOptionRestoreIdentifierKey: String = "kCBInitOptionRestoreIdentifier"

/// Manager option, Bool: Apple's audio accessory extension. Accepted on Linux, without effect.
public let CBCentralManagerOptionDeviceAccessForMedia: String = "kCBInitOptionDeviceAccessForMedia"

// MARK: Options of scanForPeripherals

/// Scan option, Bool, default false: report each advertisement instead of each peripheral once.
public let CBCentralManagerScanOptionAllowDuplicatesKey: String = "kCBScanOptionAllowDuplicates"

/// Scan option, `[CBUUID]`: also report peripherals that solicit one of these services.
public let CBCentralManagerScanOptionSolicitedServiceUUIDsKey: String = "kCBScanOptionSolicitedServiceUUIDs"

// MARK: Options of connect

/// Connect option, Bool: alert the user on connecting while the app is suspended. Accepted on Linux, without effect.
public let CBConnectPeripheralOptionNotifyOnConnectionKey: String = "kCBConnectOptionNotifyOnConnection"

/// Connect option, Bool: alert the user on disconnecting while the app is suspended. Accepted on Linux, without effect.
public let CBConnectPeripheralOptionNotifyOnDisconnectionKey: String = "kCBConnectOptionNotifyOnDisconnection"

/// Connect option, Bool: alert the user on notifications while the app is suspended. Accepted on Linux, without effect.
public let CBConnectPeripheralOptionNotifyOnNotificationKey: String = "kCBConnectOptionNotifyOnNotification"

/// Connect option, NSNumber: seconds to wait before starting to connect.
public let CBConnectPeripheralOptionStartDelayKey: String = "kCBConnectOptionStartDelay"

/// Connect option, Bool: also connect classic profiles once bonded. Accepted on Linux, without effect.
public let CBConnectPeripheralOptionEnableTransportBridgingKey: String = "kCBConnectOptionEnableTransportBridging"

/// Connect option, Bool: the accessory needs Apple's notification service. Accepted on Linux, without effect.
public let CBConnectPeripheralOptionRequiresANCS: String = "kCBConnectOptionRequiresANCS"

/// Connect option, Bool: reconnect automatically when the link is lost; see
/// `centralManager(_:didDisconnectPeripheral:timestamp:isReconnecting:error:)`.
public let CBConnectPeripheralOptionEnableAutoReconnect: String = "kCBConnectOptionEnableAutoReconnect"

// MARK: Keys of centralManager(_:willRestoreState:)

/// Restored state, `[CBPeripheral]`: the peripherals that were connected or being connected.
public let CBCentralManagerRestoredStatePeripheralsKey: String = "kCBRestoredPeripherals"

/// Restored state, `[CBUUID]`: the services that were scanned for; missing if there was no scan, or no filter.
public let CBCentralManagerRestoredStateScanServicesKey: String = "kCBRestoredScanServices"

/// Restored state, `[String: Any]`: the options of the scan that was running.
public let CBCentralManagerRestoredStateScanOptionsKey: String = "kCBRestoredScanOptions"
