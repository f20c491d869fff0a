import BluezKitRestore
import Foundation

/// A peripheral's record on disk, and restoring it.
extension CBPeripheral {
    /// The record to preserve; nil: the app is neither connected nor connecting.
    func record(adapter: String?) -> Snapshot.Peripheral? {
        let shared = shared.withLock { $0 }
        let channels = shared.channels.filter { $0.connectionID == shared.connectionID }.map(\.psm)
        let state: Snapshot.Peripheral.State
        switch shared.state {
        case .connecting: state = .connecting
        case .connected: state = .connected
        default: return nil
        }
        return Snapshot.Peripheral(
            identifier: identifier, identity: shared.device.resolved?.identifier, name: shared.device.name,
            adapter: adapter, adapterAddress: shared.device.bondAdapter,
            state: state, isBonded: shared.device.isBonded, options: shared.connectRequest,
            isOurs: state == .connected ? shared.isOurs : nil,
            services: shared.services.map { record(of: $0, shared) },
            channels: channels.isEmpty ? nil : channels,
            connection: backend.isKept ? [shared.connectionID.request, shared.connectionID.link] : nil)
    }

    private func record(of listed: [CBService], _ shared: Shared) -> [Snapshot.Service] {
        let listed = Set(listed.map(\.id))
        return shared.attributes.values.compactMap { $0 as? CBService }.inTableOrder
            .compactMap { $0.record(isListed: listed.contains($0.id), isKept: backend.isKept, shared.subscribed) }
    }

    /// Restores the peripheral's state. Before the app has seen it.
    /// - Parameters:
    ///   - isConnected: Whether it is restored as connected, with its discovered attributes.
    ///   - connectionID: The one that the core has given its connect.
    ///   - isKept: Whether a keeper knows the attributes by the numbers in the record.
    func restore(
        _ record: Snapshot.Peripheral, isConnected: Bool, connectionID: ConnectionID, isKept: Bool = false
    ) {
        let services = isConnected ? record.services.map { makeServices($0, isKept: isKept) } : nil
        shared.withLock { shared in
            shared.state = isConnected ? .connected : .connecting
            shared.device.name = record.name ?? shared.device.name
            shared.device.resolved = record.resolved ?? shared.device.resolved
            (shared.device.isBonded, shared.device.bondAdapter) = (record.isBonded, record.adapterAddress)
            shared.isOurs = record.isOurs
            shared.connectRequest = record.options
            if let services {
                shared.services = services.listed
                shared.attributes = services.all
                shared.subscribed = services.subscribed
            }
            begin(&shared, connectionID)
        }
    }

    /// In the order, and so with the numbers, of ``RestoredLink``, unless a keeper has numbered them.
    private func makeServices(
        _ records: [Snapshot.Service], isKept: Bool
    ) -> (listed: [CBService], all: [AttributeID: CBAttribute], subscribed: Set<AttributeID>) {
        var numbers = AttributeNumbers()
        var all: [AttributeID: CBAttribute] = [:]
        var services: [PathElement: CBService] = [:]
        var listed: [CBService] = []
        var subscribed: Set<AttributeID> = []
        func add<A: CBAttribute>(_ path: PathElement..., kept: UInt32?, make: (AttributeID) -> A) -> A {
            let next = numbers.id(of: path.map(\.text).joined(separator: "/"), version: nil)
            let id = isKept ? kept.map { AttributeID(rawValue: $0) } ?? next : next
            let attribute = make(id)
            all[id] = attribute
            return attribute
        }
        for record in records {
            let service = add(record.element, kept: record.number) {
                CBService(
                    uuid: record.uuid.cbUUID, isPrimary: record.isPrimary, id: $0, element: record.element,
                    peripheral: self, layout: record.layout)
            }
            services[record.element] = service
            if !record.isOnlyIncluded { listed.append(service) }
            let characteristics = record.characteristics?.map { known in
                let characteristic = add(record.element, known.element, kept: known.number) {
                    CBCharacteristic(
                        uuid: known.uuid.cbUUID, properties: CBCharacteristicProperties(rawValue: known.properties),
                        id: $0, element: known.element, service: service)
                }
                if known.isNotifying {
                    characteristic.setNotifying(true)
                    subscribed.insert(characteristic.id)
                }
                characteristic.addDiscovered(
                    descriptors: known.descriptors?.map { descriptor in
                        add(record.element, known.element, descriptor.element, kept: descriptor.number) {
                            CBDescriptor(
                                uuid: descriptor.uuid.cbUUID, id: $0, element: descriptor.element,
                                characteristic: characteristic)
                        }
                    })
                return characteristic
            }
            service.addDiscovered(characteristics: characteristics)
        }
        for record in records {
            guard let included = record.includedServices, let service = services[record.element] else { continue }
            service.addDiscovered(includedServices: included.compactMap { services[$0] })
        }
        return (listed, all, subscribed)
    }

