// MARK: Options of CBPeripheralManager.init

/// Manager option, Bool: show a system alert if Bluetooth is off. Accepted on Linux, without effect.
public let CBPeripheralManagerOptionShowPowerAlertKey: String = "kCBInitOptionShowPowerAlert"

/// Manager option, String: preserve and restore this manager's state under this name, unique within the app.
public let CBPeripheralManagerOptionRestoreIdentifierKey: String = "kCBInitOptionRestoreIdentifier"

// MARK: Keys of peripheralManager(_:willRestoreState:)

/// Restored state, `[CBMutableService]`: the services that were, and are, published.
public let CBPeripheralManagerRestoredStateServicesKey: String = "kCBRestoredServices"

/// Restored state, `[String: Any]`: the data passed to `startAdvertising`.
public let CBPeripheralManagerRestoredStateAdvertisementDataKey: String = "kCBRestoredAdvertisement"
