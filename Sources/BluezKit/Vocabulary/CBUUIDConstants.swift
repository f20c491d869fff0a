// UUIDs, as text, of the descriptors that CoreBluetooth treats specially. In parentheses: the type of
// `CBDescriptor.value`.

/// Characteristic Extended Properties (`NSNumber`; bit 0: reliable write, bit 1: writable auxiliaries).
public let CBUUIDCharacteristicExtendedPropertiesString: String = "2900"

/// Characteristic User Description (`String`).
public let CBUUIDCharacteristicUserDescriptionString: String = "2901"

/// Client Characteristic Configuration (`NSNumber`; 0: off, 1: notify, 2: indicate). It may be read, but not written:
/// use `setNotifyValue(_:for:)`.
public let CBUUIDClientCharacteristicConfigurationString: String = "2902"

/// Server Characteristic Configuration (`NSNumber`; 1: broadcast).
public let CBUUIDServerCharacteristicConfigurationString: String = "2903"

/// Characteristic Presentation Format (`Data`, 7 bytes).
public let CBUUIDCharacteristicFormatString: String = "2904"

/// Characteristic Aggregate Format (`Data`: handles of 2904 descriptors).
public let CBUUIDCharacteristicAggregateFormatString: String = "2905"

/// Valid Range (`Data`: the lower, then the upper limit).
public let CBUUIDCharacteristicValidRangeString: String = "2906"

/// Observation Schedule (`Data`).
public let CBUUIDCharacteristicObservationScheduleString: String = "2910"

/// Not a descriptor: the characteristic with which a peripheral announces the PSM of its L2CAP channel, a little-endian
/// `UInt16`.
public let CBUUIDL2CAPPSMCharacteristicString: String = "ABDD3056-28FA-441D-A470-55A75A52553A"
