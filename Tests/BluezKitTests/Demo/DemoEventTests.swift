import BluezKit
import BluezKitProfiles
import Foundation
import Testing

@testable import bluez_demo

@Suite struct DemoEventTests {
    private static let identifier = UUID(uuid: (0x42, 0, 0, 0, 0, 0, 0x80, 0, 0x80, 0, 0, 0, 0, 0, 0, 1))
    private static let text = "42000000-0000-8000-8000-000000000001"

    @Test("a measurement has all its keys, with null for what the sensor did not send")
    func writesMeasurements() throws {
        let bare = DemoEvent.measurement(try HeartRateMeasurement(Data([0x00, 60])))
        #expect(
            bare.json.description
                == #"{"event":"measurement","heartRate":60,"rrIntervals":[],"energyExpended":null,"contact":null}"#)
        let full = DemoEvent.measurement(
            try HeartRateMeasurement(Data([0x1F, 0x2C, 0x01, 0x05, 0x00, 0x00, 0x04, 0x39, 0x03])))
        #expect(
            full.json.description
                == #"{"event":"measurement","heartRate":300,"rrIntervals":[1000,805.7],"energyExpended":5,"contact":true}"#
        )
        let noContact = DemoEvent.measurement(try HeartRateMeasurement(Data([0x04, 60])))
        #expect(noContact.json.description.hasSuffix(#""contact":false}"#))
    }

    @Test("the restored event names the scan and the peripherals")
    func writesRestoration() {
        func json(_ dictionary: [String: Any]) -> String {
            DemoEvent.restored(RestoredState(dictionary)).json.description
        }
        #expect(json([:]) == #"{"event":"restored","scan":null,"peripherals":[]}"#)
        var dictionary: [String: Any] = [CBCentralManagerRestoredStateScanOptionsKey: [String: Any]()]
        #expect(json(dictionary) == #"{"event":"restored","scan":{"services":[]},"peripherals":[]}"#)
        dictionary[CBCentralManagerRestoredStateScanServicesKey] = [CBUUID(string: "180D")]
        #expect(json(dictionary) == #"{"event":"restored","scan":{"services":["180D"]},"peripherals":[]}"#)
    }

    @Test("preserved state is listed, and a damaged file has no identifier")
    func writesPreservedState() throws {
        let directory = try TemporaryDirectory()
        try Data("{".utf8).write(to: URL(fileURLWithPath: directory.file("mine")))
        let states = BluezPreservedState.all(options: [BluezManagerOptionStateDirectoryKey: directory.path])
        let event = DemoEvent.preserved(PreservedReport(try #require(states.first))).json.description
        #expect(
            event.hasPrefix(
                #"{"event":"preserved","role":"central","identifier":null,"path":"\#(directory.file("mine"))","#
                    + #""app":null,"saved":null,"lines":["cannot be used: "#))
        #expect(DemoEvent.discarded("mine").json.description == #"{"event":"discarded","identifier":"mine"}"#)
    }

    @Test("the path of preserved state is harmless on a terminal")
    func writesHarmlessPath() throws {
        let directory = try TemporaryDirectory()
        let (folder, file) = (directory.path + "/\u{1B}[2J", URL(fileURLWithPath: directory.file("mine")))
        try FileManager.default.createDirectory(
            atPath: folder, withIntermediateDirectories: false, attributes: [.posixPermissions: 0o700])
        try Data("{".utf8).write(to: URL(fileURLWithPath: folder + "/" + file.lastPathComponent))
        let states = BluezPreservedState.all(options: [BluezManagerOptionStateDirectoryKey: folder])
        let lines = PreservedReport(try #require(states.first)).text.map(\.text)
        #expect(lines.last?.contains("/\u{FFFD}[2J/") == true, "\(lines)")
    }

    @Test("a program says which process it is, and what a keeper has handed over to it")
    func writesHandOver() {
        #expect(DemoEvent.started(process: 7).json.description == #"{"event":"started","process":7}"#)
        #expect(
            DemoEvent.handedOver(missed: 5, dropped: 3, repeatsFirst: true).json.description
                == #"{"event":"handedOver","missed":5,"dropped":3,"repeatsFirst":true}"#)
    }

    @Test("events are appended to a file, whatever else the output is")
    func appends() throws {
        let directory = try TemporaryDirectory()
        let path = directory.path + "/log"
        for process: Int32 in [1, 2] {
            let output = Output(mode: .plain, colour: false)
            #expect(output.append(to: path) == nil)
            output.report(.started(process: process))
        }
        #expect(
            try String(contentsOfFile: path, encoding: .utf8)
                == "{\"event\":\"started\",\"process\":1}\n{\"event\":\"started\",\"process\":2}\n")
        #expect(Output(mode: .plain, colour: false).append(to: directory.path) == EISDIR)
    }

    @Test("a received card is included in hexadecimal, unless it was written to a file")
    func writesCards() {
        let card = Data([0x41, 0xFF])
        #expect(
            DemoEvent.received(Self.identifier, card, path: nil, seconds: 0.12345).json.description
                == #"{"event":"received","identifier":"\#(Self.text)","size":2,"seconds":0.123,"path":null,"data":"41ff"}"#
        )
        #expect(
            DemoEvent.received(Self.identifier, card, path: "a.vcf", seconds: 2).json.description
                == #"{"event":"received","identifier":"\#(Self.text)","size":2,"seconds":2,"path":"a.vcf","data":null}"#
        )
        #expect(
            DemoEvent.progress(Self.identifier, bytes: 5, size: 10).json.description
                == #"{"event":"progress","identifier":"\#(Self.text)","bytes":5,"size":10}"#)
        #expect(
            DemoEvent.advertising(name: nil, services: ["180D"]).json.description
                == #"{"event":"advertising","name":null,"services":["180D"]}"#)
        #expect(
            DemoEvent.subscribed(Self.identifier, "2A37").json.description
                == #"{"event":"subscribed","identifier":"\#(Self.text)","characteristic":"2A37"}"#)
    }

    @Test("links name the device")
    func writesLinks() {
        #expect(
            DemoEvent.connected(Self.identifier, name: "A \"B\"").json.description
                == #"{"event":"connected","identifier":"\#(Self.text)","name":"A \"B\""}"#)
        #expect(
            DemoEvent.refused(Self.identifier, reason: "too large").json.description
                == #"{"event":"refused","identifier":"\#(Self.text)","reason":"too large"}"#)
        #expect(
            DemoEvent.disconnected(Self.identifier, reason: nil).json.description
                == #"{"event":"disconnected","identifier":"\#(Self.text)","reason":null}"#)
    }

    @Test("an advertisement omits missing values, except name and RSSI")
    func writesAdvertisements() {
        var advertisement = Advertisement(identifier: Self.identifier)
        #expect(
            DemoEvent.discovered(advertisement).json.description
                == #"{"event":"discovered","identifier":"\#(Self.text)","name":null,"rssi":null,"services":[]}"#)
        (advertisement.name, advertisement.rssiDBm, advertisement.isConnectable) = ("Lamp", -50, true)
        advertisement.services = [.init(uuid: "180F", name: "Battery")]
        advertisement.manufacturerData = [0xFF, 0x0F]
        advertisement.serviceData = ["FE00": [1], "180F": [0x64]]
        #expect(
            DemoEvent.discovered(advertisement).json.description
                == #"{"event":"discovered","identifier":"\#(Self.text)","name":"Lamp","rssi":-50,"services":["180F"],"#
                + #""connectable":true,"manufacturerData":"ff0f","serviceData":{"180F":"64","FE00":"01"}}"#)
    }

    @Test("attributes show values in hexadecimal, and why one is missing")
    func writesAttributes() {
        let value = AttributeReport(
            kind: .characteristic, uuid: "2A19", name: "Battery Level", depth: 1, properties: ["read"],
            value: .bytes([0x64]))
        #expect(
            value.json.description
                == #"{"event":"characteristic","uuid":"2A19","name":"Battery Level","depth":1,"properties":["read"],"#
                + #""value":"64"}"#)
        #expect(value.line.text == "  Battery Level 2A19 [read] = 100 0x64")
        let failed = AttributeReport(
            kind: .descriptor, uuid: "2901", name: nil, depth: 2, value: .failed("no answer"))
        #expect(
            failed.json.description
                == #"{"event":"descriptor","uuid":"2901","name":null,"depth":2,"error":"no answer"}"#)
    }

    @Test(
        "with any text, the output is one line of JSON",
        arguments: ["\n\r\t\u{0}\u{1F}\u{7F}\u{85}\u{2028}", "\\\"", "心拍 👍"])
    func staysOnOneLine(_ text: String) throws {
        let line = DemoEvent.error(text).json.description
        #expect(line.unicodeScalars.allSatisfy { $0.value >= 0x20 && $0.value != 0x7F && $0.value != 0x2028 })
        let object = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: String]
        #expect(object == ["event": "error", "message": text])
    }

    @Test("numbers are JSON numbers")
    func writesNumbers() {
        #expect(JSONValue.double(1000).description == "1000")
        #expect(JSONValue.double(922.9).description == "922.9")
        #expect(JSONValue.double(.nan).description == "null" && JSONValue.double(.infinity).description == "null")
        #expect(JSONValue.int(.min).description == "-9223372036854775808")
    }
}
