import BluezDBus
import Foundation

/// Whether BlueZ has keys for a device: its `Bonded` property or, before BlueZ 5.65, its `Paired` property.
struct Bond {
    private var isBonded: Bool?
    private var isPaired = false
    var exists: Bool { isBonded ?? isPaired }

    /// Whether one of the two is not as it was. What BlueZ has not told of is false.
    func differs(from old: Bond) -> Bool { (isBonded ?? false, isPaired) != (old.isBonded ?? false, old.isPaired) }

    /// Stores the property if it is one of the two.
    mutating func apply(_ key: UnsafePointer<CChar>, _ value: inout MessageReader) throws(BusError) {
        if key.matches("Bonded") { isBonded = try value.readBool() }
        if key.matches("Paired") { isPaired = try value.readBool() }
    }
}

/// What a user, or another program, has set of a device, and BlueZ forgets with it.
struct DeviceSettings {
    private var isTrusted = false
    private(set) var isBlocked = false
    private var hasAlias = false
    var exist: Bool { isTrusted || isBlocked || hasAlias }

    /// Stores the property if it is one of the two.
    mutating func apply(_ key: UnsafePointer<CChar>, _ value: inout MessageReader) throws(BusError) {
        if key.matches("Trusted") { isTrusted = try value.readBool() }
        if key.matches("Blocked") { isBlocked = try value.readBool() }
    }

    /// `Alias`, which is the name, or else the address, where none was set.
    mutating func apply(alias: UnsafePointer<CChar>, of name: String?) {
        hasAlias = name?.withCString { strcmp($0, alias) != 0 } ?? !DeviceIdentity.isAlias(alias)
    }
}

/// The properties of a device that the API can show, in typed fields. Decoded directly from the message; other keys are
/// skipped without a copy.
struct DeviceProperties {
    /// The kinds of information that an advertisement can contain. Without AllowDuplicates, a second `didDiscover` is
    /// delivered when there is a new kind (SC-6).
    struct Kinds: OptionSet {
        let rawValue: UInt8
        static let name = Kinds(rawValue: 1)
        static let services = Kinds(rawValue: 2)
        static let manufacturerData = Kinds(rawValue: 4)
        static let serviceData = Kinds(rawValue: 8)
        static let txPower = Kinds(rawValue: 16)
        static let solicited = Kinds(rawValue: 32)
    }

    var identity: DeviceIdentity?
    var name: String?
    var rssiDBm: Int16?
    var txPowerDBm: Int16?
    var services: [CBUUID] = []
    var solicitedServices: [CBUUID] = []
    /// Company identifier (2 bytes, little endian) and payload of each entry, in BlueZ's order: that of the
    /// advertisement, or, without `DuplicateData`, that in which they came first.
    var manufacturerEntries: [Data] = []
    /// The entry for the key that has room for one: always the same, and no iBeacon beside others, which iOS hides.
    var manufacturerData: Data? {
        manufacturerEntries.first { !$0.starts(with: [0x4C, 0x00, 0x02, 0x15]) } ?? manufacturerEntries.first
    }
    var serviceData: [CBUUID: Data] = [:]
    var isConnected = false
    var areServicesResolved = false
    /// `Connected` is about classic Bluetooth alone: the two above are false (``LinkBearers``).
    var hasOnlyClassicLink = false
    var bond = Bond()
    var isBonded: Bool { bond.exists }
    var settings = DeviceSettings()
    /// `Class`, which every inquiry and link of classic Bluetooth tells.
    var hasClass = false
    /// `AdvertisingFlags`: BlueZ has heard an advertisement since it has the device, be it one without flags.
    var hasAdvertisingFlags = false

    /// Whether BlueZ has heard it by classic Bluetooth alone, in an inquiry that another program has asked for. With
    /// each advertisement BlueZ gets to know flags, if only that there are none (src/adapter.c,
    /// `btd_adapter_device_found`).
    func isOnlyClassic(for daemon: BlueZDaemon) -> Bool {
        daemon.showsAdvertisingFlags && hasClass && !hasAdvertisingFlags && identity?.isRandom != true
    }

