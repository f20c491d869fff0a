import BluezKitRestore
import Foundation

/// A peripheral's record on disk, and restoring it.
extension CBPeripheral {
    /// The record to preserve; nil: the app is neither connected nor connecting.
    func record(adapter: String?) -> Snapshot.Peripheral? {
        let shared = shared.withLock { $0 }
        let state: Snapshot.Peripheral.State
        switch shared.state {
        case .connecting: state = .connecting
        case .connected: state = .connected
        default: return nil
        }
        return Snapshot.Peripheral(
            identifier: identifier, identity: shared.resolved?.identifier, name: shared.name, adapter: adapter,
            state: state, isBonded: shared.isBonded, options: shared.connectRequest,
            services: shared.services.map { record(of: $0, shared) },
            channels: shared.channels.isEmpty ? nil : shared.channels)
    }

    private func record(of listed: [CBService], _ shared: Shared) -> [Snapshot.Service] {
        let listedPaths = Set(listed.map(\.objectPath))
        return shared.attributes.values.compactMap { $0 as? CBService }.sorted { $0.objectPath < $1.objectPath }
            .compactMap { $0.record(isListed: listedPaths.contains($0.objectPath), shared.subscribed) }
    }

    /// Restores the peripheral's state. Before the app has seen it.
    /// - Parameters:
    ///   - isConnected: Whether it is restored as connected, with its discovered attributes.
    ///   - path: The device's object path now.
    /// - Returns: The generation of its connect.
    func restore(_ record: Snapshot.Peripheral, isConnected: Bool, path: String) -> UInt64 {
        let services = isConnected ? record.services.map { makeServices($0, path) } : nil
        return shared.withLock { shared in
            shared.state = isConnected ? .connected : .connecting
            shared.name = record.name ?? shared.name
            shared.resolved = record.resolved ?? shared.resolved
            shared.isBonded = record.isBonded
            shared.connectRequest = record.options
            if let services {
                shared.services = services.listed
                shared.attributes = services.all
                shared.subscribed = services.subscribed
            }
            return core.begin()
        }
    }

    private func makeServices(
        _ records: [Snapshot.Service], _ path: String
    ) -> (listed: [CBService], all: [String: CBAttribute], subscribed: Set<String>) {
        var all: [String: CBAttribute] = [:]
        var listed: [CBService] = []
        var subscribed: Set<String> = []
        for record in records {
            let service = CBService(
                uuid: record.uuid.cbUUID, isPrimary: record.isPrimary, objectPath: "\(path)/\(record.element.text)",
                peripheral: self, layout: record.layout)
            all[service.objectPath] = service
            if !record.isOnlyIncluded { listed.append(service) }
            let characteristics = record.characteristics?.map { record in
                let characteristic = CBCharacteristic(
                    uuid: record.uuid.cbUUID, properties: CBCharacteristicProperties(rawValue: record.properties),
                    objectPath: "\(service.objectPath)/\(record.element.text)", service: service)
                let descriptors = record.descriptors?.map { record in
                    CBDescriptor(
                        uuid: record.uuid.cbUUID, objectPath: "\(characteristic.objectPath)/\(record.element.text)",
                        characteristic: characteristic)
                }
                for descriptor in descriptors ?? [] { all[descriptor.objectPath] = descriptor }
                characteristic.addDiscovered(descriptors: descriptors)
                if record.isNotifying {
                    characteristic.setNotifying(true)
                    subscribed.insert(characteristic.objectPath)
                }
                all[characteristic.objectPath] = characteristic
                return characteristic
            }
            service.addDiscovered(characteristics: characteristics)
        }
        for record in records {
            guard let included = record.includedServices, let service = all["\(path)/\(record.element.text)"] else {
                continue
            }
            (service as? CBService)?.addDiscovered(
                includedServices: included.compactMap { all["\(path)/\($0.text)"] as? CBService })
        }
        return (listed, all, subscribed)
    }

    /// Bluetooth was reset, and the connect request continues: a link becomes a pending connect.
    func suspend() {
        let ended = shared.withLock { shared in
            core.begin()
            shared.state = .connecting
            return endLink(&shared)
        }
        linkEnded(ended)
    }

