import BluezDBus
import Foundation
import Testing

@testable import BluezKit

@Suite struct AttributeTableTests {
    private static let device = "/org/bluez/hci0/dev_F0_00_00_00_00_01"
    private let uuid = CBUUID(string: "2A37")

    private func path(_ text: String) -> ObjectPath { ObjectPath(Self.device + text) ?? "/" }

    /// One service, with `count` characteristics of one descriptor each.
    private func tree(_ count: Int) -> AttributeTable {
        var tree = AttributeTable()
        tree.insert(AttributeTable.Service(path: path("/service0001"), uuid: uuid, isPrimary: true))
        for number in 0..<count {
            let hex = String(number + 0x1000, radix: 16)
            tree.insert(
                AttributeTable.Characteristic(path: path("/service0001/char\(hex)"), uuid: uuid, properties: [.read]))
            tree.insert(AttributeTable.Descriptor(path: path("/service0001/char\(hex)/desc\(hex)"), uuid: uuid))
        }
        return tree
    }

    /// Everything that an app asks of a table, and the end of it.
    /// - Returns: The processor time that it takes, in seconds.
    private func work(_ count: Int) -> Double {
        threadTime {
            var tree = tree(count)
            let services = tree.visibleServices()
            var found = 0
            for characteristic in tree.characteristics(of: services[0].path.rawValue, isBonded: false) {
                found += tree.descriptors(of: characteristic.path.rawValue).count
                _ = tree.remove(characteristic.path)
            }
            #expect(found == count && tree.characteristics.isEmpty && tree.descriptors.isEmpty)
        }
    }

    @Test("the work for a table grows with it, not with its square")
    func isLinear() {
        // Sixteen times as much, and something for sorting; the square would be 256 times. A machine that has other
        // things to do disturbs some of the pairs.
        let ratios = (0..<8).map { _ in work(4000) / work(250) }
        #expect(ratios.min() ?? .infinity < 80)
    }

    @Test("GD-3 lists are in table order, and removing an object removes everything below it")
    func removal() {
        var tree = tree(3)
        let service = Self.device + "/service0001"
        #expect(tree.characteristics(of: service).map(\.path.lastElement) == ["char1000", "char1001", "char1002"])
        let gone = tree.remove(path("/service0001/char1001"))
        #expect(gone?.service == service && gone?.characteristics == [service + "/char1001"])
        #expect(tree.descriptors(of: service + "/char1001").isEmpty && tree.descriptors.count == 2)
        #expect(tree.remove(path("/service0001/char1000/desc1000"))?.service == service)
        #expect(!tree.hasCCCD(service + "/char1000"))
        let all = tree.remove(path("/service0001"))
        #expect(all?.service == service && Set(all?.characteristics ?? []).count == 2)
        #expect(tree.services.isEmpty && tree.characteristics.isEmpty && tree.descriptors.isEmpty)
        #expect(tree.remove(path("/service0001")) == nil)
    }

    @Test("GD-1 a service that BlueZ calls secondary, and that no other one includes, is primary")
    func replaced() {
        var tree = AttributeTable()
        func insert(_ number: Int, isPrimary: Bool, includes: [Int] = []) {
            tree.insert(
                AttributeTable.Service(
                    path: path("/service000\(number)"), uuid: uuid, isPrimary: isPrimary,
                    includes: includes.map { Self.device + "/service000\($0)" }))
        }
        insert(1, isPrimary: true)
        insert(2, isPrimary: false)
        let layout = tree.layout(of: Self.device + "/service0002")
        insert(3, isPrimary: false)
        insert(4, isPrimary: true, includes: [3])
        #expect(tree.visibleServices().map(\.path.lastElement) == ["service0001", "service0002", "service0004"])
        #expect(tree.visibleServices().allSatisfy { $0.isPrimary })
        #expect(tree.includedServices(of: Self.device + "/service0004").map(\.isPrimary) == [false])
        insert(2, isPrimary: true)  // once BlueZ has forgotten what was there before
        #expect(tree.layout(of: Self.device + "/service0002") == layout)
    }