    var kinds: Kinds {
        var kinds: Kinds = []
        if name != nil { kinds.insert(.name) }
        if !services.isEmpty { kinds.insert(.services) }
        if !manufacturerEntries.isEmpty { kinds.insert(.manufacturerData) }
        if !serviceData.isEmpty { kinds.insert(.serviceData) }
        if txPowerDBm != nil { kinds.insert(.txPower) }
        if !solicitedServices.isEmpty { kinds.insert(.solicited) }
        return kinds
    }

    /// What one message changed.
    struct Changes: OptionSet {
        let rawValue: UInt8
        /// The message contains something that only an advertisement can provide: an advertisement was received.
        static let advertisement = Changes(rawValue: 1)
        static let name = Changes(rawValue: 2)
        static let connected = Changes(rawValue: 4)
        static let servicesResolved = Changes(rawValue: 8)
        /// `UUIDs` after resolution contains the services of the attribute table.
        static let services = Changes(rawValue: 16)
        static let bonded = Changes(rawValue: 32)
        /// `Paired` or `Bonded` is not as it was: a pairing has ended. A signal of `Paired` alone does not say so, as
        /// BlueZ holds it back until the services are resolved, be it those of the next link (src/device.c,
        /// `pending_paired`).
        static let pairing = Changes(rawValue: 64)
    }

    /// Updates the properties from an `a{sv}` of `org.bluez.Device1`. A value of a wrong type is ignored and logged, so
    /// that it does not hide the others, such as the end of a connection.
    mutating func apply(
        _ reader: inout MessageReader, of path: ObjectPath, uuids: UUIDPool
    ) throws(BusError) -> Changes {
        var changes: Changes = []
        var address: UnsafePointer<CChar>?
        var alias: UnsafePointer<CChar>?
        var isRandom: Bool?
        var fields = self
        try reader.readProperties { (key, value) throws(BusError) in
            do throws(BusError) {
                switch key[0] {
                case 0x41 where key.matches("Address"): address = try value.readCString()
                case 0x41 where key.matches("AddressType"): isRandom = try value.readCString().matches("random")
                case 0x41 where key.matches("AdvertisingData"): try fields.readAdvertisingData(&value, uuids)
                case 0x41 where key.matches("AdvertisingFlags"):
                    _ = try value.readBytes()
                    // What else has come with the first ones may be known from an inquiry.
                    if fields.hasClass, !fields.hasAdvertisingFlags { changes.insert(.advertisement) }
                    fields.hasAdvertisingFlags = true
                case 0x41 where key.matches("Alias"): alias = try value.readCString()
                case 0x42 where key.matches("Blocked"), 0x54 where key.matches("Trusted"):
                    try fields.settings.apply(key, &value)
                case 0x42 where key.matches("Bonded"), 0x50 where key.matches("Paired"):
                    try fields.bond.apply(key, &value)
                    changes.insert(.bonded)
                case 0x43 where key.matches("Class"): fields.hasClass = try value.readUInt32() != 0
                case 0x43 where key.matches("Connected"):
                    fields.isConnected = try value.readBool()
                    changes.insert(.connected)
                case 0x4D where key.matches("ManufacturerData"):
                    try fields.readManufacturerData(&value)
                    changes.insert(.advertisement)
                case 0x4E where key.matches("Name"):
                    fields.name = try value.readString()
                    changes.insert(.name)
                case 0x52 where key.matches("RSSI"):
                    fields.rssiDBm = try value.readInt16()
                    changes.insert(.advertisement)
                case 0x53 where key.matches("ServicesResolved"):
                    fields.areServicesResolved = try value.readBool()
                    changes.insert(.servicesResolved)
                case 0x53 where key.matches("ServiceData"):
                    try fields.readServiceData(&value, uuids)
                    changes.insert(.advertisement)
                case 0x54 where key.matches("TxPower"): fields.txPowerDBm = try value.readInt16()
                case 0x55 where key.matches("UUIDs"):
                    fields.services = try Self.readUUIDs(&value, uuids)
                    changes.insert(.services)
                default: break
                }
            } catch {
                let key = String(cString: key)
                Log.warning("ignored property \(key) of \(path), which has an undocumented type: \(error.message)")
            }
        }
        if let address {
            fields.identity = DeviceIdentity(address: address, isRandom: isRandom ?? identity?.isRandom ?? false)
        }
        if let alias { fields.settings.apply(alias: alias, of: fields.name) }
        if fields.bond.differs(from: bond) { changes.insert(.pairing) }
        self = fields
        return changes
    }

