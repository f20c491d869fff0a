import BluezDBus

/// A GATT service object.
final class RemoteService {
    unowned let device: Device
    let source: GATTTable.Service
    let path: ObjectPath
    private(set) var characteristics: [RemoteCharacteristic] = []
    var showsIncludes: Bool
    private let isPrimary: Bool

    /// - Parameter isReplacement: Whether another service was at its handles: bluetoothd calls it secondary then.
    init(device: Device, source: GATTTable.Service, isReplacement: Bool) {
        (self.device, self.source) = (device, source)
        isPrimary = source.definition.isPrimary && !isReplacement
        path = device.path.appending("service" + Hex.handle(source.handle)) ?? device.path
        showsIncludes = !device.simulator.optionsState.fillsIncludesLate
        characteristics = source.characteristics.map { RemoteCharacteristic(service: self, source: $0) }
    }

    static let interface = ExportedInterface(
        "org.bluez.GattService1", of: RemoteService.self,
        properties: [
            .init("UUID", "s") { .string($0.source.definition.uuid) },
            .init("Device", "o") { .path($0.device.path) },
            .init("Primary", "b") { .bool($0.isPrimary) },
            .init("Includes", "ao") { service in
                let included = service.showsIncludes ? service.source.includes : []
                return .array(
                    element: "o",
                    included.compactMap { source in
                        service.device.services.first { $0.source === source }.map { .path($0.path) }
                    })
            },
        ])

    func has(_ characteristic: GATTTable.Characteristic) -> Bool {
        characteristics.contains { $0.source === characteristic }
    }

    func register() {
        guard let server = device.server else { return }
        server.add(Self.interface, to: path, owner: self)
        for characteristic in characteristics {
            server.add(RemoteCharacteristic.interface, to: characteristic.path, owner: characteristic)
            for descriptor in characteristic.descriptors {
                server.add(RemoteDescriptor.interface, to: descriptor.path, owner: descriptor)
            }
        }
    }

    func unregister() {
        guard let server = device.server else { return }
        for characteristic in characteristics {
            for descriptor in characteristic.descriptors { server.remove(descriptor.path) }
            characteristic.closeSockets()
            server.remove(characteristic.path)
        }
        server.remove(path)
    }
}
