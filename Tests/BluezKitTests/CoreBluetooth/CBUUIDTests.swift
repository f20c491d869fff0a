import Testing

@testable import BluezKit

@Suite struct CBUUIDTests {
    static let long = "0000180D-0000-1000-8000-00805F9B34FB"
    static let custom = "ABDD3056-28FA-441D-A470-55A75A52553A"

    @Test("UU-1 texts of 4, 8 and 36 characters, in either case, are UUIDs")
    func texts() {
        #expect(CBUUID(string: "180D").data == Data([0x18, 0x0D]))
        #expect(CBUUID(string: "180d") == CBUUID(string: "180D"))
        #expect(CBUUID(string: "12345678").data == Data([0x12, 0x34, 0x56, 0x78]))
        #expect(CBUUID(string: Self.custom).data.count == 16)
        #expect(CBUUID(string: Self.custom.lowercased()) == CBUUID(string: Self.custom))
    }

    @Test(
        "UU-1 UU-4 a 0x before the digits, as samples write it, is not part of the UUID",
        arguments: ["0x180D", "0X180d"])
    func prefix(text: String) {
        #expect(CBUUID(string: text) == CBUUID(string: "180D"))
        #expect(CBUUID(string: text).uuidString == "180D" && CBUUID(string: text).data == Data([0x18, 0x0D]))
    }

    @Test("UU-1 2, 4 and 16 bytes, most significant first, are UUIDs")
    func bytes() {
        #expect(CBUUID(data: Data([0x18, 0x0D])).uuidString == "180D")
        #expect(CBUUID(data: Data([0x12, 0x34, 0x56, 0x78])).uuidString == "12345678")
        let uuid = UUID(uuidString: Self.custom)
        #expect(uuid.map { CBUUID(nsuuid: $0).uuidString } == Self.custom)
        #expect(CBUUID(data: CBUUID(string: Self.custom).data).uuidString == Self.custom)
        // A slice does not start at index 0.
        #expect(CBUUID(data: Data([1, 2, 0x18, 0x0D])[2...]).uuidString == "180D")
        #expect(CBUUID(data: (Data([9]) + CBUUID(string: Self.custom).data)[1...]).uuidString == Self.custom)
    }

    #if compiler(>=6.2)  // exit tests
    @Test("UU-2 MIS-12 text that is not a UUID stops the process")
    func invalidText() async {
        await #expect(processExitsWith: .failure) { _ = CBUUID(string: "180") }
        await #expect(processExitsWith: .failure) { _ = CBUUID(string: "180G") }
        await #expect(processExitsWith: .failure) { _ = CBUUID(string: "0x180") }
        await #expect(processExitsWith: .failure) { _ = CBUUID(string: "0x") }
        await #expect(processExitsWith: .failure) { _ = CBUUID(string: "0000180D00001000800000805F9B34FB") }
    }

    @Test("UU-2 MIS-12 data that is not 2, 4 or 16 bytes long stops the process")
    func invalidData() async {
        await #expect(processExitsWith: .failure) { _ = CBUUID(data: Data([1, 2, 3])) }
    }
    #endif

    @Test("UU-3 a CBUUID keeps the form of its creation")
    func keepsItsForm() {
        #expect(CBUUID(string: "180D").data.count == 2)
        #expect(CBUUID(string: "180D").uuidString == "180D")
        #expect(CBUUID(string: "0000180D").uuidString == "0000180D")
        #expect(CBUUID(string: Self.long).data.count == 16)
        #expect(CBUUID(string: Self.long).uuidString == Self.long)
    }

    @Test("UU-4 uuidString is in upper case")
    func upperCase() {
        #expect(CBUUID(string: "feaa").uuidString == "FEAA")
        #expect(CBUUID(string: Self.custom.lowercased()).uuidString == Self.custom)
    }

    @Test("UU-5 O-48 equality and hash of UUIDs ignore their length")
    func equality() {
        let forms = [CBUUID(string: "180D"), CBUUID(string: "0000180d"), CBUUID(string: Self.long)]
        #expect(Set(forms).count == 1)
        for form in forms {
            #expect(form == forms[0])
            #expect(form.hash == forms[0].hash)
            #expect(form.isEqual(forms[0]))
            #expect(forms.contains(form))
            #expect([forms[0]: 1][form] == 1)
        }
    }

