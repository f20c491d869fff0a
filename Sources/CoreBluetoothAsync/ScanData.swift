public import CoreBluetooth

/// One report of a scan: who advertises what.
public struct ScanData: Sendable {
    /// The peripheral. As long as this, or another reference to it, is kept, it can be connected.
    public let peripheral: Peripheral
    /// What is known of its advertising packet and scan response so far.
    public let advertisementData: AdvertisementData
    /// Signal strength in dBm; nil if it is not available.
    public let rssi: Int?
}

/// The fields of an advertisement.
public struct AdvertisementData: Hashable, Sendable {
    /// The name that is advertised.
    public let localName: String?
    /// A company identifier (two bytes, little-endian) and the company's data.
    public let manufacturerData: Data?
    /// The same of every company, in the order in which they were sent; on Apple's systems only that one.
    public let manufacturerEntries: [Data]
    /// In dBm, as the peripheral claims.
    public let txPowerLevel: Int?
    /// Whether the peripheral accepts connections. On Linux always true, as BlueZ does not tell.
    public let isConnectable: Bool
    private let services: [Data]
    private let overflow: [Data]
    private let solicited: [Data]
    private let dataOfServices: [Data: Data]

    /// - Parameter dictionary: What `centralManager(_:didDiscover:advertisementData:rssi:)` has.
    public init(_ dictionary: [String: Any]) {
        func uuids(_ key: String) -> [Data] { (dictionary[key] as? [CBUUID] ?? []).map(\.data) }
        localName = dictionary[CBAdvertisementDataLocalNameKey] as? String
        manufacturerData = dictionary[CBAdvertisementDataManufacturerDataKey] as? Data
        // BluezAdvertisementManufacturerEntriesKey, which Apple's systems do not have.
        manufacturerEntries =
            dictionary["BluezAdvertisementManufacturerEntries"] as? [Data] ?? manufacturerData.map { [$0] } ?? []
        txPowerLevel = (dictionary[CBAdvertisementDataTxPowerLevelKey] as? NSNumber)?.intValue
        isConnectable = (dictionary[CBAdvertisementDataIsConnectable] as? NSNumber)?.boolValue ?? false
        services = uuids(CBAdvertisementDataServiceUUIDsKey)
        overflow = uuids(CBAdvertisementDataOverflowServiceUUIDsKey)
        solicited = uuids(CBAdvertisementDataSolicitedServiceUUIDsKey)
        let data = dictionary[CBAdvertisementDataServiceDataKey] as? [CBUUID: Data] ?? [:]
        dataOfServices = Dictionary(data.map { ($0.data, $1) }) { first, _ in first }
    }

    /// The services that are advertised.
    public var serviceUUIDs: [CBUUID] { services.map { CBUUID(data: $0) } }
    /// Services that did not fit into the advertisement of an Apple device.
    public var overflowServiceUUIDs: [CBUUID] { overflow.map { CBUUID(data: $0) } }
    /// The services that the peripheral looks for.
    public var solicitedServiceUUIDs: [CBUUID] { solicited.map { CBUUID(data: $0) } }
    /// Data of services, by service.
    public var serviceData: [CBUUID: Data] {
        Dictionary(dataOfServices.map { (CBUUID(data: $0), $1) }) { first, _ in first }
    }
}