    @Test("GD-9 values from earlier links are withheld while an unbonded peer has Service Changed")
    func serviceChanged() {
        var tree = tree(0)
        let service = Self.device + "/service0001"
        tree.insert(
            AttributeTable.Characteristic(
                path: path("/service0001/char0010"), uuid: uuid, properties: [.read], value: [1]))
        #expect(tree.characteristics(of: service, isBonded: false).first?.value == [1])
        let changed = AttributeTable.Characteristic(
            path: path("/service0001/char0020"), uuid: CBUUID(string: "2A05"), properties: [.indicate])
        for _ in 0..<2 { tree.insert(changed) }  // announced again
        #expect(tree.characteristics(of: service, isBonded: false).first?.value == nil)
        #expect(tree.characteristics(of: service, isBonded: true).first?.value == [1])
        _ = tree.remove(changed.path)
        #expect(tree.characteristics(of: service, isBonded: false).first?.value == [1])
    }

    @Test("the service of an attribute is determined by its path")
    func serviceOfPath() {
        let service = Self.device + "/service0001"
        for below in ["", "/char0002", "/char0002/desc0003"] {
            #expect(AttributeTable.service(of: service + below) == service)
        }
    }

    // MARK: From messages

    private let uuids = UUIDPool()

    @discardableResult
    private func add(_ text: String, _ properties: [(String, Value)], to tree: inout AttributeTable) throws -> String? {
        try read(.properties(properties)) { try tree.add(path(text), properties: &$0, uuids: uuids) }
    }

    /// A service with one characteristic and one descriptor, as BlueZ announces them.
    private func announced() throws -> AttributeTable {
        var tree = AttributeTable()
        try add("/service0001", [("UUID", .string("180D")), ("Primary", .bool(true))], to: &tree)
        try add("/service0001/char0002", [("UUID", .string("2A37")), ("Flags", .strings(["notify"]))], to: &tree)
        try add("/service0001/char0002/desc0004", [("UUID", .string("2902"))], to: &tree)
        return tree
    }

