import Testing

@testable import BluezKit

@Suite struct PathTableTests {
    @Test("stored values are found by text, by C string and by prefix; removed ones are not")
    func finds() {
        var table = PathTable<Int>()
        for n in 0..<1000 { table["/org/bluez/hci0/dev_\(n)"] = n }
        #expect(table.count == 1000)
        "/org/bluez/hci0/dev_7/service0001".withCString { path in
            #expect(table[path] == nil)
            #expect(table.find(path, 21) == 7)
        }
        "/org/bluez/hci0/dev_999".withCString { #expect(table[$0] == 999) }
        for n in 0..<500 { table["/org/bluez/hci0/dev_\(n)"] = nil }
        #expect(table.count == 500 && table["/org/bluez/hci0/dev_7"] == nil && table["/org/bluez/hci0/dev_777"] == 777)
        #expect(Set(table.values).count == 500)
    }

    @Test("keys that were chosen to collide do not, because UUIDs come from other devices")
    func collisions() {
        // These two collide under FNV-1a, which was the hash.
        func hash(_ text: String) -> Int { text.withCString { PathTable<Int>.hash($0, text.utf8.count) } }
        #expect(hash("8yn0iYCKYHlIj4-BwPqk") != hash("GReLUrM4wMqfg9yzV3KQ"))
    }

    @Test("the device's part of an object path is found")
    func devicePaths() {
        let device = "/org/bluez/hci0/dev_F0_F1_F2_00_00_01"
        for (path, length) in [
            (device, device.utf8.count), (device + "/service0001/char0002", device.utf8.count),
            ("/org/bluez/hci0", nil), ("/org/bluez", nil), ("/", nil), ("/org/bluez/hci0/set_1", nil),
            ("/org/bluez/hci0/de", nil),
        ] as [(String, Int?)] {
            #expect(path.withCString { BlueZ.devicePathLength($0) } == length, "\(path)")
        }
    }

    @Test("names of child objects are read from introspection data")
    func children() {
        let xml = """
            <!DOCTYPE node PUBLIC "x" "y">
            <node name="/org/bluez"><interface name="a.b"><method name="c"></method></interface>
            <node name="hci0"/><node name="hci1"></node></node>
            """
        #expect(BlueZProxy.childNodes(inIntrospection: xml) == ["hci0", "hci1"])
        #expect(BlueZProxy.childNodes(inIntrospection: "<node name=\"").isEmpty)
        #expect(BlueZProxy.childNodes(inIntrospection: "").isEmpty)
    }
}
