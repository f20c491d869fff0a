/// An error of the Attribute Protocol with which a peripheral answers. Throw one from a read or write closure.
public struct ATTFailure: Error, Hashable, Sendable {
    /// The error code; 0x80 to 0x9F are application errors.
    public let code: UInt8

    /// The error with this code.
    public init(_ code: UInt8) { self.code = code }

    /// 0x02.
    public static let readNotPermitted = ATTFailure(0x02)
    /// 0x03.
    public static let writeNotPermitted = ATTFailure(0x03)
    /// 0x05.
    public static let insufficientAuthentication = ATTFailure(0x05)
    /// 0x06.
    public static let requestNotSupported = ATTFailure(0x06)
    /// 0x07.
    public static let invalidOffset = ATTFailure(0x07)
    /// 0x08.
    public static let insufficientAuthorization = ATTFailure(0x08)
    /// 0x0D.
    public static let invalidLength = ATTFailure(0x0D)
    /// 0x0E.
    public static let unlikely = ATTFailure(0x0E)
    /// 0x0F.
    public static let insufficientEncryption = ATTFailure(0x0F)
}

/// What a link must provide before a characteristic can be used.
public enum VirtualSecurity: Sendable { case none, encrypted, authenticated }

/// A service of a ``VirtualPeripheral``.
public struct VirtualService: Sendable {
    /// All 36 characters, in lower case.
    public var uuid: String
    /// Whether the service is primary, or exists only to be included.
    public var isPrimary: Bool
    /// The characteristics, in the order of their handles.
    public var characteristics: [VirtualCharacteristic]
    /// UUIDs of included services of the same peripheral, which must precede this one.
    public var includes: [String]

    /// - Parameters:
    ///   - uuid: `180D`, or all 36 characters.
    ///   - isPrimary: Whether it is a primary service.
    ///   - includes: UUIDs of services of the same peripheral, which must precede this one.
    ///   - characteristics: In the order of their handles.
    public init(
        _ uuid: String, isPrimary: Bool = true, includes: [String] = [], _ characteristics: [VirtualCharacteristic] = []
    ) {
        self.uuid = UUIDText.full(uuid)
        self.isPrimary = isPrimary
        self.includes = includes.map(UUIDText.full)
        self.characteristics = characteristics
    }
}

/// A characteristic of a ``VirtualService``. If it can notify or indicate, it automatically has a configuration
/// descriptor 2902.
public struct VirtualCharacteristic: Sendable {
    /// The properties that the characteristic declares.
    public struct Flags: OptionSet, Hashable, Sendable {
        /// The bits of the declaration.
        public let rawValue: UInt16
        /// The flags with these bits.
        public init(rawValue: UInt16) { self.rawValue = rawValue }

        /// The value may be broadcast.
        public static let broadcast = Flags(rawValue: 0x01)
        /// Can be read.
        public static let read = Flags(rawValue: 0x02)
        /// Can be written without response.
        public static let writeWithoutResponse = Flags(rawValue: 0x04)
        /// Can be written with response.
        public static let write = Flags(rawValue: 0x08)
        /// Can notify.
        public static let notify = Flags(rawValue: 0x10)
        /// Can indicate.
        public static let indicate = Flags(rawValue: 0x20)
        /// Accepts signed writes.
        public static let signedWrites = Flags(rawValue: 0x40)
        /// Has a descriptor 2900 with extended properties.
        public static let extendedProperties = Flags(rawValue: 0x80)

        private static let names = [
            "broadcast", "read", "write-without-response", "write", "notify", "indicate",
            "authenticated-signed-writes", "extended-properties",
        ]

        /// The texts of BlueZ's `Flags` property.
        var texts: [String] { Self.names.enumerated().filter { rawValue & 1 << $0.offset != 0 }.map(\.element) }
    }