    /// - Returns: The generation of its connect; nil if there is no connect request.
    func resume() -> UInt64? {
        shared.withLock { shared in
            guard shared.state == .connecting else { return nil }
            return core.begin()
        }
    }

    /// The subscribed characteristics, in table order.
    var subscribedCharacteristics: [CBCharacteristic] {
        shared.withLock { shared in shared.subscribed.sorted().compactMap { shared.attributes[$0] as? CBCharacteristic }
        }
    }

    /// The contents of the services when they were discovered, by path.
    var serviceLayouts: [String: String] {
        let services = shared.withLock { $0.attributes.values.compactMap { $0 as? CBService } }
        return Dictionary(services.map { ($0.objectPath, $0.layout) }) { first, _ in first }
    }

    func wantsNotifications(of characteristic: CBCharacteristic) -> Bool {
        shared.withLock { $0.subscribed.contains(characteristic.objectPath) }
    }

    /// - Parameter isBonded: As reported by BlueZ.
    func update(isBonded: Bool) {
        let isNew = shared.withLock { shared in
            defer { shared.isBonded = isBonded }
            return shared.isBonded != isBonded
        }
        if isNew { preserve() }
    }

    /// - Parameter identity: The device whose private address it had when it was found.
    func update(_ identity: DeviceIdentity) {
        resolved = identity
        core.manager.manager?.register(self, under: identity)
        preserve()
    }

    /// Updates the record in the file.
    func preserve() { core.manager.manager?.preserve(self) }

    /// Only of this service, so that the cost of a change does not grow with the table.
    func preserve(_ service: CBService) {
        core.manager.manager?.book?.record {
            let (isListed, subscribed) = shared.withLock { shared in
                (shared.services?.contains { $0 === service } == true, shared.subscribed)
            }
            return service.record(isListed: isListed, subscribed).map { [.service(is: $0, of: identifier)] } ?? []
        }
    }

    /// Only of this characteristic.
    func preserve(_ characteristic: CBCharacteristic) {
        core.manager.manager?.book?.record {
            let subscribed = shared.withLock { $0.subscribed }
            guard let record = characteristic.record(subscribed), let service = characteristic.service?.pathElement
            else { return [] }
            return [.characteristic(is: record, in: service, of: identifier)]
        }
    }
}

extension Snapshot.Peripheral {
    /// The identity address behind a private one.
    var resolved: DeviceIdentity? { identity.flatMap(DeviceIdentity.init(identifier:)) }
}

extension CBAttribute {
    fileprivate var pathElement: PathElement? {
        PathElement(
            String(objectPath[objectPath.index(after: objectPath.lastIndex(of: "/") ?? objectPath.startIndex)...]))
    }
}

extension CBService {
    fileprivate func record(isListed: Bool, _ subscribed: Set<String>) -> Snapshot.Service? {
        guard let element = pathElement, let attribute = AttributeUUID(uuid.uuidString) else { return nil }
        return Snapshot.Service(
            element: element, uuid: attribute, isPrimary: isPrimary, isOnlyIncluded: !isListed, layout: layout,
            includedServices: includedServices?.compactMap(\.pathElement),
            characteristics: characteristics?.compactMap { $0.record(subscribed) })
    }
}

extension CBCharacteristic {
    fileprivate func record(_ subscribed: Set<String>) -> Snapshot.Characteristic? {
        guard let element = pathElement, let attribute = AttributeUUID(uuid.uuidString) else { return nil }
        return Snapshot.Characteristic(
            element: element, uuid: attribute, properties: properties.rawValue,
            isNotifying: subscribed.contains(objectPath),
            descriptors: descriptors?.compactMap { descriptor in
                guard let element = descriptor.pathElement, let uuid = AttributeUUID(descriptor.uuid.uuidString) else {
                    return nil
                }
                return Snapshot.Descriptor(element: element, uuid: uuid)
            })
    }
}

extension AttributeUUID {
    /// Does not trap, because the text was checked.
    var cbUUID: CBUUID { CBUUID(string: text) }
}
