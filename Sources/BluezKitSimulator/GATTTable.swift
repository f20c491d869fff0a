/// The current attributes of a peripheral, with their handles and values.
struct GATTTable {
    /// A service with its handles. A changed service is a new one.
    final class Service {
        let definition: VirtualService
        let handle: UInt16
        var endHandle: UInt16
        var includes: [Service] = []
        var characteristics: [Characteristic] = []

        init(_ definition: VirtualService, handle: UInt16) {
            (self.definition, self.handle, endHandle) = (definition, handle, handle)
        }

        /// Whether another one has some of its handles.
        func isReplaced(by other: Service) -> Bool {
            let isSame =
                (handle, endHandle) == (other.handle, other.endHandle)
                && definition.uuid == other.definition.uuid && definition.isPrimary == other.definition.isPrimary
            return handle <= other.endHandle && other.handle <= endHandle && !isSame
        }
    }

    final class Characteristic {
        let definition: VirtualCharacteristic
        /// The handle of the declaration; the value's is the next one.
        let handle: UInt16
        var value: [UInt8]
        var descriptors: [Descriptor] = []
        /// The application's attribute that answers, if an application on the bus provides it.
        var served: ServedAttribute?

        init(_ definition: VirtualCharacteristic, handle: UInt16) {
            (self.definition, self.handle, value) = (definition, handle, definition.value)
        }

        var flagTexts: [String] {
            var texts = definition.flags.texts
            let extended = descriptors.first { $0.uuid == UUIDText.full("2900") }?.value.first ?? 0
            if extended & 1 != 0 { texts.append("reliable-write") }
            if extended & 2 != 0 { texts.append("writable-auxiliaries") }
            return texts
        }
    }

    final class Descriptor {
        let uuid: String
        let handle: UInt16
        let isWritable: Bool
        var value: [UInt8]
        let refusal: (@Sendable () -> ATTFailure)?
        /// The application's attribute that answers, if an application on the bus provides it.
        var served: ServedAttribute?

        init(_ definition: VirtualDescriptor, handle: UInt16) {
            (uuid, self.handle, isWritable, value) =
                (definition.uuid, handle, definition.isWritable, definition.value)
            refusal = definition.refusal
        }

        var isConfiguration: Bool { uuid == UUIDText.full("2902") }
    }

    private(set) var services: [Service] = []
    /// GAP (which has no objects in BlueZ) uses the handles 1 to 5, as in most stacks.
    private var nextHandle = 6
    /// Handles have 16 bits.
    private static let lastHandle = 0xFFFF

    /// The table of an adapter: the services of bluetoothd itself, including GAP.
    static func ofAdapter(name: String) -> GATTTable {
        var table = GATTTable([])
        table.services = []
        table.nextHandle = 1
        table.add(
            VirtualService(
                "1800",
                [
                    VirtualCharacteristic("2A00", .read, value: Array(name.utf8)),
                    VirtualCharacteristic("2A01", .read, value: [0, 0]),
                    VirtualCharacteristic("2AA6", .read, value: [1]),
                ]))
        table.add(
            VirtualService(
                "1801",
                [
                    VirtualCharacteristic("2A05", .indicate),
                    VirtualCharacteristic("2B29", [.read, .write], value: [0]),
                    VirtualCharacteristic("2B2A", .read, value: Array(repeating: 0, count: 16)),
                    VirtualCharacteristic("2B3A", .read, value: [0]),
                ]))
        table.add(
            VirtualService(
                "180A", [VirtualCharacteristic("2A50", .read, value: [0x02, 0x6B, 0x1D, 0x46, 0x02, 0x42, 0x05])]))
        return table
    }

    /// A table with these services, and with the Generic Attribute service if it is not among them.
    init(_ definitions: [VirtualService]) {
        if !definitions.contains(where: { $0.uuid == UUIDText.full("1801") }) {
            add(
                VirtualService(
                    "1801",
                    [
                        VirtualCharacteristic("2A05", .indicate),
                        VirtualCharacteristic("2B29", [.read, .write], value: [0]),
                        VirtualCharacteristic("2B2A", .read, value: Array(repeating: 0, count: 16)),
                    ]))
        }
        for definition in definitions { add(definition) }
    }

    /// Adds a service.
    /// - Parameter place: Its handle; 0: the next one.
    @discardableResult
    mutating func add(_ definition: VirtualService, including others: [Service] = [], at place: UInt16 = 0) -> Service {
        var handle = place == 0 ? nextHandle : Int(place)
        func take(_ count: Int = 1) -> UInt16 {
            precondition(handle + count - 1 <= Self.lastHandle, "a table cannot have more than 65,535 attributes")
            defer { handle += count }
            return UInt16(handle)
        }
        let service = Service(definition, handle: take())
        service.includes = others
        for uuid in definition.includes {
            if let included = services.first(where: { $0.definition.uuid == uuid }) {
                service.includes.append(included)
            }
        }
        if !service.includes.isEmpty { _ = take(service.includes.count) }
        for definition in definition.characteristics {
            let characteristic = Characteristic(definition, handle: take())
            _ = take()
            for descriptor in definition.descriptors {
                characteristic.descriptors.append(Descriptor(descriptor, handle: take()))
            }
            if !definition.flags.isDisjoint(with: [.notify, .indicate]),
                !definition.descriptors.contains(where: { $0.uuid == UUIDText.full("2902") })
            {
                characteristic.descriptors.append(
                    Descriptor(VirtualDescriptor("2902", value: [0, 0], isWritable: true), handle: take()))
            }
            service.characteristics.append(characteristic)
        }
        service.endHandle = UInt16(handle - 1)
        nextHandle = max(nextHandle, handle)
        services.insert(service, at: services.firstIndex { $0.handle > service.handle } ?? services.endIndex)
        return service
    }

    /// Removes the last service with this UUID; its handles become free if they were the last ones.
    mutating func remove(_ uuid: String) -> Service? {
        guard let index = services.lastIndex(where: { $0.definition.uuid == uuid }) else { return nil }
        let service = services.remove(at: index)
        if index == services.count { nextHandle = Int(service.handle) }
        return service
    }

    /// How many handles are left.
    var room: Int { Self.lastHandle + 1 - nextHandle }

    /// Whether no service has one of these handles.
    func isFree(_ place: UInt16, count: Int) -> Bool {
        let end = Int(place) + count - 1
        return end <= Self.lastHandle && !services.contains { $0.handle <= end && place <= $0.endHandle }
    }

    /// Removes a service. Its handles are not reused.
    mutating func remove(_ service: Service) {
        services.removeAll { $0 === service }
    }

    func characteristic(_ uuid: String) -> Characteristic? {
        for service in services {
            if let found = service.characteristics.first(where: { $0.definition.uuid == uuid }) { return found }
        }
        return nil
    }

    /// The value of Device Name, which bluetoothd reads.
    var deviceName: String? {
        guard let value = characteristic(UUIDText.full("2A00"))?.value.prefix(while: { $0 != 0 }), !value.isEmpty else {
            return nil
        }
        return String(decoding: value, as: UTF8.self)
    }

    /// All UUIDs as in `Device1.UUIDs`: sorted, including GAP.
    var uuids: [String] { Array(Set(services.map(\.definition.uuid) + [UUIDText.full("1800")])).sorted() }
}
