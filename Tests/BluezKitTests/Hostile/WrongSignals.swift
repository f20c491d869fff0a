import BluezDBus

/// Signals that bluetoothd never sends: everything that BluezKit listens to, with wrong types, at wrong places.
struct WrongSignals {
    let device: String
    let characteristic: String

    private let noUUIDs = [
        "", "x", "18", "180", "180G", "0000180d", "0000180d-0000-1000-8000-00805f9b34f", "{180d}",
        "0000180d-0000-1000-8000-00805f9b34fbb", "0000180d_0000_1000_8000_00805f9b34fb", "ä80d-ä",
        "0000180d-0000-1000-8000-00805f9b34fä", String(repeating: "a", count: 10_000),
    ]

    /// One of each type.
    static let ofEveryType: [Value] = [
        .byte(1), .bool(true), .int16(-1), .uint16(1), .int32(-1), .uint32(1), .int64(-1), .uint64(.max), .double(.nan),
        .string("nonsense"), .string(""), .path("/nonsense"), .signature("a{sv}"), .bytes([]), .bytes([1, 2, 3]),
        .strings([]), .strings(["nonsense"]), .array(element: "o", [.path("/")]), .array(element: "v", []),
        .array(element: "ay", [.bytes([1])]), .properties([]), .properties([("nonsense", .byte(1))]),
        .dictionary(key: "q", value: "v", [.init(.uint16(1), .variant(.string("x")))]),
        .dictionary(key: "q", value: "ay", [.init(.uint16(1), .bytes([1]))]),
        .dictionary(key: "y", value: "v", [.init(.byte(0x14), .variant(.string("x")))]),
        .dictionary(key: "s", value: "s", [.init(.string("k"), .string("v"))]),
        .structure([.byte(1), .string("x")]), .variant(.variant(.bytes([1]))),
    ]

    /// The type of each property that BluezKit reads, by interface.
    static let properties: [(interface: String, name: String, signature: String)] = [
        ("Adapter1", "Powered", "b"), ("Device1", "Address", "s"), ("Device1", "AddressType", "s"),
        ("Device1", "AdvertisingData", "a{yv}"), ("Device1", "AdvertisingFlags", "ay"), ("Device1", "Alias", "s"),
        ("Device1", "Blocked", "b"), ("Device1", "Bonded", "b"), ("Device1", "Class", "u"),
        ("Device1", "Connected", "b"), ("Device1", "Trusted", "b"),
        ("Device1", "ManufacturerData", "a{qv}"), ("Device1", "Name", "s"), ("Device1", "RSSI", "n"),
        ("Device1", "ServiceData", "a{sv}"), ("Device1", "ServicesResolved", "b"), ("Device1", "TxPower", "n"),
        ("Device1", "UUIDs", "as"), ("GattService1", "UUID", "s"), ("GattService1", "Primary", "b"),
        ("GattService1", "Includes", "ao"), ("GattCharacteristic1", "UUID", "s"),
        ("GattCharacteristic1", "Value", "ay"), ("GattCharacteristic1", "Flags", "as"),
        ("GattCharacteristic1", "MTU", "q"), ("GattCharacteristic1", "Notifying", "b"),
    ]

    func path(_ interface: String) -> String {
        switch interface {
        case "Adapter1": "/org/bluez/hci0"
        case "Device1": device
        case "GattService1": characteristic.split(separator: "/").dropLast().map { "/" + $0 }.joined()
        default: characteristic
        }
    }

    /// PropertiesChanged with a value of each wrong type for each property.
    var wrongProperties: [Signal] {
        Self.properties.flatMap { property in
            Self.ofEveryType.filter { $0.signature != property.signature }.map {
                .changed(path(property.interface), property.interface, [(property.name, $0)])
            }
        }
    }

    /// Values of the right type that make no sense.
    var nonsense: [Signal] {
        let odd: [Value] = [0, 1, 3, 15, 17, 31].map { .bytes([UInt8](repeating: 0xAB, count: $0)) }
        func inside(_ type: UInt8, _ value: Value) -> Value {
            .dictionary(key: "y", value: "v", [.init(.byte(type), .variant(value))])
        }
        var signals: [Signal] = []
        for bytes in odd {
            for type: UInt8 in [0x14, 0x15, 0x1F, 0x00, 0xFF] {
                signals.append(
                    .changed(device, "Device1", [("AdvertisingData", inside(type, bytes)), ("RSSI", .int16(-1))]))
            }
        }
        for text in noUUIDs {
            signals.append(.changed(device, "Device1", [("UUIDs", .strings([text, "180d", text]))]))
            signals.append(.changed(device, "Device1", [("ServiceData", .properties([(text, .bytes([1]))]))]))
            signals.append(.changed(device, "Device1", [("Address", .string(text))]))
            let uuid: [(String, Value)] = [("UUID", .string(text))]
            signals.append(.changed(characteristic, "GattCharacteristic1", uuid))
            signals.append(.added(device + "/service00f0", "GattService1", uuid))
            signals.append(.added(device + "/service00f0/char00f1", "GattCharacteristic1", uuid))
            signals.append(.added(device + "/service00f0/char00f1/desc00f2", "GattDescriptor1", uuid))
        }
        let others: [(String, Value)] = [
            ("RSSI", .int16(.min)), ("RSSI", .int16(.max)), ("TxPower", .int16(.min)), ("Name", .string("")),
            ("Name", .string(String(repeating: "ä", count: 100_000))),
            ("ManufacturerData", .dictionary(key: "q", value: "v", [])),
        ]
        for other in others { signals.append(.changed(device, "Device1", [other])) }
        for mtu: UInt16 in [.max, 0, 2] {
            signals.append(.changed(characteristic, "GattCharacteristic1", [("MTU", .uint16(mtu))]))
        }
        return signals
    }

