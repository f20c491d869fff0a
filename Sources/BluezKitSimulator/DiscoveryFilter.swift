import BluezDBus

/// A filter that a client set with SetDiscoveryFilter.
struct DiscoveryFilter: Equatable {
    var uuids: [String] = []
    var rssi: Int16?
    var pathloss: UInt16?
    var transport = "auto"
    var reportsDuplicates = false
    var pattern: String?

    /// Whether bluetoothd 5.67 and later take it for none, on an adapter without classic Bluetooth
    /// (`merge_discovery_filters`).
    var isNone: Bool {
        uuids.isEmpty && rssi == nil && pathloss == nil && transport != "bredr" && !reportsDuplicates && pattern == nil
    }

    static let keys = ["UUIDs", "RSSI", "Pathloss", "Transport", "DuplicateData", "Discoverable", "Pattern"]

    /// - Throws: ``BlueZError/invalidArguments`` for values that bluetoothd rejects.
    init(_ values: [String: Value]) throws {
        for (key, value) in values {
            switch (key, value) {
            case ("UUIDs", .array("s", _)): uuids = (value.stringsValue ?? []).map(UUIDText.full)
            case ("RSSI", .int16(let v)) where (-127...20).contains(v): rssi = v
            case ("Pathloss", .uint16(let v)) where v <= 137: pathloss = v
            case ("Transport", .string(let v)) where ["auto", "bredr", "le"].contains(v): transport = v
            case ("DuplicateData", .bool(let v)): reportsDuplicates = v
            case ("Discoverable", .bool): break
            case ("Pattern", .string(let v)): pattern = v
            default: throw BlueZError.invalidArguments
            }
        }
        if rssi != nil, pathloss != nil { throw BlueZError.invalidArguments }
    }
}

/// One client's discovery.
struct DiscoverySession {
    let client: String
    var filter: DiscoveryFilter?
}

/// What the controller considers the same report.
struct ReportKey: Hashable {
    let address: String
    let content: VirtualAdvertisement?
}
