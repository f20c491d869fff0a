import Foundation

/// What an advertisement tells the app. The rest of a device's properties stays in the core.
extension DeviceProperties: Codable {
    private enum Key: String, CodingKey {
        case name, rssi, txPower, services, solicited, manufacturer, serviceData
    }

    init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: Key.self)
        func uuids(_ key: Key) throws -> [CBUUID] { try container.decode([CodableUUID].self, forKey: key).map(\.uuid) }
        self.init()
        name = try container.decodeIfPresent(String.self, forKey: .name)
        rssiDBm = try container.decodeIfPresent(Int16.self, forKey: .rssi)
        txPowerDBm = try container.decodeIfPresent(Int16.self, forKey: .txPower)
        (services, solicitedServices) = (try uuids(.services), try uuids(.solicited))
        manufacturerEntries = try container.decode([Data].self, forKey: .manufacturer)
        for (uuid, data) in try container.decode([CodableUUID: Data].self, forKey: .serviceData) {
            serviceData[uuid.uuid] = data
        }
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        try container.encodeIfPresent(name, forKey: .name)
        try container.encodeIfPresent(rssiDBm, forKey: .rssi)
        try container.encodeIfPresent(txPowerDBm, forKey: .txPower)
        try container.encode(services.map(CodableUUID.init), forKey: .services)
        try container.encode(solicitedServices.map(CodableUUID.init), forKey: .solicited)
        try container.encode(manufacturerEntries, forKey: .manufacturer)
        let data = serviceData.map { (CodableUUID($0), $1) }
        try container.encode(Dictionary(uniqueKeysWithValues: data), forKey: .serviceData)
    }
}