    /// The second list of PropertiesChanged: properties that BlueZ no longer knows.
    mutating func invalidate(_ reader: inout MessageReader) throws(BusError) {
        var gone = (rssi: false, txPower: false, name: false, manufacturer: false)
        try reader.readArray { (element) throws(BusError) in
            let key = try element.readCString()
            if key.matches("RSSI") { gone.rssi = true }
            if key.matches("TxPower") { gone.txPower = true }
            if key.matches("Name") { gone.name = true }
            if key.matches("ManufacturerData") { gone.manufacturer = true }
        }
        if gone.rssi { rssiDBm = nil }
        if gone.txPower { txPowerDBm = nil }
        if gone.name { name = nil }
        if gone.manufacturer { manufacturerEntries = [] }
    }

    private mutating func readManufacturerData(_ value: inout MessageReader) throws(BusError) {
        var entries: [Data] = []
        try value.readDictionary { (entry) throws(BusError) in
            let company = try entry.readUInt16()
            entries.append(
                try entry.readVariant { (inner) throws(BusError) in
                    Self.manufacturerData(company, try inner.readBytes())
                })
        }
        manufacturerEntries = entries
    }

    private static func manufacturerData(_ company: UInt16, _ payload: UnsafeRawBufferPointer) -> Data {
        var data = Data(capacity: payload.count + 2)
        data.append(UInt8(company & 0xFF))
        data.append(UInt8(company >> 8))
        data.append(contentsOf: payload)
        return data
    }

    private mutating func readServiceData(
        _ value: inout MessageReader, _ uuids: UUIDPool
    ) throws(BusError) {
        var data: [CBUUID: Data] = [:]
        try value.readDictionary { (entry) throws(BusError) in
            let uuid = try entry.readCString()
            let payload = try entry.readVariant { (inner) throws(BusError) in Data(try inner.readBytes()) }
            if let uuid = uuids[uuid] { data[uuid] = payload }
        }
        serviceData = data
    }

    /// Raw AD structures that BlueZ does not parse itself (experimental before BlueZ 5.78): solicited services.
    /// Anything truncated or invalid is ignored, because these bytes come from other devices.
    private mutating func readAdvertisingData(
        _ value: inout MessageReader, _ uuids: UUIDPool
    ) throws(BusError) {
        var solicited: [CBUUID] = []
        try value.readDictionary { (entry) throws(BusError) in
            let type = try entry.readByte()
            // Core Specification Supplement, Part A, 1.10: 16-, 32- and 128-bit service solicitation.
            guard let length = [0x14: 2, 0x1F: 4, 0x15: 16][type] else { return }
            try entry.readVariant { (inner) throws(BusError) in
                let bytes = try inner.readBytes()
                for start in stride(from: 0, through: bytes.count - length, by: length) {
                    solicited.append(CBUUID(data: Data(bytes[start..<start + length].reversed())))
                }
            }
        }
        solicitedServices = solicited
    }

    private static func readUUIDs(
        _ value: inout MessageReader, _ uuids: UUIDPool
    ) throws(BusError) -> [CBUUID] {
        var result: [CBUUID] = []
        try value.readArray { (element) throws(BusError) in
            if let uuid = uuids[try element.readCString()] { result.append(uuid) }
        }
        return result
    }
}

/// One `CBUUID` for each UUID that BlueZ reports: thousands of devices share a few dozen.
final class UUIDPool {
    static let limit = 4096
    private var pool = PathTable<CBUUID>()
    var count: Int { pool.count }

    /// The UUID in `text`, in its shortest form; nil if it is not a UUID.
    subscript(text: UnsafePointer<CChar>) -> CBUUID? {
        get {
            if let known = pool[text] { return known }
            guard let uuid = CBUUID(bluez: text) else { return nil }
            // Devices choose their UUIDs: random ones must not fill the memory.
            if count < Self.limit { pool[String(cString: text)] = uuid }
            return uuid
        }
    }
}