    /// Bluetooth was reset, and the connect request continues: a link becomes a pending connect.
    func suspend() {
        let ended = shared.withLock { shared in
            begin(&shared)
            shared.state = .connecting
            return endLink(&shared)
        }
        linkEnded(ended)
    }

    /// - Returns: Which connect this is; nil if there is no connect request.
    func resume() -> ConnectionID? {
        shared.withLock { $0.state == .connecting ? begin(&$0) : nil }
    }

    /// - Parameters:
    ///   - isBonded: As reported by BlueZ.
    ///   - adapter: The address of the adapter of which it says that.
    func update(isBonded: Bool, with adapter: String?) {
        let isNew = shared.withLock { shared in
            defer { (shared.device.isBonded, shared.device.bondAdapter) = (isBonded, adapter) }
            return shared.device.isBonded != isBonded || isBonded && shared.device.bondAdapter != adapter
        }
        if isNew { preserve() }
    }

    /// - Parameter identity: The device whose private address it had when it was found.
    func update(_ identity: DeviceIdentity) {
        resolved = identity
        mirror.manager?.register(self, under: identity)
        preserve()
    }

    /// Updates the record in the file.
    func preserve() { mirror.manager?.preserve(self) }

    /// Only of this service, so that the cost of a change does not grow with the table.
    func preserve(_ service: CBService) {
        mirror.manager?.book?.record {
            let (isListed, subscribed) = shared.withLock { shared in
                (shared.services?.contains { $0 === service } == true, shared.subscribed)
            }
            return service.record(isListed: isListed, isKept: backend.isKept, subscribed)
                .map { [.service(is: $0, of: identifier)] } ?? []
        }
    }

    /// Only of this characteristic.
    func preserve(_ characteristic: CBCharacteristic) {
        mirror.manager?.book?.record {
            let subscribed = shared.withLock { $0.subscribed }
            guard let record = characteristic.record(isKept: backend.isKept, subscribed),
                let service = characteristic.service?.element
            else { return [] }
            return [.characteristic(is: record, in: service, of: identifier)]
        }
    }
}

extension Snapshot.Peripheral {
    /// The identity address behind a private one.
    var resolved: DeviceIdentity? { identity.flatMap(DeviceIdentity.init(identifier:)) }

    /// As a keeper has it.
    var connectionID: ConnectionID? {
        connection.flatMap { $0.count == 2 ? ConnectionID(request: $0[0], link: $0[1]) : nil }
    }
}

extension CBService {
    fileprivate func record(isListed: Bool, isKept: Bool, _ subscribed: Set<AttributeID>) -> Snapshot.Service? {
        guard let element = element, let attribute = AttributeUUID(uuid.uuidString) else { return nil }
        return Snapshot.Service(
            element: element, uuid: attribute, isPrimary: isPrimary, isOnlyIncluded: !isListed, layout: layout,
            includedServices: includedServices?.compactMap(\.element),
            characteristics: characteristics?.compactMap { $0.record(isKept: isKept, subscribed) },
            number: isKept ? id.rawValue : nil)
    }
}

extension CBCharacteristic {
    fileprivate func record(isKept: Bool, _ subscribed: Set<AttributeID>) -> Snapshot.Characteristic? {
        guard let element = element, let attribute = AttributeUUID(uuid.uuidString) else { return nil }
        return Snapshot.Characteristic(
            element: element, uuid: attribute, properties: properties.rawValue,
            isNotifying: subscribed.contains(id),
            descriptors: descriptors?.compactMap { descriptor in
                guard let element = descriptor.element, let uuid = AttributeUUID(descriptor.uuid.uuidString) else {
                    return nil
                }
                return Snapshot.Descriptor(
                    element: element, uuid: uuid, number: isKept ? descriptor.id.rawValue : nil)
            }, number: isKept ? id.rawValue : nil)
    }
}

extension AttributeUUID {
    /// Does not trap, because the text was checked.
    var cbUUID: CBUUID { CBUUID(string: text) }
}
