import BluezKitRestore
import BluezDBus

/// The GATT table of one device as BlueZ shows it. Kept in step by `InterfacesAdded` and `InterfacesRemoved`; lists come
/// out in the order of the remote table, by the handles that BlueZ writes into its paths.
struct AttributeTree {
    struct Service {
        let path: ObjectPath
        let uuid: CBUUID
        let isPrimary: Bool
        var includes: [String] = []
        /// Of all that is in the service; these are filled where an app gets to know it.
        var layout = ""
        var version = 0
    }

    struct Characteristic {
        let path: ObjectPath
        let uuid: CBUUID
        let properties: CBCharacteristicProperties
        /// What BlueZ knew of it when the table was read: by a read on an earlier link.
        var value: [UInt8]?
    }

    struct Descriptor {
        let path: ObjectPath
        let uuid: CBUUID
    }

    private(set) var services: [String: Service] = [:]
    private(set) var characteristics: [String: Characteristic] = [:]
    private(set) var descriptors: [String: Descriptor] = [:]
    /// What is right below a service or a characteristic.
    private var children: [String: Set<String>] = [:]
    /// How often a service has come, gone or changed, by path.
    private var versions: [String: Int] = [:]
    private var serviceChangedCount = 0
    /// ATT_MTU of the link, where BlueZ tells it (5.62 and later).
    private(set) var mtuBytes: Int?
    /// Why something is missing; nil: the table is complete. Discovery then fails with it: what was not read is not "not
    /// there".
    var flaw: BusError?

    /// As many attributes are believed of one peripheral. Real ones have some hundred; there are 65,535 handles.
    static let limit = 20_000
    private var count: Int { services.count + characteristics.count + descriptors.count }

    func has(_ path: String) -> Bool {
        services[path] != nil || characteristics[path] != nil || descriptors[path] != nil
    }

    /// What an app knows by UUID, in table order. GAP and GATT belong to the system (GD-8).
    func visibleServices() -> [Service] {
        services.values.filter { $0.isPrimary && !Self.systemServices.contains($0.uuid) }.map(withLayout)
            .sorted { $0.path < $1.path }
    }

    func includedServices(of service: String) -> [Service] {
        (services[service]?.includes ?? []).compactMap { services[$0] }.map(withLayout)
            .sorted { $0.path < $1.path }
    }

    func characteristics(of service: String) -> [Characteristic] {
        (children[service] ?? []).compactMap { characteristics[$0] }.sorted { $0.path < $1.path }
    }

    /// The same, with values from earlier links (GD-10) only where the table itself would be kept from link to link (GD-9):
    /// who is not bonded and has Service Changed may have become another without telling.
    func characteristics(of service: String, isBonded: Bool) -> [Characteristic] {
        let found = characteristics(of: service)
        if isBonded || serviceChangedCount == 0 { return found }
        return found.map { characteristic in
            var characteristic = characteristic
            characteristic.value = nil
            return characteristic
        }
    }

    func descriptors(of characteristic: String) -> [Descriptor] {
        (children[characteristic] ?? []).compactMap { descriptors[$0] }.sorted { $0.path < $1.path }
    }

    private func withLayout(_ service: Service) -> Service {
        var service = service
        service.layout = layout(of: service.path.rawValue) ?? ""
        service.version = version(of: service.path.rawValue)
        return service
    }

    /// Another one means that what was found in the service before is not there any more, or may be something else.
    func version(of service: String) -> Int { versions[service] ?? 0 }
    func versions(of services: Set<String>) -> [String: Int] {
        Dictionary(uniqueKeysWithValues: services.map { ($0, version(of: $0)) })
    }

    /// A digest of a service and all that is in it: another one means that it has changed. The same in every process.
    func layout(of service: String) -> String? {
        services[service].map { service in
            let path = service.path.rawValue
            var text = "\(service.uuid.uuidString) \(service.isPrimary) \(service.includes.map(\.lastPathElement))"
            for characteristic in characteristics(of: path) {
                text += "\n\(characteristic.path.lastElement) \(characteristic.uuid.uuidString) "
                text += "\(characteristic.properties.rawValue)"
                for descriptor in descriptors(of: characteristic.path.rawValue) {
                    text += "\n\(descriptor.path.lastElement) \(descriptor.uuid.uuidString)"
                }
            }
            return Digest.text(of: text)
        }
    }

    /// Whether BlueZ shows a Client Characteristic Configuration descriptor.
    func hasCCCD(_ characteristic: String) -> Bool {
        descriptors(of: characteristic).contains { $0.uuid == Self.clientConfiguration }
    }

