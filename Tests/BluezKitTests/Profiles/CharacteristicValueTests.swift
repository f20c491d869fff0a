import BluezKitProfiles
import Foundation
import Testing

/// What must hold for the values of every standard characteristic, with random values and random bytes.
@Suite struct CharacteristicValueTests {
    private static let rounds = 1_000

    /// Reads what was produced; and shows that no byte of it can be missing, and that more may follow.
    private func check<Value: CharacteristicValue>(
        _ value: Value, canEndWithin: Bool = false, isRequest: Bool = false,
        _ location: SourceLocation = #_sourceLocation
    ) {
        let data = value.data
        #expect((try? Value(data)) == value, "\(Array(data))", sourceLocation: location)
        // A slice begins anywhere.
        #expect((try? Value((Data([9, 9, 9]) + data).dropFirst(3))) == value, sourceLocation: location)
        guard !canEndWithin else { return }
        #expect((try? Value(data + Data([0xAB]))) == (isRequest ? nil : value), sourceLocation: location)
        for length in 0..<data.count {
            #expect(throws: CharacteristicValueError.self, sourceLocation: location) {
                try Value(data.prefix(length))
            }
        }
    }

    /// Random bytes are refused, or they are a value that is produced and read again without a change.
    private func survivesNoise<Value: CharacteristicValue>(
        _ type: Value.Type, plausible: Int, _ location: SourceLocation = #_sourceLocation
    ) {
        #expect(throws: CharacteristicValueError.missing, sourceLocation: location) { try Value(nil) }
        var taken = 0
        for _ in 0..<Self.rounds {
            let length = Bool.random() ? plausible : .random(in: 0...24)
            // Small numbers as well, since most fields take only those.
            let highest: UInt8 = Bool.random() ? .max : 12
            let noise = Data((0..<length).map { _ in UInt8.random(in: 0...highest) })
            guard let value = try? Value(noise) else { continue }
            taken += 1
            check(value, canEndWithin: true, location)
        }
        #expect(taken > 0, sourceLocation: location)
        for first in UInt8.min...UInt8.max {
            for second in UInt8.min...UInt8.max { _ = try? Value(Data([first, second])) }
        }
    }

    @Test("a heart-rate measurement is read as it was produced")
    func measurements() {
        for _ in 0..<Self.rounds {
            check(
                HeartRateMeasurement(
                    beatsPerMinute: .random(in: 0...(Bool.random() ? 300 : .max)),
                    contact: [.notSupported, .notDetected, .detected].randomElement() ?? .detected,
                    energyExpended: Bool.random() ? .random(in: 0 ... .max) : nil,
                    rrIntervals: (0..<Int.random(in: 0...9)).map { _ in .random(in: 0 ... .max) }),
                canEndWithin: true)  // between two intervals
        }
        survivesNoise(HeartRateMeasurement.self, plausible: 8)
    }

    @Test("locations and commands of a heart-rate sensor are read as they were produced")
    func locations() {
        for location in BodySensorLocation.allCases { check(location) }
        survivesNoise(BodySensorLocation.self, plausible: 1)
        for command in HeartRateControlPoint.allCases { check(command, isRequest: true) }
        survivesNoise(HeartRateControlPoint.self, plausible: 1)
        #expect(throws: CharacteristicValueError.reserved(field: "body sensor location", value: 7)) {
            try BodySensorLocation(Data([7]))
        }
    }

    @Test("battery levels are read as they were produced; more than 100 % is an error")
    func levels() {
        for percent in 0...100 { check(BatteryLevel(percent: percent)) }
        survivesNoise(BatteryLevel.self, plausible: 1)
        #expect(BatteryLevel(percent: 101).percent == 100 && BatteryLevel(percent: .min).percent == 0)
        for percent in 101...255 {
            #expect(throws: CharacteristicValueError.reserved(field: "battery level", value: percent)) {
                try BatteryLevel(Data([UInt8(percent)]))
            }
        }
    }

    @Test("identifications are read as they were produced")
    func identifications() throws {
        for _ in 0..<Self.rounds {
            check(
                PnPID(
                    source: Bool.random() ? .usb : .bluetoothSIG, vendor: .random(in: 0 ... .max),
                    product: .random(in: 0 ... .max), version: .random(in: 0 ... .max)))
            check(
                try #require(
                    SystemID(
                        organization: .random(in: 0...0xFF_FFFF), device: .random(in: 0...0xFF_FFFF_FFFF))))
        }
        survivesNoise(PnPID.self, plausible: 7)
        survivesNoise(SystemID.self, plausible: 8)
        #expect(SystemID(organization: 1 << 24, device: 0) == nil && SystemID(organization: 0, device: 1 << 40) == nil)
    }

    @Test("times are read as they were produced")
    func times() throws {
        func maybe(_ range: ClosedRange<Int>) -> Int? { Int.random(in: 0...9) == 0 ? nil : .random(in: range) }
        for _ in 0..<Self.rounds {
            let time = try #require(
                ExactTime256(
                    year: maybe(1582...9999), month: maybe(1...12), day: maybe(1...31), hours: .random(in: 0...23),
                    minutes: .random(in: 0...59), seconds: .random(in: 0...59), dayOfWeek: maybe(1...7),
                    fractions256: .random(in: 0...255)))
            check(CurrentTime(time, adjustReason: .init(rawValue: .random(in: 0 ... .max))))
            check(
                ReferenceTimeInformation(
                    source: .init(rawValue: .random(in: 0...7)) ?? .unknown,
                    accuracy: .init(rawValue: .random(in: 0 ... .max)), hoursSinceUpdate: maybe(-5...7000)))
        }
        survivesNoise(CurrentTime.self, plausible: 10)
        survivesNoise(ReferenceTimeInformation.self, plausible: 4)
        for offset in -48...56 {
            for saving: LocalTimeInformation.DaylightSaving in [.standardTime, .halfAnHour, .daylightTime, .unknown] {
                check(try #require(LocalTimeInformation(standardOffset: offset, daylightSaving: saving)))
            }
        }
        check(try #require(LocalTimeInformation(standardOffset: nil, daylightSaving: .doubleDaylightTime)))
        survivesNoise(LocalTimeInformation.self, plausible: 2)
    }

    @Test("an error is one sentence that names the field")
    func errors() {
        #expect(CharacteristicValueError.missing.localizedDescription == "there is no value yet")
        #expect(
            CharacteristicValueError.truncated(field: "year").localizedDescription
                == "the value ends within its year")
        #expect(CharacteristicValueError.trailing(bytes: 2).localizedDescription == "the value is 2 bytes too long")
        #expect(CharacteristicValueError.checksum.localizedDescription == "the checksum of the value is wrong")
        #expect(
            CharacteristicValueError.reserved(field: "month", value: 13).localizedDescription
                == "the month has the reserved value 13")
    }
}