    /// Bodies that are too short, too long, or not what the signal has.
    var wrongBodies: [Signal] {
        let changed = Value.properties([("RSSI", .int16(-1))])
        let bodies: [[Value]] = [
            [], [changed], [changed, .strings([]), .string("extra")], [.byte(1)], [.string("x")], [.strings(["RSSI"])],
            [changed, .byte(1)], [changed, .properties([])], [changed, .array(element: "o", [.path("/")])],
            [changed, .strings(["RSSI", "", "Nonsense", "Connected"]), .byte(1), .byte(2)],
            [.dictionary(key: "s", value: "s", []), .strings([])], [.array(element: "(sv)", []), .strings([])],
        ]
        let interfaces = ["Device1", "GattCharacteristic1", "GattService1", "Adapter1", "", "Nonsense1", "Battery1"]
        let paths = [device, characteristic, "/org/bluez/hci0", "/", device + "/nonsense", "/org/bluez/hci0/dev_"]
        var signals: [Signal] = []
        for interface in interfaces {
            for path in paths { signals += bodies.map { Signal.properties(path, interface, $0) } }
        }
        let arguments: [[Value]] = [[]] + Self.ofEveryType.map { [$0] }
        for member in ["PropertiesChanged", "InterfacesAdded", "InterfacesRemoved", "Disconnected", "Nonsense"] {
            for path in [device, characteristic, "/"] {
                signals += arguments.map {
                    Signal(path: path, interface: "org.freedesktop.DBus.Properties", member: member, arguments: $0)
                }
            }
        }
        let reasons: [[Value]] = [
            [], [.string("org.bluez.Reason.Remote")], [.byte(1), .byte(2)], [.string("a"), .bytes([])],
        ]
        return signals
            + reasons.map {
                Signal(path: device, interface: "org.bluez.Device1", member: "Disconnected", arguments: $0)
            }
    }

    /// Objects at impossible paths.
    var oddPaths: [Signal] {
        let uuid = Value.string("0000180d-0000-1000-8000-00805f9b34fb")
        let paths = [
            "/", "/org", "/org/bluez", "/org/bluez/hci", "/org/bluez/hci0/x", "/org/bluez/hci7",
            "/org/bluez/hci7/dev_F0_00_00_00_00_01", "/org/bluez/hci7/dev_F0_00_00_00_00_01/service0001",
            "/org/bluez/hci0/dev_", "/org/bluez/hci0/dev_X", "/org/bluez/hci0/dev_ZZ_ZZ_ZZ_ZZ_ZZ_ZZ",
            "/org/bluez/hci0/dev_F0_00_00_00_00_01/service0001/char0002", "/a/b/c/dev_F0_00_00_00_00_01",
            device + "/char0001", device + "/desc0001", device + "/service00f0/desc0001",
            device + "/service00f0/char0001/char0002", device + "/service", device + "/char", device + "/x",
            device + "/service00f0/char00f1/desc00f2/desc00f3", device + "/sep1", device + "/player0/item1",
            device + "/service00f0/service00f1",
        ]
        var signals: [Signal] = [
            .removed([.path(ObjectPath(device) ?? "/"), .strings(["org.bluez.Battery1"])]),
            .removed([.path("/org/bluez/hci0"), .strings(["org.bluez.LEAdvertisingManager1"])]),
        ]
        for path in paths {
            let object = Value.path(ObjectPath(path) ?? "/")
            for interface in ["GattService1", "GattCharacteristic1", "GattDescriptor1", "Device1", "Nonsense1"] {
                signals.append(.added(path, interface, [("UUID", uuid), ("Address", .string("F0:00:00:00:00:01"))]))
                signals.append(.added(path, interface, []))
                signals.append(
                    .changed(path, interface, [("Value", .bytes([1])), ("RSSI", .int16(-1)), ("MTU", .uint16(3))]))
                signals.append(.removed([object, .strings(["org.bluez." + interface])]))
                signals.append(.removed([object, .strings([])]))
            }
            let rests: [[Value]] = [
                [], [.byte(1)], [.properties([])], [.dictionary(key: "s", value: "a{sv}", [])], [.strings([])],
                [.strings(["org.bluez.Device1"]), .byte(1)],
            ]
            for rest in rests {
                signals.append(.added([object] + rest))
                signals.append(.removed([object] + rest))
            }
        }
        return signals
    }
}