    /// GAP and GATT.
    static let systemServices: Set<CBUUID> = [CBUUID(string: "1800"), CBUUID(string: "1801")]
    private static let serviceChanged = CBUUID(string: "2A05")
    private static let clientConfiguration = CBUUID(string: CBUUIDClientCharacteristicConfigurationString)

    // MARK: Keeping in step

    /// Takes over the interfaces of one object, an `a{sa{sv}}`.
    /// - Returns: The path of the service that has changed by it, if it is an attribute.
    mutating func add(
        _ path: ObjectPath, _ interfaces: inout MessageReader, uuids: UUIDPool
    ) throws(BusError) -> String? {
        var changed: String?
        try interfaces.readDictionary { (entry) throws(BusError) in
            let interface = try entry.readCString()
            guard
                interface.matches("org.bluez.GattService1") || interface.matches("org.bluez.GattCharacteristic1")
                    || interface.matches("org.bluez.GattDescriptor1")
            else { return }
            changed = try add(path, properties: &entry, uuids: uuids)
        }
        return changed
    }

    /// Takes over the properties of one object, an `a{sv}`. What it is, its path tells: `serviceHHHH`, `charHHHH` or
    /// `descHHHH`.
    /// - Returns: The path of the service that has changed by it; nil if it is no attribute.
    mutating func add(
        _ path: ObjectPath, properties: inout MessageReader, uuids: UUIDPool
    ) throws(BusError) -> String? {
        var fields = AttributeFields()
        try fields.apply(&properties, uuids: uuids)
        guard let uuid = fields.uuid else { throw .malformed("\(path) has no UUID") }
        guard count < Self.limit else {
            if flaw == nil { flaw = .limit("the peripheral has more than \(Self.limit) attributes") }
            return nil
        }
        let service: String?
        switch Self.interface(of: path) {
        case BlueZ.service?:
            insert(
                Service(path: path, uuid: uuid, isPrimary: fields.isPrimary ?? true, includes: fields.includes ?? []))
            service = path.rawValue
        case BlueZ.characteristic?:
            setMTU(fields.mtu)
            insert(Characteristic(path: path, uuid: uuid, properties: fields.properties ?? [], value: fields.value))
            service = path.parent?.rawValue
        case BlueZ.descriptor?:
            insert(Descriptor(path: path, uuid: uuid))
            service = path.parent?.parent?.rawValue
        default: service = nil
        }
        if let service { versions[service, default: 0] += 1 }
        return service
    }

    mutating func insert(_ service: Service) { services[service.path.rawValue] = service }

    mutating func insert(_ characteristic: Characteristic) {
        let old = characteristics.updateValue(characteristic, forKey: characteristic.path.rawValue)
        children[characteristic.path.parent?.rawValue ?? "", default: []].insert(characteristic.path.rawValue)
        count(old, -1)
        count(characteristic, 1)
    }

    mutating func insert(_ descriptor: Descriptor) {
        descriptors[descriptor.path.rawValue] = descriptor
        children[descriptor.path.parent?.rawValue ?? "", default: []].insert(descriptor.path.rawValue)
    }

    private mutating func count(_ characteristic: Characteristic?, _ change: Int) {
        if characteristic?.uuid == Self.serviceChanged { serviceChangedCount += change }
    }

    /// Which of BlueZ's attribute interfaces the object at `path` has: `/org/bluez/hci0/dev_…/service…/char…/desc…`. Nil
    /// where no attribute can be: what was at another level would count for a service that it does not belong to.
    static func interface(of path: ObjectPath) -> String? {
        let levels = path.rawValue.split(separator: "/").dropFirst(4)
        for (element, prefix) in zip(levels, ["service", "char", "desc"]) where !element.hasPrefix(prefix) {
            return nil
        }
        switch levels.count {
        case 1: return BlueZ.service
        case 2: return BlueZ.characteristic
        case 3: return BlueZ.descriptor
        default: return nil
        }
    }

    /// The path of the service that an attribute is, or is in: `/org/bluez/hci0/dev_…/service…`.
    static func service(of path: String) -> String {
        var slashes = 0
        let end = path.utf8.firstIndex { byte in
            if byte == UInt8(ascii: "/") { slashes += 1 }
            return slashes == 6
        }
        return String(path[..<(end ?? path.endIndex)])
    }

    /// Drops an object and all below it.
    /// - Returns: The service that has changed by it, and the characteristics that are gone.
    mutating func remove(_ path: ObjectPath) -> (service: String, characteristics: [String])? {
        let gone = removeAll(at: path)
        if let gone { versions[gone.service, default: 0] += 1 }
        return gone
    }

