import BluezDBus
import Foundation
import Testing

@testable import BluezKit

@Suite struct DevicePropertiesTests {
    private typealias Changes = DeviceProperties.Changes
    private typealias Kinds = DeviceProperties.Kinds
    private let uuids = UUIDPool()
    private let heart = CBUUID(string: "180D")
    private static let heartText = "0000180d-0000-1000-8000-00805f9b34fb"

    @discardableResult
    private func apply(_ values: [(String, Value)], to properties: inout DeviceProperties) throws -> Changes {
        try read(.properties(values)) { try properties.apply(&$0, of: "/org/bluez/hci0/dev_1", uuids: uuids) }
    }

    private func properties(_ values: [(String, Value)]) throws -> DeviceProperties {
        var properties = DeviceProperties()
        try apply(values, to: &properties)
        return properties
    }

    private func manufacturers(_ entries: [(UInt16, [UInt8])]) -> (String, Value) {
        (
            "ManufacturerData",
            .dictionary(key: "q", value: "v", entries.map { .init(.uint16($0), .variant(.bytes($1))) })
        )
    }

    private func advertised(_ entries: [(UInt8, [UInt8])]) -> (String, Value) {
        ("AdvertisingData", .dictionary(key: "y", value: "v", entries.map { .init(.byte($0), .variant(.bytes($1))) }))
    }

