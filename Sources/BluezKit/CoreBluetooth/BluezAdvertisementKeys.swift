/// **BluezKit addition.** In the dictionary of `didDiscover`, `[Data]`: every entry of manufacturer data, each in the
/// form of `CBAdvertisementDataManufacturerDataKey`, which has room for one of them: the first that is no iBeacon.
/// There whenever that key is.
///
/// In a scan with `CBCentralManagerScanOptionAllowDuplicatesKey` these are the entries of one advertisement and its
/// scan response, in the order in which they were sent. In other scans BlueZ adds those of earlier advertisements, each
/// company's at its first place.
public let BluezAdvertisementManufacturerEntriesKey: String = "BluezAdvertisementManufacturerEntries"

// Keys that `CBPeripheralManager.startAdvertising(_:)` accepts on Linux in addition to Apple's two keys. An app that
// uses none of them advertises as on Apple's systems.

/// **BluezKit addition.** Advertisement, `Data`: manufacturer data, beginning with the company identifier (two bytes,
/// little endian), in the form of `CBAdvertisementDataManufacturerDataKey`.
public let BluezAdvertisementManufacturerDataKey: String = "BluezAdvertisementManufacturerData"

/// **BluezKit addition.** Advertisement, `[CBUUID: Data]`: service data, in the form of
/// `CBAdvertisementDataServiceDataKey`.
public let BluezAdvertisementServiceDataKey: String = "BluezAdvertisementServiceData"

/// **BluezKit addition.** Advertisement, `[CBUUID]`: services that this device wants to use on the device that connects
/// to it, in the form of `CBAdvertisementDataSolicitedServiceUUIDsKey`. An iPhone lists an accessory that solicits its
/// notification center service in its Bluetooth settings.
public let BluezAdvertisementSolicitedServiceUUIDsKey: String = "BluezAdvertisementSolicitedServiceUUIDs"

/// **BluezKit addition.** Advertisement, `NSNumber`: the minimum time between two advertisements, in milliseconds, 20
/// to 10,485. With shorter intervals the device is found sooner and the data is more current. Set the maximum as well,
/// otherwise both are set to this value. Before BlueZ 5.87, bluetoothd may ignore the request, unless it runs with
/// `-E`.
public let BluezAdvertisementMinimumIntervalKey: String = "BluezAdvertisementMinimumInterval"

/// **BluezKit addition.** Advertisement, `NSNumber`: the maximum time between two advertisements, in milliseconds; see
/// ``BluezAdvertisementMinimumIntervalKey``.
public let BluezAdvertisementMaximumIntervalKey: String = "BluezAdvertisementMaximumInterval"

/// **BluezKit addition.** Advertisement, `NSNumber`: the desired transmission power in dBm, -127 to 20. The controller
/// uses the nearest power level it supports, if it can choose. The power is then advertised too (3 bytes).
public let BluezAdvertisementTxPowerKey: String = "BluezAdvertisementTxPower"
