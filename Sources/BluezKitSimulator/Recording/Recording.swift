/// What a real device was seen to do: what it advertised, its table of attributes with values, what it notified, and
/// what was written to it, with times.
///
/// `bluez-demo record` makes one from a device in range, from a btsnoop capture, or from BlueZ's attribute cache, and
/// writes it to a file, which Docs/RECORDING.md describes. A ``VirtualPeripheral`` made of it does the same again:
///
/// ```swift
/// let recording = try Recording(fileContent: Data(contentsOf: URL(fileURLWithPath: "thermometer.json")))
/// simulator.add(VirtualPeripheral(recording: recording, pace: .faster(10)))
/// ```
/// A recording can also be made by hand, or changed: nothing is checked until it is written, or read from a file.
public struct Recording: Hashable, Sendable {
    /// One advertisement that was heard.
    public struct Advertisement: Hashable, Sendable {
        /// In seconds since the recording began.
        public var time: Double
        /// The signal strength in dBm; nil: not known.
        public var rssi: Int16?
        /// What was advertised, including the scan response.
        public var content: VirtualAdvertisement

        /// An advertisement that was heard at this time.
        public init(time: Double, rssi: Int16? = nil, content: VirtualAdvertisement) {
            (self.time, self.rssi, self.content) = (time, rssi, content)
        }
    }

    /// A service of the table.
    public struct Service: Hashable, Sendable {
        /// All 36 characters, in lower case.
        public var uuid: String
        /// Whether the service is primary, or exists only to be included.
        public var isPrimary: Bool
        /// UUIDs of the services that it includes.
        public var includes: [String]
        /// In the order of their handles.
        public var characteristics: [Characteristic]

        /// A service; UUIDs may be given as four digits.
        public init(
            _ uuid: String, isPrimary: Bool = true, includes: [String] = [], _ characteristics: [Characteristic] = []
        ) {
            self.uuid = UUIDText.full(uuid)
            self.isPrimary = isPrimary
            self.includes = includes.map(UUIDText.full)
            self.characteristics = characteristics
        }
    }

    /// A characteristic of a ``Service``.
    public struct Characteristic: Hashable, Sendable {
        /// All 36 characters, in lower case.
        public var uuid: String
        /// The properties that it declares.
        public var flags: VirtualCharacteristic.Flags
        /// The value that was read first; nil: none was.
        public var value: [UInt8]?
        /// The error of the Attribute Protocol with which the device refused the read; nil: it did not.
        public var error: UInt8?
        /// In the order of their handles; 2902, the configuration for subscribers, may be left out.
        public var descriptors: [Descriptor]

        /// A characteristic; its UUID may be given as four digits.
        public init(
            _ uuid: String, _ flags: VirtualCharacteristic.Flags, value: [UInt8]? = nil, error: UInt8? = nil,
            descriptors: [Descriptor] = []
        ) {
            self.uuid = UUIDText.full(uuid)
            (self.flags, self.value, self.error, self.descriptors) = (flags, value, error, descriptors)
        }
    }

    /// A descriptor of a ``Characteristic``.
    public struct Descriptor: Hashable, Sendable {
        /// All 36 characters, in lower case.
        public var uuid: String
        /// The value that was read; nil: none was.
        public var value: [UInt8]?
        /// The error of the Attribute Protocol with which the device refused the read; nil: it did not.
        public var error: UInt8?

        /// A descriptor; its UUID may be given as four digits.
        public init(_ uuid: String, value: [UInt8]? = nil, error: UInt8? = nil) {
            self.uuid = UUIDText.full(uuid)
            (self.value, self.error) = (value, error)
        }
    }

    /// A value that moved at a certain time: a notification, an indication, or a write.
    public struct Event: Hashable, Sendable {
        /// In seconds since the recording began.
        public var time: Double
        /// The characteristic, with its service, such as `180D/2A37`; see ``Recording/characteristicNames``.
        public var characteristic: String
        /// At most 512 bytes.
        public var value: [UInt8]

        /// A value of this characteristic.
        public init(time: Double, characteristic: String, value: [UInt8]) {
            (self.time, self.characteristic, self.value) = (time, characteristic, value)
        }
    }

    /// Six bytes in upper case, with colons; nil: not known.
    public var address: String?
    /// `random` or `public`.
    public var addressType: String
    /// The name that the device has, which need not be the one that it advertises; nil: not known.
    public var name: String?
    /// The ATT_MTU of its link; nil: not known.
    public var mtu: UInt16?
    /// In the order of their times.
    public var advertisements: [Advertisement]
    /// In the order of their handles, as far as that is known.
    public var services: [Service]
    /// What the device notified or indicated, in the order of the times.
    public var notifications: [Event]
    /// What was written to its characteristics, with and without response, in the order of the times.
    public var writes: [Event]

    /// A recording with these contents.
    public init(
        address: String? = nil, addressType: String = "random", name: String? = nil, mtu: UInt16? = nil,
        advertisements: [Advertisement] = [], services: [Service] = [], notifications: [Event] = [],
        writes: [Event] = []
    ) {
        (self.address, self.addressType, self.name, self.mtu) = (address?.uppercased(), addressType, name, mtu)
        (self.advertisements, self.services) = (advertisements, services)
        (self.notifications, self.writes) = (notifications, writes)
    }

    /// How ``Event/characteristic`` names each characteristic, by service and place in it: its service and itself, in
    /// the shortest form of their UUIDs. Of several alike the second one ends with `#2`, as in `1812/2A4D#2`.
    public var characteristicNames: [[String]] {
        var counts: [String: Int] = [:]
        return services.map { service in
            service.characteristics.map { characteristic in
                let name = UUIDText.shortest(service.uuid) + "/" + UUIDText.shortest(characteristic.uuid)
                counts[name, default: 0] += 1
                let count = counts[name] ?? 1
                return count == 1 ? name : "\(name)#\(count)"
            }
        }
    }
}

extension UUIDText {
    /// `180D`, eight digits, or all 36 characters, in upper case.
    static func shortest(_ full: String) -> String {
        let text = full.uppercased()
        guard text.hasSuffix("-0000-1000-8000-00805F9B34FB") else { return text }
        return String(text.hasPrefix("0000") ? text.dropFirst(4).prefix(4) : text.prefix(8))
    }

    /// The UUID in a text of others; nil: it is not one.
    static func read(_ text: String) -> String? {
        guard text.utf8.allSatisfy({ $0 == UInt8(ascii: "-") || $0 < 128 && Character(Unicode.Scalar($0)).isHexDigit })
        else { return nil }
        return checked(text)
    }

    /// The UUID in bytes as sent over the air, 2, 4 or 16 in little-endian order; nil: there are not as many.
    static func read(_ bytes: some Collection<UInt8>) -> String? {
        let hex = Hex.text(bytes.reversed())
        switch bytes.count {
        case 2, 4: return full(hex)
        case 16:
            let digits = Array(hex)
            let parts = [0..<8, 8..<12, 12..<16, 16..<20, 20..<32].map { String(digits[$0]) }
            return parts.joined(separator: "-")
        default: return nil
        }
    }
}