    /// All 36 characters, in lower case.
    public var uuid: String
    /// The declared properties.
    public var flags: Flags
    /// The value that a read returns and a write changes, unless a closure does.
    public var value: [UInt8]
    /// Answers a read. Runs on the simulator's queue.
    public var read: (@Sendable () throws -> [UInt8])?
    /// Handles a write. Runs on the simulator's queue.
    public var write: (@Sendable ([UInt8]) throws -> Void)?
    /// The time that the peripheral takes to answer a read or a write.
    public var delay: Duration
    /// False: it never answers, and the link is ended after the ATT timeout.
    public var answers: Bool
    /// The peripheral refuses subscriptions.
    public var subscribeFailure: ATTFailure?
    /// What the link must provide for reads and writes.
    public var security: VirtualSecurity
    /// Descriptors other than 2902.
    public var descriptors: [VirtualDescriptor]

    /// A characteristic that answers reads with `value` and stores what is written to it, unless closures are given.
    public init(
        _ uuid: String, _ flags: Flags, value: [UInt8] = [], read: (@Sendable () throws -> [UInt8])? = nil,
        write: (@Sendable ([UInt8]) throws -> Void)? = nil, delay: Duration = .zero, answers: Bool = true,
        subscribeFailure: ATTFailure? = nil, security: VirtualSecurity = .none,
        descriptors: [VirtualDescriptor] = []
    ) {
        self.uuid = UUIDText.full(uuid)
        self.flags = flags
        self.value = value
        self.read = read
        self.write = write
        self.delay = delay
        self.answers = answers
        self.subscribeFailure = subscribeFailure
        self.security = security
        self.descriptors = descriptors
    }
}

/// A descriptor of a ``VirtualCharacteristic``, other than 2902.
public struct VirtualDescriptor: Sendable {
    /// All 36 characters, in lower case.
    public var uuid: String
    /// The value that is read.
    public var value: [UInt8]
    /// Whether it can be written.
    public var isWritable: Bool
    /// Makes the error with which a read is answered; nil: it is answered with the value.
    var refusal: (@Sendable () -> ATTFailure)?

    /// A descriptor with this value.
    public init(_ uuid: String, value: [UInt8], isWritable: Bool = false) {
        self.uuid = UUIDText.full(uuid)
        self.value = value
        self.isWritable = isWritable
    }
}

/// UUIDs as BlueZ writes them.
enum UUIDText {
    /// `180d` or `0x180D` on the Bluetooth base; others in lower case.
    static func full(_ text: String) -> String {
        let text = text.lowercased()
        let short = text.hasPrefix("0x") ? String(text.dropFirst(2)) : text
        switch short.utf8.count {
        case 4: return "0000\(short)-0000-1000-8000-00805f9b34fb"
        case 8: return "\(short)-0000-1000-8000-00805f9b34fb"
        default: return text
        }
    }

    /// The UUID's bytes as sent over the air: 2 or 16, in little-endian order.
    static func bytes(_ full: String) -> [UInt8] {
        let hex = full.filter { $0 != "-" }
        let bytes = Hex.bytes(hex) ?? []
        guard full.hasSuffix("-0000-1000-8000-00805f9b34fb"), full.hasPrefix("0000") else { return bytes.reversed() }
        return [bytes[3], bytes[2]]
    }
}

/// Hexadecimal text.
enum Hex {
    static func bytes(_ text: String) -> [UInt8]? {
        guard text.utf8.count % 2 == 0 else { return nil }
        var result: [UInt8] = []
        var rest = text.utf8.makeIterator()
        func digit(_ c: UInt8) -> UInt8? {
            switch c {
            case UInt8(ascii: "0")...UInt8(ascii: "9"): c - UInt8(ascii: "0")
            case UInt8(ascii: "a")...UInt8(ascii: "f"): c - UInt8(ascii: "a") + 10
            case UInt8(ascii: "A")...UInt8(ascii: "F"): c - UInt8(ascii: "A") + 10
            default: nil
            }
        }
        while let high = rest.next(), let low = rest.next() {
            guard let high = digit(high), let low = digit(low) else { return nil }
            result.append(high << 4 | low)
        }
        return result
    }

    static func text(_ bytes: some Sequence<UInt8>) -> String { bytes.map(byte).joined() }
    static func byte(_ byte: UInt8) -> String { text(UInt(byte), digits: 2) }
    static func handle(_ handle: UInt16) -> String { text(UInt(handle), digits: 4) }

    static func text(_ number: UInt, digits: Int) -> String {
        let text = String(number, radix: 16)
        return String(repeating: "0", count: max(0, digits - text.count)) + text
    }
}
