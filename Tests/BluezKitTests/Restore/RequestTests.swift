import BluezDBus
import BluezKitRestore
import Foundation
import Testing

@testable import BluezKit

/// What an app asks for, as it is on disk: files of earlier versions must stay readable.
@Suite struct RequestTests {
    private func json(_ value: some Encodable) throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        return String(decoding: try encoder.encode(value), as: UTF8.self)
    }

    private func read<Value: Decodable>(_ text: String) throws -> Value {
        try JSONDecoder().decode(Value.self, from: Data(text.utf8))
    }

    @Test("a connect request is its options, and only Apple's numbers are among them")
    func connect() throws {
        let request = ConnectRequest([
            CBConnectPeripheralOptionEnableAutoReconnect: true, CBConnectPeripheralOptionStartDelayKey: 2,
            CBConnectPeripheralOptionNotifyOnConnectionKey: Double.nan, "mine": 1,
        ])
        let text = #"{"kCBConnectOptionEnableAutoReconnect":1,"kCBConnectOptionStartDelay":2}"#
        #expect(try json(request) == text)
        #expect(try read(text) == request)
        #expect(request.reconnects && request.startDelay == .seconds(2))
        #expect(try json(ConnectRequest(nil)) == "{}")
        #expect(!ConnectRequest(nil).reconnects && ConnectRequest(nil).startDelay == .zero)
    }

    @Test(
        "CN-1 any start delay is limited to one that a clock can represent",
        arguments: [
            (-1, 0), (-.infinity, 0), (.nan, 0), (.infinity, 1e6), (1e300, 1e6), (0.5, 0.5),
        ] as [(Double, Double)])
    func startDelay(_ given: Double, _ seconds: Double) {
        let request = ConnectRequest([CBConnectPeripheralOptionStartDelayKey: given])
        #expect(request.startDelay == .seconds(seconds))
    }

    @Test("a preserved peripheral has its request under `options`")
    func peripheral() throws {
        let text = #"""
            {"identifier":"426C7A4B-0100-8000-8000-F00000000001","isBonded":false,\#
            "options":{"kCBConnectOptionEnableAutoReconnect":1},"state":"connecting"}
            """#
        let record: Snapshot.Peripheral = try read(text)
        #expect(record.options.reconnects)
        #expect(try json(record) == text)
    }

    @Test("an advertisement request has the app's values, and gives them back")
    func advertisement() throws {
        let dictionary: [String: Any] = [
            CBAdvertisementDataLocalNameKey: "Kit", CBAdvertisementDataServiceUUIDsKey: [CBUUID(string: "180D")],
            BluezAdvertisementManufacturerDataKey: Data([0xFF, 0xFF, 1]),
            BluezAdvertisementSolicitedServiceUUIDsKey: [CBUUID(string: "1805")],
            BluezAdvertisementServiceDataKey: [CBUUID(string: "180F"): Data([100])],
            BluezAdvertisementMinimumIntervalKey: 100, BluezAdvertisementTxPowerKey: -7,
        ]
        let request = try AdvertisementRequest(dictionary)
        let text = #"""
            {"localName":"Kit","manufacturerData":"\/\/8B","minimumIntervalMilliseconds":100,\#
            "serviceData":[{"data":"ZA==","uuid":"180F"}],"services":["180D"],\#
            "solicitedServices":["1805"],"txPowerDBm":-7}
            """#
        #expect(try json(request) == text)
        #expect(try read(text) == request)
        let restored = try AdvertisementRequest(request.dictionary)
        #expect(restored == request)
        #expect(Set(request.dictionary.keys) == Set(dictionary.keys))
        #expect(try json(AdvertisementRequest(nil)) == "{}")
    }

    // Advertising with Apple's key for manufacturer data, or with UUIDs as strings, was confirmed, without a word that
    // it was not on the air.
    @Test("LX-6 advertisement data that startAdvertising ignores is logged, with the key that has an effect")
    func ignoredKeys() async throws {
        let log = LogCapture.shared
        let before = log.count("BluezAdvertisementTxPower")
        let request = try AdvertisementRequest([
            CBAdvertisementDataLocalNameKey: 7, CBAdvertisementDataServiceUUIDsKey: ["180D"],
            CBAdvertisementDataManufacturerDataKey: Data([1, 2, 3]), "unknown key": 1,
            BluezAdvertisementTxPowerKey: 4,
        ])
        #expect(request.localName == nil && request.services == nil && request.txPowerDBm == 4)
        try await log.expect("misuse", "CBAdvertisementDataLocalNameKey needs a String")
        try await log.expect("misuse", "CBAdvertisementDataServiceUUIDsKey needs an array of CBUUID")
        try await log.expect(
            "misuse", "'kCBAdvDataManufacturerData' is not allowed", "BluezAdvertisementManufacturerDataKey")
        try await log.expect("misuse", "'unknown key' is not allowed")
        #expect(log.count("BluezAdvertisementTxPower") == before)
    }

    @Test("an advertisement request in a file that BlueZ could not carry out is an error, and does not trap")
    func wrongFile() throws {
        for text in [
            #"{"manufacturerData":"/w=="}"#, #"{"txPowerDBm":1000000}"#, #"{"minimumIntervalMilliseconds":1e300}"#,
            #"{"minimumIntervalMilliseconds":100,"maximumIntervalMilliseconds":20}"#,
        ] {
            let request: AdvertisementRequest = try read(text)
            #expect(throws: CBError.self) { try Advertisement(request) }
        }
        let twice: AdvertisementRequest = try read(
            #"{"serviceData":[{"data":"ZA==","uuid":"180F"},{"data":"ZQ==","uuid":"180F"}]}"#)
        #expect(try Advertisement(twice).serviceDataValue?.dictionaryValue?.count == 1)
    }
}