    @Test("every property that the API shows is read from BlueZ's message, and unknown ones are ignored")
    func all() throws {
        var found = DeviceProperties()
        let changes = try apply(
            [
                ("Address", .string("F0:F1:F2:00:00:01")), ("AddressType", .string("random")),
                ("Name", .string("Heart")), ("Alias", .string("Other")), ("RSSI", .int16(-60)),
                ("TxPower", .int16(4)), ("UUIDs", .strings([Self.heartText])), manufacturers([(0x004C, [1, 2])]),
                (
                    "ServiceData",
                    .dictionary(
                        key: "s", value: "v", [.init(.string(Self.heartText), .variant(.bytes([7])))])
                ), ("Connected", .bool(true)), ("ServicesResolved", .bool(true)), ("Bonded", .bool(true)),
                advertised([(0x14, [0x0D, 0x18])]), ("Sets", .array(element: "o", [])),
            ], to: &found)
        #expect(found.identity == DeviceIdentity(address: 0xF0F1_F200_0001, isRandom: true))
        #expect(found.name == "Heart" && found.rssiDBm == -60 && found.txPowerDBm == 4)
        #expect(found.services == [heart] && found.solicitedServices == [heart])
        #expect(found.manufacturerData == Data([0x4C, 0x00, 1, 2]) && found.serviceData == [heart: Data([7])])
        #expect(found.isConnected && found.areServicesResolved && found.isBonded)
        #expect(changes == [.advertisement, .name, .connected, .servicesResolved, .services, .bonded, .pairing])
        #expect(
            found.kinds == [.name, .services, .manufacturerData, .serviceData, .txPower, .solicited])
    }

    @Test("the alias that BlueZ makes of the name or the address is no setting of the user, and another one is")
    func settings() throws {
        let address = ("Address", Value.string("F0:F1:F2:00:00:01"))
        func exist(_ properties: [(String, Value)]) throws -> Bool {
            try self.properties([address] + properties).settings.exist
        }
        #expect(try !exist([]) && !exist([("Alias", .string("F0-F1-F2-00-00-01"))]))
        #expect(try !exist([("Alias", .string("Heart")), ("Name", .string("Heart"))]))
        #expect(try exist([("Alias", .string("Mine")), ("Name", .string("Heart"))]))
        #expect(try exist([("Alias", .string("Mine"))]))
        for key in ["Trusted", "Blocked"] {
            #expect(try exist([(key, .bool(true))]) && !exist([(key, .bool(false))]))
        }
        var found = try properties([address, ("Name", .string("Heart")), ("Alias", .string("Mine"))])
        try apply([("Alias", .string("Heart"))], to: &found)
        #expect(!found.settings.exist)
    }

    @Test("a message changes only what it contains, and says which of it matters")
    func changes() throws {
        let expected: [((String, Value), Changes)] = [
            (("RSSI", .int16(-60)), .advertisement), (manufacturers([(1, [])]), .advertisement),
            (("ServiceData", .dictionary(key: "s", value: "v", [])), .advertisement), (("Name", .string("")), .name),
            (("Connected", .bool(false)), .connected), (("ServicesResolved", .bool(false)), .servicesResolved),
            (("UUIDs", .strings([])), .services), (("Paired", .bool(false)), .bonded),
            (("Bonded", .bool(false)), .bonded), (("TxPower", .int16(0)), []),
            (("Address", .string("F0:F1:F2:00:00:01")), []), (("Trusted", .bool(true)), []),
        ]
        var found = try properties([("Name", .string("Heart")), ("RSSI", .int16(-70))])
        for (property, changes) in expected { #expect(try apply([property], to: &found) == changes, "\(property)") }
        #expect(try apply([], to: &found) == [])
        #expect(found.name == "" && found.rssiDBm == -60 && found.txPowerDBm == 0)
    }

    @Test("a pairing has ended when Paired or Bonded is another one than before, not when it comes again")
    func pairing() throws {
        var found = DeviceProperties()
        for (key, value, hasEnded) in [
            ("Paired", false, false), ("Bonded", false, false), ("Bonded", true, true), ("Bonded", true, false),
            ("Paired", true, true), ("Paired", true, false), ("Paired", false, true), ("Bonded", false, true),
        ] {
            let expected: Changes = hasEnded ? [.bonded, .pairing] : .bonded
            #expect(try apply([(key, .bool(value))], to: &found) == expected, "\(key) \(value)")
        }
    }

    @Test("a value of a wrong type is ignored, and does not hide the end of the link behind it")
    func wrongTypes() throws {
        let keys = [
            "Address", "AddressType", "AdvertisingData", "Bonded", "Paired", "ManufacturerData", "Name", "RSSI",
            "ServicesResolved", "ServiceData", "TxPower", "UUIDs",
        ]
        let valid: [(String, Value)] = [
            ("Address", .string("F0:F1:F2:00:00:01")), ("AddressType", .string("random")), ("Name", .string("Heart")),
            ("RSSI", .int16(-60)), ("TxPower", .int16(4)), ("UUIDs", .strings([Self.heartText])),
            manufacturers([(1, [2])]), ("Connected", .bool(true)), ("ServicesResolved", .bool(true)),
            ("Bonded", .bool(true)),
        ]
        for key in keys {
            var found = try properties(valid)
            let changes = try apply([(key, .int64(1)), ("Connected", .bool(false))], to: &found)
            #expect(changes == .connected, "\(key)")
            #expect(!found.isConnected && found.name == "Heart" && found.rssiDBm == -60, "\(key)")
            #expect(found.services == [heart] && found.manufacturerData == Data([1, 0, 2]), "\(key)")
            #expect(found.identity?.isRandom == true && found.isBonded && found.areServicesResolved, "\(key)")
        }
        var found = try properties(valid)
        #expect(try apply([("Connected", .string("no")), ("Name", .string("New"))], to: &found) == .name)
        #expect(found.isConnected && found.name == "New")
    }

    @Test("a value that is not a dictionary of properties is an error, and changes nothing")
    func malformed() throws {
        for value: Value in [
            .string("Name"), .strings(["Name"]), .uint32(1),
            .dictionary(key: "q", value: "v", [.init(.uint16(1), .variant(.bool(true)))]),
        ] {
            var found = try properties([("Name", .string("Heart"))])
            #expect(throws: BusError.self) {
                try read(value) { _ = try found.apply(&$0, of: "/d", uuids: uuids) }
            }
            #expect(found.name == "Heart")
        }
    }

    @Test("the type of the address stays what it was if only the address changes")
    func addressType() throws {
        var found = try properties([("Address", .string("F0:F1:F2:00:00:01"))])
        #expect(found.identity?.isRandom == false)
        try apply([("AddressType", .string("random")), ("Address", .string("F0:F1:F2:00:00:02"))], to: &found)
        #expect(found.identity == DeviceIdentity(address: 0xF0F1_F200_0002, isRandom: true))
        try apply([("Address", .string("F0:F1:F2:00:00:03"))], to: &found)
        #expect(found.identity == DeviceIdentity(address: 0xF0F1_F200_0003, isRandom: true))
        try apply([("Address", .string("here"))], to: &found)
        #expect(found.identity == nil)
    }

    @Test("Bonded decides about the bond; Paired does only if BlueZ has no Bonded")
    func bond() throws {
        #expect(try !properties([]).isBonded)
        #expect(try properties([("Paired", .bool(true))]).isBonded)
        #expect(try !properties([("Paired", .bool(true)), ("Bonded", .bool(false))]).isBonded)
        #expect(try properties([("Bonded", .bool(true)), ("Paired", .bool(false))]).isBonded)
    }

    // Of two companies' entries in one advertisement the app got the last at first, and the first in each report after
    // that.
    @Test("SC-8 all entries of manufacturer data are kept in order, and Apple's key always has the same one")
    func manufacturerData() throws {
        var found = DeviceProperties()
        func one(_ entries: (UInt16, [UInt8])...) throws -> Data? {
            try apply([manufacturers(entries)], to: &found)
            #expect(found.manufacturerEntries.map { UInt16($0[0]) | UInt16($0[1]) << 8 } == entries.map(\.0))
            #expect(found.manufacturerEntries.map { [UInt8]($0.dropFirst(2)) } == entries.map(\.1))
            return found.manufacturerData
        }
        #expect(try one((0x1234, [1])) == Data([0x34, 0x12, 1]))
        let (vendor, beacon): ((UInt16, [UInt8]), (UInt16, [UInt8])) = ((0xEC88, [0, 3]), (0x004C, [2, 0x15, 7]))
        for _ in 0..<3 { #expect(try one(vendor, beacon) == Data([0x88, 0xEC, 0, 3])) }
        for _ in 0..<3 { #expect(try one(beacon, vendor) == Data([0x88, 0xEC, 0, 3]), "no iBeacon beside others") }
        #expect(try one(beacon) == Data([0x4C, 0, 2, 0x15, 7]))
        // Whatever changes.
        #expect(try one((2, [1]), (1, [1])) == Data([2, 0, 1]))
        #expect(try one((2, [1]), (1, [2])) == Data([2, 0, 1]))
        #expect(try one((2, [3]), (1, [2]), (3, [])) == Data([2, 0, 3]))
        #expect(try one() == nil)
    }

    @Test("invalid UUIDs are omitted from lists and from service data")
    func wrongUUIDs() throws {
        let data: [Value.Entry] = [
            .init(.string("x"), .variant(.bytes([1]))), .init(.string(Self.heartText), .variant(.bytes([2]))),
        ]
        let found = try properties([
            ("UUIDs", .strings(["", Self.heartText, "180"])),
            ("ServiceData", .dictionary(key: "s", value: "v", data)),
        ])
        #expect(found.services == [heart] && found.serviceData == [heart: Data([2])])
    }

    @Test("solicited services of each length are read from advertising data; incomplete ones are ignored")
    func solicited() throws {
        func solicited(_ entries: (UInt8, [UInt8])...) throws -> [CBUUID] {
            try properties([advertised(entries)]).solicitedServices
        }
        let long = (0..<16).map { UInt8($0) }
        #expect(try solicited((0x14, [0x0D, 0x18, 0x0F, 0x18])) == [heart, CBUUID(string: "180F")])
        #expect(try solicited((0x1F, [0x0D, 0x18, 0, 0])) == [heart])
        #expect(try solicited((0x15, long)) == [CBUUID(data: Data(long.reversed()))])
        #expect(try solicited((0x14, [0x0D, 0x18, 0x0F])) == [heart])
        #expect(
            try solicited((0x14, []), (0x14, [1]), (0x1F, [1, 2, 3]), (0x15, [UInt8](repeating: 1, count: 15))) == [])
        #expect(try solicited((0x03, [0x0D, 0x18]), (0xFF, [1])) == [], "not solicited")
    }

    @Test("properties that BlueZ invalidates are removed, and an invalid list removes nothing")
    func invalidation() throws {
        let valid: [(String, Value)] = [
            ("Name", .string("Heart")), ("RSSI", .int16(-60)), ("TxPower", .int16(4)), manufacturers([(1, [2])]),
            ("UUIDs", .strings([Self.heartText])), ("Connected", .bool(true)),
        ]
        var found = try properties(valid)
        try read(.strings(["RSSI", "Unknown"])) { try found.invalidate(&$0) }
        #expect(found.rssiDBm == nil && found.kinds == [.name, .services, .manufacturerData, .txPower])
        try read(.strings(["Name", "TxPower", "ManufacturerData"])) { try found.invalidate(&$0) }
        #expect(found.kinds == .services && found.isConnected)
        try apply([manufacturers([(1, [2])])], to: &found)
        #expect(found.manufacturerData == Data([1, 0, 2]))
        found = try properties(valid)
        try? read(.array(element: "i", [.int32(1)])) { try found.invalidate(&$0) }
        try read(.strings([])) { try found.invalidate(&$0) }
        #expect(found.rssiDBm == -60 && found.name == "Heart")
    }
}
