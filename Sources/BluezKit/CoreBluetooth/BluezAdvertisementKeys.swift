// What `CBPeripheralManager.startAdvertising(_:)` takes on Linux beside Apple's two keys. Apps that use none of these
// advertise as on Apple.

/// **BluezKit addition.** Advertisement, `Data`: manufacturer data, the company's identifier first (two bytes, little
/// endian), as `CBAdvertisementDataManufacturerDataKey` gives it to those who scan.
public let BluezAdvertisementManufacturerDataKey: String = "BluezAdvertisementManufacturerData"

/// **BluezKit addition.** Advertisement, `[CBUUID: Data]`: service data, as `CBAdvertisementDataServiceDataKey` gives it
/// to those who scan.
public let BluezAdvertisementServiceDataKey: String = "BluezAdvertisementServiceData"

/// **BluezKit addition.** Advertisement, `NSNumber`: the shortest time between two advertisements, in milliseconds, 20 to
/// 10,485. Shorter means to be found sooner, and more current. Give the longest as well, or both are this. Before BlueZ
/// 5.87 a request that bluetoothd may ignore, unless it runs with `-E`.
public let BluezAdvertisementMinimumIntervalKey: String = "BluezAdvertisementMinimumInterval"

/// **BluezKit addition.** Advertisement, `NSNumber`: the longest time between two advertisements, in milliseconds; see
/// ``BluezAdvertisementMinimumIntervalKey``.
public let BluezAdvertisementMaximumIntervalKey: String = "BluezAdvertisementMaximumInterval"

/// **BluezKit addition.** Advertisement, `NSNumber`: the wanted transmission power in dBm, -127 to 20. The controller takes
/// what it can that is nearest, where it can choose at all. The power is then advertised too (3 bytes).
public let BluezAdvertisementTxPowerKey: String = "BluezAdvertisementTxPower"
