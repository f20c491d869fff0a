import BluezKitRestore
import Foundation
import Testing

@testable import BluezKit

@Suite struct AdvertisementTests {
    private let short = CBUUID(string: "180D"), long = sinkUUID(1), other = sinkUUID(2)

    private func reason(_ dictionary: [String: Any]) -> String? {
        do throws(CBError) {
            _ = try Advertisement(dictionary)
            return nil
        } catch {
            #expect(error.code == .invalidParameters)
            return error.localizedDescription
        }
    }

    @Test("AD-1 of Apple's keys only name and services have an effect; an empty dictionary is valid")
    func plain() throws {
        let empty = try Advertisement(nil)
        #expect(try Advertisement([:]) == empty)
        #expect(empty.size == 3)
        let ignored: [String: Any] = [
            CBAdvertisementDataManufacturerDataKey: Data(count: 100), CBAdvertisementDataTxPowerLevelKey: 4,
            CBAdvertisementDataServiceDataKey: [short: Data([1])], CBAdvertisementDataIsConnectable: false,
            CBAdvertisementDataSolicitedServiceUUIDsKey: [short], "other": 1,
        ]
        #expect(try Advertisement(ignored) == empty)
        #expect(
            try Advertisement([CBAdvertisementDataLocalNameKey: 5, CBAdvertisementDataServiceUUIDsKey: "180D"]) == empty
        )
    }

    @Test("AD-2 UU-8 services that do not fit are left out, a name that does not fit is cut between characters")
    func fitting() throws {
        let advertisement = try Advertisement([
            CBAdvertisementDataLocalNameKey: String(repeating: "ä", count: 20),
            CBAdvertisementDataServiceUUIDsKey: [long, other, short],
        ])
        #expect(advertisement.services == [long, short])
        #expect(advertisement.omittedServices == [other])
        #expect(advertisement.size == 3 + 18 + 4)
        #expect(advertisement.nameOnAir == String(repeating: "ä", count: 14))
        let many = try Advertisement([
            CBAdvertisementDataServiceUUIDsKey: (0..<20).map { CBUUID(string: String(0x1900 + $0, radix: 16)) }
        ])
        #expect(many.services.count == 13)
        #expect(many.size == 31)
        // However the app has written it, it is short on air.
        let expanded = CBUUID(string: "0000180D-0000-1000-8000-00805F9B34FB")
        #expect(try Advertisement([CBAdvertisementDataServiceUUIDsKey: [expanded]]).size == 7)
    }

    @Test("solicited services are counted, and take part in what is advertised only with BluezKit's own key")
    func soliciting() throws {
        let phone = CBUUID(string: "7905F431-B5CE-4E99-A40F-4B1E122D00D0")
        let advertisement = try Advertisement([BluezAdvertisementSolicitedServiceUUIDsKey: [phone]])
        #expect(advertisement.solicitedServices == [phone] && advertisement.size == 3 + 18)
        let tooMuch = reason([
            BluezAdvertisementSolicitedServiceUUIDsKey: [phone], CBAdvertisementDataServiceUUIDsKey: [long],
        ])
        #expect(tooMuch?.contains("128-bit solicited service UUIDs 18") == true)
        let wrong = reason([BluezAdvertisementSolicitedServiceUUIDsKey: "180D"])
        #expect(wrong?.contains("solicited services must be a [CBUUID]") == true)
    }

    @Test("additional keys are counted by field, and too much data is an error")
    func counting() throws {
        let full: [String: Any] = [
            BluezAdvertisementManufacturerDataKey: Data([0xFF, 0xFF] + [UInt8](repeating: 1, count: 9)),
            BluezAdvertisementServiceDataKey: [short: Data([1, 2])], BluezAdvertisementTxPowerKey: 4,
            CBAdvertisementDataServiceUUIDsKey: [short], CBAdvertisementDataLocalNameKey: "name",
        ]
        let advertisement = try Advertisement(full)
        #expect(advertisement.size == 3 + 4 + 13 + 6 + 3)
        #expect(advertisement.company == 0xFFFF)
        #expect(advertisement.txPowerDBm == 4)
        let text = try #require(reason(full.merging([CBAdvertisementDataServiceUUIDsKey: [short, long]]) { $1 }))
        for part in [
            "47 bytes", "31 are possible", "flags 3", "16-bit service UUIDs 4", "128-bit service UUIDs 18",
            "manufacturer data 13", "service data of 180D 6", "transmission power 3",
        ] { #expect(text.contains(part), "\(part)") }
    }

    @Test("additions of wrong types or out of range are errors")
    func wrongAdditions() {
        #expect(reason([BluezAdvertisementManufacturerDataKey: Data([1])])?.contains("company") == true)
        #expect(reason([BluezAdvertisementManufacturerDataKey: "x"]) != nil)
        #expect(reason([BluezAdvertisementServiceDataKey: [1: 2]]) != nil)
        #expect(reason([BluezAdvertisementTxPowerKey: 21]) != nil)
        #expect(reason([BluezAdvertisementTxPowerKey: "x"]) != nil)
        for (low, high) in [(19.0, 100.0), (100, 20), (20, 10_486), (.nan, .nan), (-.infinity, .infinity)] {
            #expect(
                reason([
                    BluezAdvertisementMinimumIntervalKey: low, BluezAdvertisementMaximumIntervalKey: high,
                ]) != nil, "\(low) \(high)")
        }
    }

    @Test("a single advertising interval is used as minimum and maximum")
    func intervals() throws {
        #expect(try Advertisement([BluezAdvertisementMinimumIntervalKey: 100]).intervalMilliseconds == 100...100)
        #expect(
            try Advertisement([
                BluezAdvertisementMinimumIntervalKey: NSNumber(value: 20), BluezAdvertisementMaximumIntervalKey: 30.5,
            ]).intervalMilliseconds == 20...30)
    }
}

extension Advertisement {
    /// As an app starts it.
    fileprivate init(_ dictionary: [String: Any]?) throws(CBError) { try self.init(AdvertisementRequest(dictionary)) }
}