    @Test("objects are read by the level of their path, and each names the service that it changes")
    func announcements() throws {
        var tree = AttributeTable()
        let service = Self.device + "/service0001"
        #expect(try add("/service0001", [("UUID", .string("180D"))], to: &tree) == service)
        #expect(try add("/service0001/char0002", [("UUID", .string("2A37"))], to: &tree) == service)
        #expect(try add("/service0001/char0002/desc0003", [("UUID", .string("2902"))], to: &tree) == service)
        #expect(tree.version(of: service) == 3 && tree.versions(of: [service, "/x"]) == [service: 3, "/x": 0])
        #expect(tree.hasCCCD(service + "/char0002"))
        for below in ["", "/char0002", "/char0002/desc0003"] { #expect(tree.has(service + below)) }
        #expect(!tree.has(Self.device))
        for text in ["", "/char0001", "/service0001/desc0002", "/service0001/char0002/desc0003/x"] {
            #expect(try add(text, [("UUID", .string("2A38"))], to: &tree) == nil, "\(text)")
        }
        #expect(tree.services.count == 1 && tree.characteristics.count == 1 && tree.descriptors.count == 1)
    }

    @Test("only an object's attribute interfaces are read")
    func interfaces() throws {
        func add(_ interface: String, to tree: inout AttributeTable) throws -> String? {
            let entry = Value.Entry(.string(interface), .properties([("UUID", .string("180D"))]))
            return try read(.dictionary(key: "s", value: "a{sv}", [entry])) {
                try tree.add(path("/service0001"), &$0, uuids: uuids)
            }
        }
        var tree = AttributeTable()
        for interface in ["org.freedesktop.DBus.Properties", "org.bluez.Device1", "org.bluez.GattService10"] {
            #expect(try add(interface, to: &tree) == nil)
        }
        #expect(tree.services.isEmpty)
        #expect(try add("org.bluez.GattService1", to: &tree) == Self.device + "/service0001")
    }

    @Test("an object without a UUID is an error, and one with a property of a wrong type as well")
    func malformed() throws {
        var tree = AttributeTable()
        let wrong: [[(String, Value)]] = [
            [], [("Primary", .bool(true))], [("UUID", .string("heart"))], [("UUID", .int32(1))],
            [("UUID", .string("180D")), ("Primary", .string("yes"))],
            [("UUID", .string("180D")), ("Includes", .strings(["/a"]))],
            [("UUID", .string("180D")), ("MTU", .int32(23))],
        ]
        for properties in wrong {
            #expect(throws: BusError.self) { try add("/service0001", properties, to: &tree) }
        }
        #expect(tree.services.isEmpty && tree.mtuBytes == nil)
    }

    @Test("GD-11 BlueZ's flags become properties, and those that are BlueZ's own are left out")
    func flags() throws {
        let flags: [(String, CBCharacteristicProperties)] = [
            ("broadcast", .broadcast), ("read", .read), ("write-without-response", .writeWithoutResponse),
            ("write", .write), ("notify", .notify), ("indicate", .indicate),
            ("authenticated-signed-writes", .authenticatedSignedWrites), ("extended-properties", .extendedProperties),
            ("encrypt-read", []), ("reliable-write", []), ("Read", []), ("", []),
        ]
        var tree = AttributeTable()
        let service = Self.device + "/service0001"
        for (flag, property) in flags {
            try add("/service0001/char0002", [("UUID", .string("2A37")), ("Flags", .strings([flag]))], to: &tree)
            #expect(tree.characteristics(of: service).map(\.properties) == [property], "\(flag)")
        }
        let all = flags.map(\.0)
        try add("/service0001/char0002", [("UUID", .string("2A37")), ("Flags", .strings(all))], to: &tree)
        #expect(tree.characteristics(of: service)[0].properties == flags.reduce(into: []) { $0.formUnion($1.1) })
    }

    @Test("GD-10 a value that BlueZ knew is kept, but not one that notifies")
    func values() throws {
        var tree = AttributeTable()
        for (flags, value) in [(["read"], [1, 2]), (["read", "notify"], nil), (["indicate"], nil)]
            as [([String], [UInt8]?)]
        {
            try add(
                "/service0001/char0002",
                [("UUID", .string("2A37")), ("Value", .bytes([1, 2])), ("Flags", .strings(flags))], to: &tree)
            #expect(tree.characteristics(of: Self.device + "/service0001")[0].value == value, "\(flags)")
        }
    }

    @Test(
        "GD-8 system services are not listed as primary services; secondary ones are found where they are included")
    func visible() throws {
        var tree = AttributeTable()
        let secondary = Self.device + "/service0030"
        for (number, uuid) in ["1800", "1801", "180D", "180A"].enumerated() {
            let includes: [Value] = [.path(path("/service0030")), .path(path("/service0099"))]
            try add(
                "/service00\(4 - number)0",
                [("UUID", .string(uuid)), ("Primary", .bool(true)), ("Includes", .array(element: "o", includes))],
                to: &tree)
        }
        #expect(tree.visibleServices().map(\.uuid.uuidString) == ["180A", "180D"])
        try add("/service0030", [("UUID", .string("180F")), ("Primary", .bool(false))], to: &tree)
        #expect(tree.visibleServices().map(\.uuid.uuidString) == ["180A", "180D"])
        let included = tree.includedServices(of: Self.device + "/service0010")
        #expect(included.map(\.path.rawValue) == [secondary] && included[0].version == tree.version(of: secondary))
        #expect(tree.includedServices(of: secondary).isEmpty && tree.includedServices(of: "/x").isEmpty)
    }

    @Test("lists are in the order of the handles, whatever the order of the announcements")
    func handles() throws {
        var tree = AttributeTable()
        let service = Self.device + "/service0001"
        for handle in ["00ff", "0003", "0100", "000a"] {
            try add("/service0001/char0002/desc\(handle)", [("UUID", .string("2901"))], to: &tree)
            try add("/service0001/char\(handle)", [("UUID", .string("2A37"))], to: &tree)
            try add("/service\(handle)", [("UUID", .string("180D"))], to: &tree)
        }
        let found = [
            tree.visibleServices().map(\.path), tree.characteristics(of: service).map(\.path),
            tree.descriptors(of: service + "/char0002").map(\.path),
        ]
        for paths in found {
            #expect(paths.map { String($0.lastElement.suffix(4)) } == ["0003", "000a", "00ff", "0100"])
        }
    }

    @Test(
        "IV-1 the digest of a service changes with everything in it, and with nothing else; each change is a new version"
    )
    func layouts() throws {
        let service = Self.device + "/service0001"
        let tree = try announced()
        let layout = try #require(tree.layout(of: service))
        #expect(try announced().layout(of: service) == layout && tree.layout(of: Self.device) == nil)
        #expect(tree.visibleServices().first?.layout == layout && tree.visibleServices().first?.version == 3)
        let heart: [(String, Value)] = [("UUID", .string("2A37")), ("Flags", .strings(["notify"]))]
        let changes: [(String, [(String, Value)])] = [
            ("/service0001", [("UUID", .string("180F"))]),
            ("/service0001", [("UUID", .string("180D")), ("Includes", .array(element: "o", [.path("/a")]))]),
            ("/service0001/char0002", [("UUID", .string("2A38")), ("Flags", .strings(["notify"]))]),
            ("/service0001/char0002", [("UUID", .string("2A37")), ("Flags", .strings(["indicate"]))]),
            ("/service0001/char0005", heart), ("/service0001/char0002/desc0004", [("UUID", .string("2901"))]),
            ("/service0001/char0002/desc0005", [("UUID", .string("2902"))]),
        ]
        for (text, properties) in changes {
            var changed = tree
            try add(text, properties, to: &changed)
            #expect(changed.layout(of: service) != layout, "\(text) \(properties)")
            #expect(changed.version(of: service) == 4)
        }
        var same = tree
        try add("/service0009/char000a", heart, to: &same)
        try add("/service0001/char0002", heart + [("Value", .bytes([1])), ("MTU", .uint16(100))], to: &same)
        #expect(same.layout(of: service) == layout && same.version(of: service) == 4)
        for below in ["/char0002/desc0004", "/char0002", ""] {
            var changed = tree
            _ = changed.remove(path("/service0001" + below))
            #expect(changed.layout(of: service) != layout && changed.version(of: service) == 4)
            _ = changed.remove(path("/service0001" + below))
            #expect(changed.version(of: service) == 4, "it was not there")
        }
    }

    @Test("a change of a known object concerns its included services and the MTU, at least 23, which only grows")
    func propertyChanges() throws {
        var tree = try announced()
        let service = Self.device + "/service0001"
        try add("/service0009", [("UUID", .string("180F")), ("Primary", .bool(false))], to: &tree)
        func change(_ path: String, _ properties: [(String, Value)]) throws {
            try read(.properties(properties)) { try tree.change(path, &$0, uuids: uuids) }
        }
        let included = Value.array(element: "o", [.path(path("/service0009"))])
        try change(service, [("Includes", included), ("UUID", .string("180F"))])
        #expect(tree.includedServices(of: service).count == 1 && tree.services[service]?.uuid == CBUUID(string: "180D"))
        try change("/unknown", [("Includes", included)])
        #expect(tree.services.count == 2)
        for (reported, used) in [(0, 23), (22, 23), (517, 517), (23, 517), (65_535, 65_535)] as [(UInt16, Int)] {
            try change(service + "/char0002", [("MTU", .uint16(reported)), ("Value", .bytes([1]))])
            #expect(tree.mtuBytes == used)
        }
        #expect(tree.characteristics[service + "/char0002"]?.value == nil)
        #expect(throws: BusError.self) { try change(service, [("MTU", .string("23"))]) }
        #expect(tree.mtuBytes == 65_535)
        tree.forgetMTU()
        #expect(tree.mtuBytes == nil)
    }

    @Test("a table that is too large has a flaw, and stays as it was")
    func limit() throws {
        var tree = tree((AttributeTable.limit - 1) / 2)
        while tree.descriptors.count + tree.characteristics.count + 1 < AttributeTable.limit {
            tree.insert(AttributeTable.Descriptor(path: path("/service0001/char1000/descffff"), uuid: uuid))
        }
        #expect(tree.readError == nil)
        #expect(try add("/service0002", [("UUID", .string("180D"))], to: &tree) == nil)
        #expect(tree.services.count == 1)
        guard case .limit? = tree.readError else {
            return #expect(Bool(false), "\(String(describing: tree.readError))")
        }
    }
}
