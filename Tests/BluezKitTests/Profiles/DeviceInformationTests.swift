import BluezKitProfiles
import CoreBluetooth
import Foundation
import Testing

@Suite struct DeviceInformationTests {
    private func characteristic(_ uuid: CBUUID, _ value: Data?) -> CBCharacteristic {
        CBMutableCharacteristic(type: uuid, properties: .read, value: value, permissions: .readable)
    }

    @Test("each characteristic has the number that the Bluetooth SIG assigned it")
    func numbers() {
        #expect(
            DeviceInformation.characteristics.map(\.uuidString)
                == ["2A29", "2A24", "2A25", "2A27", "2A26", "2A28", "2A23", "2A50"])
        for text in DeviceInformationText.allCases { #expect(DeviceInformationText(text.uuid) == text) }
        #expect(DeviceInformationText(CBUUID(string: "2A19")) == nil)
    }

    @Test("a client collects what a server publishes")
    func roundTrip() throws {
        let information = DeviceInformation(
            [.manufacturerName: "Zoë GmbH", .serialNumber: "", .softwareRevision: "心拍 👍"],
            systemID: SystemID(organization: 0x00_1B_DC, device: 0x12_34_56_78_9A),
            pnpID: PnPID(source: .usb, vendor: 0x1D6B, product: 0x0246, version: 0x0542))
        let service = DeviceInformationService(information).service
        #expect(service.uuid == DeviceInformationService.uuid && service.isPrimary)
        var collected = DeviceInformation()
        for characteristic in try #require(service.characteristics) {
            #expect(characteristic.properties == .read)
            #expect(try collected.take(characteristic))
        }
        #expect(collected == information)
        #expect(try collected.take(characteristic(CBUUID(string: "2A19"), Data([1]))) == false)
    }

    @Test("identifiers have the Bluetooth SIG's layout")
    func layout() throws {
        // The example of the specification: company 123456, the rest FEDCBA9876 of an EUI-64.
        let id = try #require(SystemID(organization: 0x123456, device: 0x9A_BCDE_F012))
        #expect(id.data == Data([0x12, 0xF0, 0xDE, 0xBC, 0x9A, 0x56, 0x34, 0x12]))
        #expect(
            PnPID(source: .bluetoothSIG, vendor: 0x0059, product: 0x1234, version: 0x0213).data
                == Data([1, 0x59, 0, 0x34, 0x12, 0x13, 0x02]))
        let reserved = try PnPID(Data([3, 0x59, 0, 0x34, 0x12, 0x13, 0x02]))
        #expect(
            reserved.source == nil && reserved.$source == 3 && reserved.vendor == 0x59 && reserved.version == 0x0213)
        #expect(reserved.data[0] == 3)
    }

    @Test("a text that is truncated, ends with zeros or is not UTF-8 is read as far as possible")
    func texts() throws {
        #expect(throws: CharacteristicValueError.missing) { try DeviceInformationText.text(of: nil) }
        #expect(try DeviceInformationText.text(of: Data()) == "")
        #expect(try DeviceInformationText.text(of: Data("AB".utf8) + Data([0, 0, 65])) == "AB")
        #expect(try DeviceInformationText.text(of: Data([0x41, 0xAE, 0x42])) == "A\u{FFFD}B")
        #expect(try DeviceInformationText.text(of: Data([0x41, 0xC3])) == "A")
        for _ in 0..<2_000 {
            let noise = Data((0..<Int.random(in: 0...40)).map { _ in UInt8.random(in: 0 ... .max) })
            let text = try DeviceInformationText.text(of: noise)
            #expect(try DeviceInformationText.text(of: DeviceInformationText.data(text)) == text)
        }
    }

    @Test("a text that another device has cut ends with its last whole character", arguments: ["é", "心", "👍", "aé心👍"])
    func cutTexts(_ text: String) throws {
        let bytes = Data(text.utf8)
        for length in 0...bytes.count {
            let read = try DeviceInformationText.text(of: Data("x".utf8) + bytes.prefix(length))
            #expect(("x" + text).hasPrefix(read) && !read.contains("\u{FFFD}"), "\(length): \(read)")
            if length == bytes.count { #expect(read == "x" + text) }
        }
    }

    @Test("a text is not longer than an attribute, and is cut between characters")
    func longTexts() {
        #expect(DeviceInformationText.data(String(repeating: "x", count: 600)).count == 512)
        #expect(DeviceInformationText.data("x" + String(repeating: "é", count: 300)).count == 511)
        #expect(DeviceInformationText.data("ab\0cd") == Data("ab".utf8))
    }
}
