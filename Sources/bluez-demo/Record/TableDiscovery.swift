import BluezKit
import BluezKitSimulator
import Foundation

/// Discovers the whole table of a device, level by level. Each request has exactly one answer, so counting them shows
/// when all are answered.
struct TableDiscovery {
    /// Those that are only included follow the others.
    private(set) var services: [CBService] = []
    private var pending = 0
    private var visited = Set<ObjectIdentifier>()

    mutating func begin(_ peripheral: CBPeripheral) {
        pending = 1
        peripheral.discoverServices(nil)
    }

    // Each of these takes an answer, asks further, and returns whether everything is known.

    mutating func found(_ services: [CBService], _ peripheral: CBPeripheral) -> Bool {
        for service in services where visited.insert(ObjectIdentifier(service)).inserted {
            self.services.append(service)
            pending += 2
            peripheral.discoverIncludedServices(nil, for: service)
            peripheral.discoverCharacteristics(nil, for: service)
        }
        return answered()
    }

    mutating func foundCharacteristics(of service: CBService, _ peripheral: CBPeripheral) -> Bool {
        for characteristic in service.characteristics ?? [] {
            pending += 1
            peripheral.discoverDescriptors(for: characteristic)
        }
        return answered()
    }

    mutating func answered() -> Bool {
        pending -= 1
        return pending == 0
    }

    /// The table, without values.
    var table: [Recording.Service] {
        services.map { service in
            Recording.Service(
                service.uuid.uuidString, isPrimary: service.isPrimary,
                includes: (service.includedServices ?? []).map(\.uuid.uuidString),
                (service.characteristics ?? []).map { characteristic in
                    Recording.Characteristic(
                        characteristic.uuid.uuidString, .init(characteristic.properties),
                        descriptors: (characteristic.descriptors ?? []).map { .init($0.uuid.uuidString) })
                })
        }
    }

    func place(of characteristic: CBCharacteristic) -> (service: Int, characteristic: Int)? {
        for (index, service) in services.enumerated() {
            if let number = service.characteristics?.firstIndex(where: { $0 === characteristic }) {
                return (index, number)
            }
        }
        return nil
    }
}

extension [Recording.Service] {
    /// Whether the table is the same, apart from values.
    func isLaidOut(as other: [Recording.Service]) -> Bool { map(\.bare) == other.map(\.bare) }
}

extension Recording.Service {
    fileprivate var bare: Recording.Service {
        var service = self
        for index in service.characteristics.indices {
            (service.characteristics[index].value, service.characteristics[index].error) = (nil, nil)
            for place in service.characteristics[index].descriptors.indices {
                let descriptor = service.characteristics[index].descriptors[place]
                service.characteristics[index].descriptors[place] = .init(descriptor.uuid)
            }
        }
        return service
    }
}

extension VirtualCharacteristic.Flags {
    /// Both have the bits of the declaration; those above are CoreBluetooth's own.
    init(_ properties: CBCharacteristicProperties) {
        self.init(rawValue: UInt16(truncatingIfNeeded: properties.rawValue & 0xFF))
    }
}

extension VirtualAdvertisement {
    /// What `didDiscover` tells. It leaves out the flags: without them BlueZ would not show the device to every app.
    init(_ data: [String: Any]) {
        func uuids(_ key: String) -> [String] { (data[key] as? [CBUUID] ?? []).map(\.uuidString) }
        // Step by step: Swift 6.0 does not compile it as one expression.
        let services: [(key: String, value: [UInt8])] =
            (data[CBAdvertisementDataServiceDataKey] as? [CBUUID: Data] ?? [:])
            .map { ($0.uuidString, [UInt8]($1)) }
        let companies: [(key: UInt16, value: [UInt8])] =
            (data[BluezAdvertisementManufacturerEntriesKey] as? [Data] ?? [])
            .filter { $0.count >= 2 }
            .map { data in
                let bytes = [UInt8](data)
                return (UInt16(bytes[0]) | UInt16(bytes[1]) << 8, Array(bytes.dropFirst(2)))
            }
        self.init(
            localName: data[CBAdvertisementDataLocalNameKey] as? String,
            serviceUUIDs: uuids(CBAdvertisementDataServiceUUIDsKey)
                + uuids(CBAdvertisementDataOverflowServiceUUIDsKey),
            serviceData: AdvertisedEntries(services.sorted { $0.key < $1.key }),
            manufacturerData: AdvertisedEntries(companies),
            txPower: (data[CBAdvertisementDataTxPowerLevelKey] as? NSNumber).flatMap { Int16(exactly: $0.intValue) },
            solicitedServiceUUIDs: uuids(CBAdvertisementDataSolicitedServiceUUIDsKey),
            isConnectable: (data[CBAdvertisementDataIsConnectable] as? NSNumber)?.boolValue ?? true)
    }
}

extension [UInt8] {
    /// The bytes of a descriptor's value, of which CoreBluetooth makes a text or a number.
    init(descriptorValue value: Any?) {
        switch value {
        case let text as String: self = Array(text.utf8)
        case let number as NSNumber:
            let bits = UInt16(truncatingIfNeeded: number.intValue)
            self = [UInt8(bits & 0xFF), UInt8(bits >> 8)]
        case let data as Data: self = Array(data)
        default: self = []
        }
    }
}
