import BluezKit
import Foundation

/// The content of one `didDiscover`, as plain values.
struct Advertisement: Equatable {
    /// A UUID and its assigned name, if any.
    struct Service: Equatable {
        let uuid: String
        let name: String?
        /// For people.
        var label: String { name ?? uuid }
    }

    let identifier: UUID
    var name: String?
    /// Nil: not available.
    var rssiDBm: Int?
    var services: [Service] = []
    var isConnectable: Bool?
    var txPowerDBm: Int?
    var manufacturerData: [UInt8]?
    var serviceData: [String: [UInt8]] = [:]

    init(identifier: UUID) { self.identifier = identifier }

    init(_ peripheral: CBPeripheral, _ data: [String: Any], rssi: NSNumber) {
        self.init(identifier: peripheral.identifier)
        name = peripheral.name ?? data[CBAdvertisementDataLocalNameKey] as? String
        rssiDBm = rssi.intValue == 127 ? nil : rssi.intValue
        let uuids = data[CBAdvertisementDataServiceUUIDsKey] as? [CBUUID] ?? []
        services = uuids.map { Service(uuid: $0.uuidString, name: $0.assignedName) }
        isConnectable = (data[CBAdvertisementDataIsConnectable] as? NSNumber)?.boolValue
        txPowerDBm = (data[CBAdvertisementDataTxPowerLevelKey] as? NSNumber)?.intValue
        manufacturerData = (data[CBAdvertisementDataManufacturerDataKey] as? Data).map { [UInt8]($0) }
        for (uuid, value) in data[CBAdvertisementDataServiceDataKey] as? [CBUUID: Data] ?? [:] {
            serviceData[uuid.uuidString] = [UInt8](value)
        }
    }

    /// Without keys that have no value.
    var json: JSONValue {
        var members: [(String, JSONValue)] = [
            ("event", "discovered"), ("identifier", .string(identifier.uuidString)), ("name", .optional(name)),
            ("rssi", .optional(rssiDBm)), ("services", .strings(services.map(\.uuid))),
        ]
        if let isConnectable { members.append(("connectable", .bool(isConnectable))) }
        if let txPowerDBm { members.append(("txPower", .int(txPowerDBm))) }
        if let manufacturerData { members.append(("manufacturerData", .string(manufacturerData.hex))) }
        if !serviceData.isEmpty {
            let sorted = serviceData.sorted { $0.key < $1.key }
            members.append(
                ("serviceData", .object(sorted.map { .init(key: $0.key, value: .string($0.value.hex)) })))
        }
        return .object(members.map { .init(key: $0.0, value: $0.1) })
    }
}

extension Sequence<UInt8> {
    /// `0a1b`.
    var hex: String { map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined() }
}
