import BluezDBus

/// Creates an advertisement from the properties of a client's object, with bluetoothd's checks.
enum AdvertisementParser {
    private static let failure = BlueZError.failed("Failed to parse advertisement.")

    /// - Throws: ``BlueZError``, the same one for every fault.
    static func parse(_ properties: [String: Value], isDiscoverable: Bool, name: String) throws -> VirtualAdvertisement
    {
        var content = VirtualAdvertisement(flags: nil, isConnectable: false)
        switch properties["Type"] {
        case .string("peripheral")?: content.isConnectable = true
        case .string("broadcast")?, nil: break
        default: throw failure
        }
        content.serviceUUIDs = try uuids(properties["ServiceUUIDs"])
        content.solicitedServiceUUIDs = try uuids(properties["SolicitUUIDs"])
        content.manufacturerData = try manufacturerData(properties["ManufacturerData"])
        content.serviceData = try serviceData(properties["ServiceData"])
        content.other = try otherData(properties["Data"])
        let includes = try texts(properties["Includes"])
        guard includes.allSatisfy({ ["tx-power", "appearance", "local-name"].contains($0) }) else { throw failure }
        if includes.contains("tx-power") { content.txPower = 0 }
        // The adapter has no appearance, so the kernel refuses.
        if includes.contains("appearance") { throw BlueZError.failed("Failed to register advertisement") }
        switch properties["Appearance"] {
        case .uint16(let number)?: content.appearance = number
        case nil: break
        default: throw failure
        }
        switch properties["LocalName"] {
        case .string(let text)?:
            guard !includes.contains("local-name") else { throw failure }
            content.localName = text
        case nil: if includes.contains("local-name") { content.localName = name }
        default: throw failure
        }
        switch properties["Discoverable"] {
        case .bool(let on)?:
            guard !on || content.isConnectable else { throw failure }
            if on { content.flags = 0x06 }
        case nil: if isDiscoverable, content.isConnectable { content.flags = 0x06 }
        default: throw failure
        }
        for name in ["Timeout", "Duration", "DiscoverableTimeout"] {
            guard let value = properties[name] else { continue }
            guard case .uint16 = value else { throw failure }
        }
        return content
    }

    private static func texts(_ value: Value?) throws -> [String] {
        guard let value else { return [] }
        guard case .array("s", _) = value, let texts = value.stringsValue else { throw failure }
        return texts
    }

    private static func uuids(_ value: Value?) throws -> [String] {
        try texts(value).map {
            guard let uuid = UUIDText.checked($0) else { throw failure }
            return uuid
        }
    }

    private static func manufacturerData(_ value: Value?) throws -> AdvertisedEntries<UInt16> {
        guard let value else { return [:] }
        guard case .dictionary("q", "v", let entries) = value else { throw failure }
        var result: AdvertisedEntries<UInt16> = [:]
        for entry in entries {
            guard case .uint16(let company) = entry.key, let bytes = entry.value.bytesValue, bytes.count <= 27 else {
                throw failure
            }
            result[company] = bytes
        }
        return result
    }

    private static func serviceData(_ value: Value?) throws -> AdvertisedEntries<String> {
        guard let value else { return [:] }
        guard let entries = value.dictionaryValue else { throw failure }
        var result: AdvertisedEntries<String> = [:]
        for (text, value) in entries.sorted(by: { $0.key < $1.key }) {
            guard let uuid = UUIDText.checked(text), let bytes = value.bytesValue,
                bytes.count + UUIDText.bytes(uuid).count <= 29
            else { throw failure }
            result[uuid] = bytes
        }
        return result
    }

    private static func otherData(_ value: Value?) throws -> [UInt8: [UInt8]] {
        guard let value else { return [:] }
        guard case .dictionary("y", "v", let entries) = value else { throw failure }
        // Fields that bluetoothd generates.
        let reserved: Set<UInt8> = [
            0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0A, 0x14, 0x15, 0x16, 0x19, 0x1F, 0x20, 0x21, 0xFF,
        ]
        var result: [UInt8: [UInt8]] = [:]
        for entry in entries {
            guard case .byte(let type) = entry.key, let bytes = entry.value.bytesValue, !reserved.contains(type),
                bytes.count <= 29
            else { throw failure }
            result[type] = bytes
        }
        return result
    }
}