    private mutating func removeAll(at path: ObjectPath) -> (service: String, characteristics: [String])? {
        let key = path.rawValue
        let parent = path.parent?.rawValue ?? ""
        if services.removeValue(forKey: key) != nil {
            let below = children.removeValue(forKey: key) ?? []
            below.forEach { removeCharacteristic($0) }
            return (key, Array(below))
        }
        if characteristics[key] != nil {
            removeCharacteristic(key)
            children[parent]?.remove(key)
            return (parent, [key])
        }
        guard descriptors.removeValue(forKey: key) != nil else { return nil }
        children[parent]?.remove(key)
        return (path.parent?.parent?.rawValue ?? "", [])
    }

    private mutating func removeCharacteristic(_ key: String) {
        count(characteristics.removeValue(forKey: key), -1)
        for descriptor in children.removeValue(forKey: key) ?? [] { descriptors[descriptor] = nil }
    }

    /// A PropertiesChanged of an attribute: only `Includes` and `MTU` matter here.
    mutating func change(_ path: String, _ properties: inout MessageReader, uuids: UUIDPool) throws(BusError) {
        var fields = AttributeFields(wantsValue: false)
        try fields.apply(&properties, uuids: uuids)
        if let includes = fields.includes { services[path]?.includes = includes }
        setMTU(fields.mtu)
    }

    /// - Parameter mtu: As BlueZ tells it: what a Bluetooth link cannot have is not believed.
    mutating func setMTU(_ mtu: Int?) {
        if let mtu { mtuBytes = max(mtu, 23) }
    }

    /// The link has ended: a new one has an ATT_MTU of its own.
    mutating func forgetMTU() { mtuBytes = nil }
}

extension ObjectPath {
    /// Table order: BlueZ writes handles as four hexadecimal digits, so the order of the text is that of the handles.
    fileprivate static func < (a: ObjectPath, b: ObjectPath) -> Bool { a.rawValue < b.rawValue }
}

extension String {
    fileprivate var lastPathElement: Substring { self[(lastIndex(of: "/").map { index(after: $0) } ?? startIndex)...] }
}

/// The properties of BlueZ's three attribute interfaces that matter.
private struct AttributeFields {
    /// Whether ``value`` is to be copied.
    var wantsValue = true
    var uuid: CBUUID?
    var isPrimary: Bool?
    var includes: [String]?
    var properties: CBCharacteristicProperties?
    var value: [UInt8]?
    var mtu: Int?

    mutating func apply(_ reader: inout MessageReader, uuids: UUIDPool) throws(BusError) {
        var fields = self
        try reader.readProperties { (key, value) throws(BusError) in
            if key.matches("UUID") {
                fields.uuid = uuids[try value.readCString()]
            } else if key.matches("Primary") {
                fields.isPrimary = try value.readBool()
            } else if key.matches("Includes") {
                var includes: [String] = []
                try value.readArray { (element) throws(BusError) in
                    includes.append(String(cString: try element.readPathC()))
                }
                fields.includes = includes
            } else if key.matches("Flags") {
                var properties: CBCharacteristicProperties = []
                try value.readArray { (element) throws(BusError) in
                    properties.formUnion(CBCharacteristicProperties(flag: try element.readCString()))
                }
                fields.properties = properties
            } else if fields.wantsValue, key.matches("Value") {
                fields.value = try Array(value.readBytes())
            } else if key.matches("MTU") {
                fields.mtu = Int(try value.readUInt16())
            }
        }
        // A value that notifies is not one to be kept.
        if fields.properties?.isDisjoint(with: [.notify, .indicate]) != true { fields.value = nil }
        self = fields
    }
}

extension CBCharacteristicProperties {
    /// BlueZ's word for a property; nothing for words that have no counterpart (GD-11).
    /// - SeeAlso: BlueZ doc/org.bluez.GattCharacteristic.rst, `Flags`.
    fileprivate init(flag: UnsafePointer<CChar>) {
        switch flag {
        case _ where flag.matches("broadcast"): self = .broadcast
        case _ where flag.matches("read"): self = .read
        case _ where flag.matches("write-without-response"): self = .writeWithoutResponse
        case _ where flag.matches("write"): self = .write
        case _ where flag.matches("notify"): self = .notify
        case _ where flag.matches("indicate"): self = .indicate
        case _ where flag.matches("authenticated-signed-writes"): self = .authenticatedSignedWrites
        case _ where flag.matches("extended-properties"): self = .extendedProperties
        default: self = []
        }
    }
}
