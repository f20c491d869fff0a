import BluezDBus

/// The content of an advertisement, including the scan response.
public struct VirtualAdvertisement: Hashable, Sendable {
    /// The complete name.
    public var localName: String?
    /// Service UUIDs, with all 36 characters.
    public var serviceUUIDs: [String]
    /// By UUID.
    public var serviceData: AdvertisedEntries<String>
    /// By company identifier.
    public var manufacturerData: AdvertisedEntries<UInt16>
    /// In dBm.
    public var txPower: Int16?
    /// The appearance, an assigned number of the Bluetooth SIG.
    public var appearance: UInt16?
    /// Visible only with ``SimulatorOptions/isExperimental``.
    public var solicitedServiceUUIDs: [String]
    /// The Flags field. Without one of its two lowest bits the device is not discoverable, and BlueZ shows it only in
    /// a discovery with a filter.
    public var flags: UInt8?
    /// Whether a central can connect.
    public var isConnectable: Bool
    /// Fields of other types.
    var other: [UInt8: [UInt8]] = [:]

    /// An advertisement; UUIDs may be given as four digits.
    public init(
        localName: String? = nil, serviceUUIDs: [String] = [], serviceData: AdvertisedEntries<String> = [:],
        manufacturerData: AdvertisedEntries<UInt16> = [:], txPower: Int16? = nil, appearance: UInt16? = nil,
        solicitedServiceUUIDs: [String] = [], flags: UInt8? = 0x06, isConnectable: Bool = true
    ) {
        self.localName = localName
        self.serviceUUIDs = serviceUUIDs.map(UUIDText.full)
        self.serviceData = AdvertisedEntries(serviceData.lazy.map { (UUIDText.full($0), $1) })
        self.manufacturerData = manufacturerData
        self.txPower = txPower
        self.appearance = appearance
        self.solicitedServiceUUIDs = solicitedServiceUUIDs.map(UUIDText.full)
        self.flags = flags
        self.isConnectable = isConnectable
    }

    var isDiscoverable: Bool { (flags ?? 0) & 0x03 != 0 }

    /// Fields that bluetoothd does not interpret, by type.
    var unparsed: [UInt8: [UInt8]] {
        let bytes = solicitedServiceUUIDs.map(UUIDText.bytes)
        let short = bytes.filter { $0.count == 2 }.flatMap { $0 }, long = bytes.filter { $0.count == 16 }.flatMap { $0 }
        var fields: [UInt8: [UInt8]] = [:]
        if !short.isEmpty { fields[0x14] = short }
        if !long.isEmpty { fields[0x15] = long }
        return fields
    }
}

/// One advertisement as a scanner reports it.
struct AdvertisingReport {
    var address: String
    var addressType: String
    var rssi: Int16
    var content: VirtualAdvertisement
}