    @Test("UU-5 a UUID on another base is a different UUID")
    func otherBase() {
        #expect(CBUUID(string: "00006783-0000-0000-8000-00805F9B34FB") != CBUUID(string: "6783"))
        #expect(CBUUID(string: "180D") != CBUUID(string: "180F"))
        #expect(!CBUUID(string: "180D").isEqual("180D"))
        #expect(!CBUUID(string: "180D").isEqual(nil))
    }

    @Test("UU-6 UU-7 O-48 a UUID from BlueZ has its shortest form")
    func fromBlueZ() {
        #expect(CBUUID(bluez: "0000180d-0000-1000-8000-00805f9b34fb")?.uuidString == "180D")
        #expect(CBUUID(bluez: "1234180d-0000-1000-8000-00805f9b34fb")?.uuidString == "1234180D")
        #expect(CBUUID(bluez: Self.custom.lowercased())?.uuidString == Self.custom)
        #expect(CBUUID(bluez: "0000180d-0000-1000-8000-00805f9b34fb") == CBUUID(string: "180D"))
        "0000180d-0000-1000-8000-00805f9b34fb".withCString { #expect(CBUUID(bluez: $0)?.uuidString == "180D") }
    }

    @Test(
        "UU-7 invalid UUID text from BlueZ gives nil, never a trap",
        arguments: [
            "", "18", "180G", "0000180d_0000-1000-8000-00805f9b34fb", "0000180d-0000-1000-8000-00805f9b34f",
            "0000180d-0000-1000-8000-00805f9b34fbb", "0000180d-0000-1000-8000-00805f9b34f-", "ä80d",
            "------------------------------------", "+80D", " 80D",
        ])
    func invalidFromBlueZ(text: String) {
        #expect(CBUUID(bluez: text) == nil)
    }

    @Test("UU-7 the text for BlueZ is the long form in lower case")
    func toBlueZ() {
        #expect(CBUUID(string: "180D").bluezString == "0000180d-0000-1000-8000-00805f9b34fb")
        #expect(CBUUID(string: "1234180D").bluezString == "1234180d-0000-1000-8000-00805f9b34fb")
        #expect(CBUUID(string: Self.custom).bluezString == Self.custom.lowercased())
    }

    @Test("UU-9 the description of a short UUID is its name, of any other its text")
    func descriptions() {
        #expect(CBUUID(string: "180F").description == "Battery")
        #expect("\(CBUUID(string: "180D"))" == "Heart Rate")
        #expect(CBUUID(string: "180A").description == "Device Information")
        #expect(CBUUID(string: "2A29").description == "Manufacturer Name String")
        #expect(CBUUID(string: "2902").description == "Client Characteristic Configuration")
        #expect(CBUUID(string: "FFF0").description == "FFF0")
        #expect(CBUUID(string: Self.long).description == Self.long)
        #expect(CBUUID(string: Self.long).assignedName == "Heart Rate")
        #expect(CBUUID(string: Self.custom).assignedName == nil)
        #expect(CBUUID(string: "1234180D").assignedName == nil)
    }

    @Test("UU-10 MOD-11 a UUID may be shared between threads, and its copy is itself")
    func sharing() async {
        let uuid = CBUUID(string: "180D")
        #expect(uuid.copy() as? CBUUID === uuid)
        let texts = await withTaskGroup(of: String.self) { group in
            for _ in 0..<8 { group.addTask { uuid.uuidString } }
            return await group.reduce(into: Set()) { $0.insert($1) }
        }
        #expect(texts == ["180D"])
    }

    @Test("MOD-12 subclasses inherit the initialisers, and a bare one is legal")
    func subclassing() {
        final class Own: CBUUID, @unchecked Sendable {
            override init() { super.init() }
        }
        #expect(Own(string: "180D") == CBUUID(string: "180D"))
        #expect(Own.made().uuidString == "2A37")
        #expect(CBUUID().uuidString == "00000000-0000-0000-0000-000000000000")
    }
}

extension CBUUID {
    fileprivate class func made() -> Self { Self(string: "2A37") }
}
