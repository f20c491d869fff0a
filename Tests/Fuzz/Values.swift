import BluezDBus

/// What BlueZ sends: mostly of the type that it documents with odd content, else anything that D-Bus can carry.
extension Choices {
    static let texts = [
        "", "x", "random", "public", "00:11:22:33:44:55", "F0:00:00:00:00:01", "ZZ:ZZ:ZZ:ZZ:ZZ:ZZ", "180d", "-",
        "\u{1b}]0;x\u{7}", "\u{202e}abc", "ä",
        String(repeating: "A", count: 300), "notify", "read", "write", "indicate",
        "org.bluez.Device1", "org.bluez.GattService1", "org.bluez.GattCharacteristic1", "org.bluez.GattDescriptor1",
        "org.bluez.Adapter1", "ATT error: 0x05", "deadbeef-dead-beef-dead-beefdeadbeef",
    ]
    static let propertyNames = [
        "Address", "AddressType", "Name", "Alias", "RSSI", "TxPower", "UUIDs", "ManufacturerData", "ServiceData",
        "AdvertisingData", "Connected", "Paired", "Bonded", "ServicesResolved", "Powered", "UUID", "Includes", "Flags",
        "Value", "MTU", "Primary", "Notifying", "Nonsense", "offset", "mtu", "device", "link",
    ]
    private static let shortUUIDs = [
        "1800", "1801", "180d", "180f", "2a37", "2a19", "2a05", "2902", "2901", "2904", "2a29", "fffe",
    ]
    private static let lengths = [0, 1, 2, 3, 4, 7, 15, 16, 17, 20, 31, 247, 512, 513]

    mutating func uuid() -> String {
        switch roll(8) {
        case 0: return pick(Self.texts)
        case 1:
            let digits = some(16).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }
            return [digits[0..<4], digits[4..<6], digits[6..<8], digits[8..<10], digits[10...]].map { $0.joined() }
                .joined(separator: "-")
        default: return "0000\(pick(Self.shortUUIDs))-0000-1000-8000-00805f9b34fb"
        }
    }

    static func address(_ number: Int) -> String {
        "F0:00:00:00:00:" + (number < 16 ? "0" : "") + String(number, radix: 16, uppercase: true)
    }

    static func device(_ number: Int) -> String {
        "/org/bluez/hci0/dev_" + String(address(number).map { $0 == ":" ? "_" : $0 })
    }

    /// An attribute of a device, or something that is nearly one.
    mutating func attributePath(of device: String) -> String {
        let steps = ["/service000", "/char000", "/desc000"].prefix(1 + roll(3)).map { $0 + String(roll(16), radix: 16) }
        return device + steps.joined() + (chance(3) ? "/x" : "")
    }

    mutating func path() -> ObjectPath {
        let device = Self.device(roll(3))
        let texts = [
            "/", "/org/bluez", "/org/bluez/hci0", "/org/bluez/hci1", device, device + "/sep1", "/org/bluez/hci0/dev_",
            "/org/bluez/hci0/dev_X/service/char/desc", attributePath(of: device), "/org/bluezkit/agent",
        ]
        return ObjectPath(pick(texts)) ?? "/"
    }

    /// Anything.
    mutating func value(_ depth: Int = 0) -> Value {
        switch roll(depth > 3 ? 14 : 21) {
        case 0: return .byte(byte())
        case 1: return .bool(chance(50))
        case 2: return .int16(Int16(bitPattern: word()))
        case 3: return .uint16(pick([0, 1, 2, 3, 22, 23, 517, .max, word()]))
        case 4: return .int32(pick([0, -1, .min, .max]))
        case 5: return .uint32(pick([0, 1, 999_999, 1_000_000, .max]))
        case 6: return .int64(.min)
        case 7: return .uint64(.max)
        case 8: return .double(pick([0, -1, .nan, .infinity]))
        case 9: return .string(pick(Self.texts))
        case 10: return .string(uuid())
        case 11: return .path(path())
        case 12: return .signature(pick(["", "s", "a{sv}", "(ii)"]))
        case 13: return .bytes(some(pick(Self.lengths)))
        case 14: return .strings(list(5) { $0.pick(Self.texts) })
        case 15: return .array(element: "o", list(4) { .path($0.path()) })
        case 16: return .properties(list(6) { ($0.pick(Self.propertyNames), $0.value(depth + 1)) })
        case 17:
            return .dictionary(
                key: "q", value: "v", list(4) { .init(.uint16($0.word()), .variant($0.value(depth + 1))) })
        case 18:
            return .dictionary(key: "y", value: "v", list(4) { .init(.byte($0.byte()), .variant($0.value(depth + 1))) })
        case 19: return .structure([value(depth + 1), value(depth + 1)])
        default: return .variant(value(depth + 1))
        }
    }

    /// The value of a property as BlueZ documents it; in `madness` percent of all cases another.
    mutating func property(_ name: String, madness: Int = 5) -> Value {
        if chance(madness) { return value() }
        switch name {
        case "Address": return .string(Self.address(roll(40)))
        case "AddressType": return .string(chance(20) ? "public" : "random")
        case "Name", "Alias":
            return .string(chance(50) ? pick(Self.texts) : String(decoding: some(12).map { max($0, 1) }, as: UTF8.self))
        case "RSSI", "TxPower": return .int16(Int16(bitPattern: word()))
        case "UUIDs": return .strings(list(6) { $0.uuid() })
        case "ManufacturerData":
            return .dictionary(
                key: "q", value: "v", list(4) { .init(.uint16($0.word()), .variant(.bytes($0.some($0.roll(40))))) })
        case "ServiceData": return .properties(list(4) { ($0.uuid(), .bytes($0.some($0.roll(40)))) })
        case "AdvertisingData":
            return .dictionary(
                key: "y", value: "v",
                list(4) { .init(.byte($0.pick([0x14, 0x15, 0x1F, 0x16])), .variant(.bytes($0.some($0.roll(50))))) })
        case "Connected", "Paired", "Bonded", "ServicesResolved", "Powered", "Notifying", "Primary":
            return .bool(!chance(30))
        case "UUID": return .string(uuid())
        case "Includes":
            return .array(element: "o", list(4) { .path(ObjectPath($0.attributePath(of: Self.device(0))) ?? "/") })
        case "Flags":
            return .strings(
                list(7) {
                    $0.pick([
                        "read", "write", "notify", "indicate", "write-without-response", "broadcast", "encrypt-read",
                        "authenticated-signed-writes", "extended-properties", "",
                    ])
                })
        case "Value": return .bytes(some(pick(Self.lengths)))
        case "Modalias":
            return .string(
                pick(["usb:v1D6Bp0246d0542", "usb:v1D6Bp0246d0557", "usb:v1D6Bp0246d05", "bluetooth:v0000"]))
        case "MTU", "mtu": return .uint16(pick([0, 1, 2, 3, 22, 23, 185, 247, 517, .max]))
        default: return value()
        }
    }

    mutating func properties(_ names: [String], most: Int = 6) -> [(String, Value)] {
        list(most) {
            let name = $0.chance(5) ? $0.pick(Self.propertyNames) : $0.pick(names)
            return (name, $0.property(name))
        }
    }
}
