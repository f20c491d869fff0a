// Keys of the advertisement dictionary in `didDiscover`, and of the one that `startAdvertising` accepts.

/// The device's name in the advertisement, String. Also for `startAdvertising`.
public let CBAdvertisementDataLocalNameKey: String = "kCBAdvDataLocalName"

/// The advertised services, `[CBUUID]`. Also for `startAdvertising`.
public let CBAdvertisementDataServiceUUIDsKey: String = "kCBAdvDataServiceUUIDs"

/// The manufacturer's data, `Data`: two bytes of company identifier, little-endian, then the payload.
public let CBAdvertisementDataManufacturerDataKey: String = "kCBAdvDataManufacturerData"

/// Data of services, `[CBUUID: Data]`.
public let CBAdvertisementDataServiceDataKey: String = "kCBAdvDataServiceData"

/// The power the advertisement was sent with, `NSNumber`, dBm.
public let CBAdvertisementDataTxPowerLevelKey: String = "kCBAdvDataTxPowerLevel"

/// Services in Apple's overflow area, `[CBUUID]`.
public let CBAdvertisementDataOverflowServiceUUIDsKey: String = "kCBAdvDataHashedServiceUUIDs"

/// The solicited services, `[CBUUID]`.
public let CBAdvertisementDataSolicitedServiceUUIDsKey: String = "kCBAdvDataSolicitedServiceUUIDs"

/// Whether the device can be connected to, `NSNumber` of a Bool. Always present, and always true: BlueZ does not tell.
public let CBAdvertisementDataIsConnectable: String = "kCBAdvDataIsConnectable"
