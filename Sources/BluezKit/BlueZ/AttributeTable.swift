import BluezKitRestore
import BluezDBus

/// The attribute table of one device as BlueZ shows it. Kept up to date by `InterfacesAdded` and `InterfacesRemoved`;
/// lists are in the order of the remote table, by the handles in BlueZ's paths.
struct AttributeTable {
    struct Service {
        let path: ObjectPath
        let uuid: CBUUID
        var isPrimary: Bool
        var includes: [String] = []
        /// A digest of everything in the service; computed when an app gets the service.
        var layout = ""
        var version = 0
    }

    struct Characteristic {
        let path: ObjectPath
        let uuid: CBUUID
        let properties: CBCharacteristicProperties
        /// The value that BlueZ knew when the table was read, from a read on an earlier link.
        var value: [UInt8]?
    }

    struct Descriptor {
        let path: ObjectPath
        let uuid: CBUUID
    }

    private(set) var services: [String: Service] = [:]
    /// The services that others include, or have included, by path.
    private var included: Set<String> = []
    private(set) var characteristics: [String: Characteristic] = [:]
    private(set) var descriptors: [String: Descriptor] = [:]
    /// The children of a service or a characteristic.
    private var children: [String: Set<String>] = [:]
    /// How often a service has been added, removed or changed, by path.
    private var versions: [String: Int] = [:]
    private var serviceChangedCount = 0
    /// ATT_MTU of the link, if BlueZ reports it (5.62 and later).
    private(set) var mtuBytes: Int?
    /// Why something is missing; nil: the table is complete. If it is set, service discovery fails with it, because
    /// attributes that were not read are not absent.
    var readError: BusError?

    /// The maximum number of attributes accepted from one peripheral. Real ones have some hundred; there are 65,535
    /// handles.
    static let limit = 20_000
    private var count: Int { services.count + characteristics.count + descriptors.count }

    func has(_ path: String) -> Bool {
        services[path] != nil || characteristics[path] != nil || descriptors[path] != nil
    }

    /// The services that an app may see, by UUID, in table order. GAP and GATT belong to the system (GD-8).
    func visibleServices() -> [Service] {
        services.values.filter { isPrimary($0) && !Self.systemServices.contains($0.uuid) }.map(withLayout)
            .sorted { $0.path < $1.path }
    }

    /// BlueZ is right about those that it calls primary. Others may be primary as well, at handles where the
    /// peripheral had another service before: only those that another service includes are secondary, without which a
    /// secondary service has no use.
    private func isPrimary(_ service: Service) -> Bool {
        service.isPrimary || !included.contains(service.path.rawValue)
    }

    func includedServices(of service: String) -> [Service] {
        (services[service]?.includes ?? []).compactMap { services[$0] }.map(withLayout)
            .sorted { $0.path < $1.path }
    }

    func characteristics(of service: String) -> [Characteristic] {
        (children[service] ?? []).compactMap { characteristics[$0] }.sorted { $0.path < $1.path }
    }

    /// The same, with values from earlier links (GD-10) only if the table itself would be kept from link to link
    /// (GD-9): an unbonded peer with Service Changed may have changed its table while disconnected.
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
        service.isPrimary = isPrimary(service)
        service.layout = layout(of: service.path.rawValue) ?? ""
        service.version = version(of: service.path.rawValue)
        return service
    }

    /// A new version means that what was found in the service before no longer exists, or may be something else.
    func version(of service: String) -> Int { versions[service] ?? 0 }
    func versions(of services: Set<String>) -> [String: Int] {
        Dictionary(uniqueKeysWithValues: services.map { ($0, version(of: $0)) })
    }

    /// A digest of a service and everything in it, to detect changes. It is the same in every process.
    func layout(of service: String) -> String? {
        services[service].map { service in
            let path = service.path.rawValue
            var text = "\(service.uuid.uuidString) \(isPrimary(service)) \(service.includes.map(\.lastPathElement))"
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

    // MARK: Updating

    /// Adds the interfaces of one object, an `a{sa{sv}}`.
    /// - Returns: The path of the service that changed, if the object is an attribute.
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

    /// Adds the properties of one object, an `a{sv}`. Its path determines its type: `serviceHHHH`, `charHHHH` or
    /// `descHHHH`.
    /// - Returns: The path of the service that changed; nil if the object is not an attribute.
    mutating func add(
        _ path: ObjectPath, properties: inout MessageReader, uuids: UUIDPool
    ) throws(BusError) -> String? {
        var fields = AttributeFields()
        try fields.apply(&properties, uuids: uuids)
        guard let uuid = fields.uuid else { throw .malformed("\(path) has no UUID") }
        guard count < Self.limit else {
            if readError == nil { readError = .limit("the peripheral has more than \(Self.limit) attributes") }
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

    mutating func insert(_ service: Service) {
        services[service.path.rawValue] = service
        included.formUnion(service.includes)
    }

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

    /// The attribute interface of the object at `path`: `/org/bluez/hci0/dev_…/service…/char…/desc…`. Nil where no
    /// attribute can be, because an object at another level would count for a service to which it does not belong.
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

    /// The path of the service that is, or contains, an attribute: `/org/bluez/hci0/dev_…/service…`.
    static func service(of path: String) -> String {
        var slashes = 0
        let end = path.utf8.firstIndex { byte in
            if byte == UInt8(ascii: "/") { slashes += 1 }
            return slashes == 6
        }
        return String(path[..<(end ?? path.endIndex)])
    }

    /// Removes an object and everything below it.
    /// - Returns: The service that changed, and the removed characteristics.
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

    /// Handles PropertiesChanged of an attribute: only `Includes` and `MTU` are relevant here.
    mutating func change(_ path: String, _ properties: inout MessageReader, uuids: UUIDPool) throws(BusError) {
        var fields = AttributeFields(wantsValue: false)
        try fields.apply(&properties, uuids: uuids)
        if let includes = fields.includes {
            services[path]?.includes = includes
            included.formUnion(includes)
        }
        setMTU(fields.mtu)
    }

    /// The MTU is exchanged once, so it only grows while a link is up: of several reports the largest is right.
    /// - Parameter mtu: As reported by BlueZ: a value that is impossible for a Bluetooth link is not used.
    mutating func setMTU(_ mtu: Int?) {
        if let mtu { mtuBytes = max(mtu, mtuBytes ?? 23) }
    }

    /// It was of another link, or of the moments before it was exchanged.
    mutating func forgetMTU() { mtuBytes = nil }
}

extension ObjectPath {
    /// Table order: BlueZ writes handles as four hexadecimal digits, so text order is handle order.
    fileprivate static func < (a: ObjectPath, b: ObjectPath) -> Bool { a.rawValue < b.rawValue }
}

extension String {
    fileprivate var lastPathElement: Substring { self[(lastIndex(of: "/").map { index(after: $0) } ?? startIndex)...] }
}

/// The relevant properties of BlueZ's three attribute interfaces.
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
        // A value that notifies is not kept.
        if fields.properties?.isDisjoint(with: [.notify, .indicate]) != true { fields.value = nil }
        self = fields
    }
}

extension CBCharacteristicProperties {
    /// The property for BlueZ's flag; none for flags that have no counterpart (GD-11).
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
