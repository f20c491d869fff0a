import BluezKitProfiles
import Foundation
import Testing

@Suite struct HeartRateMeasurementTests {
    /// What a correct reader makes of flags and of a body that has every field they announce.
    private func wellFormed(_ flags: UInt8, rrCount: Int) -> (bytes: Data, expected: HeartRateMeasurement?) {
        var bytes = Data([flags, 0x48])
        if flags & 0x01 != 0 { bytes.append(0x01) }
        if flags & 0x08 != 0 { bytes += [0x34, 0x12] }
        if flags & 0x10 != 0 { for i in 0..<rrCount { bytes += [UInt8(i), 0x04] } }
        return (bytes, try? HeartRateMeasurement(bytes))
    }

    @Test("every combination of flags is read correctly")
    func readsEveryCombinationOfFlags() throws {
        for flags in UInt8.min...UInt8.max {
            for rrCount in 1...9 {
                let (bytes, measurement) = wellFormed(flags, rrCount: rrCount)
                let read = try #require(measurement, "\(bytes)")
                #expect(read.beatsPerMinute == (flags & 0x01 == 0 ? 0x48 : 0x148))
                #expect(read.energyExpended == (flags & 0x08 == 0 ? nil : 0x1234))
                #expect(read.rrIntervals == (flags & 0x10 == 0 ? [] : (0..<rrCount).map { 0x400 + UInt16($0) }))
                let contact: HeartRateMeasurement.Contact =
                    flags & 0x04 == 0 ? .notSupported : flags & 0x02 == 0 ? .notDetected : .detected
                #expect(read.contact == contact)
            }
        }
    }

    // Sensors set flags without the fields, or send an odd byte: the rate was lost with it.
    @Test("a value that ends anywhere after the rate has the rate, and the fields before the end")
    func readsWhatIsThere() throws {
        for flags in UInt8.min...UInt8.max {
            let (bytes, expected) = wellFormed(flags, rrCount: 3)
            let whole = try #require(expected)
            let (rate, energy) = (flags & 1 == 0 ? 2 : 3, flags & 8 == 0 ? 0 : 2)
            for length in 0...bytes.count {
                guard length >= rate else {
                    #expect(throws: CharacteristicValueError.truncated(field: length == 0 ? "flags" : "heart rate")) {
                        try HeartRateMeasurement(bytes.prefix(length))
                    }
                    continue
                }
                let read = try HeartRateMeasurement(bytes.prefix(length))
                #expect(read.beatsPerMinute == whole.beatsPerMinute && read.contact == whole.contact)
                #expect(read.energyExpended == (length < rate + energy ? nil : whole.energyExpended))
                #expect(read.rrIntervals == Array(whole.rrIntervals.prefix(max(0, length - rate - energy) / 2)))
            }
        }
    }

    @Test("values of real sensors: a flag without an interval, and an odd byte after the intervals")
    func realSensors() throws {
        #expect(try HeartRateMeasurement(Data([0x10, 70])) == HeartRateMeasurement(beatsPerMinute: 70))
        let odd = try HeartRateMeasurement(Data([0x10, 70, 0x5B, 0x03, 0x12]))
        #expect(odd == HeartRateMeasurement(beatsPerMinute: 70, rrIntervals: [0x035B]))
        // Flags, two bytes of rate, two of energy; 507 are left, an odd number.
        #expect(try HeartRateMeasurement(Data(repeating: 0xFF, count: 512)).rrIntervals.count == 253)
    }

    @Test("bytes after the announced fields are ignored")
    func ignoresWhatItDoesNotKnow() throws {
        #expect(try HeartRateMeasurement(Data([0x00, 60, 1, 2, 3])).beatsPerMinute == 60)
    }

    @Test("RR intervals are in 1/1024 s, shown in milliseconds")
    func convertsIntervals() throws {
        let measurement = try HeartRateMeasurement(Data([0x10, 60, 0x00, 0x04, 0x00, 0x02, 0x01, 0x00, 0xFF, 0xFF]))
        #expect(measurement.rrMilliseconds == [1000, 500, 1, 63999])
    }

    @Test("the rate takes a byte up to 255 and two above")
    func producesTheShortestForm() {
        #expect(HeartRateMeasurement(beatsPerMinute: 255).data == Data([0x00, 255]))
        #expect(HeartRateMeasurement(beatsPerMinute: 256).data == Data([0x01, 0, 1]))
        let full = HeartRateMeasurement(
            beatsPerMinute: 300, contact: .notDetected, energyExpended: 0x1234, rrIntervals: [1024, 825])
        #expect(full.data == Data([0x1D, 0x2C, 0x01, 0x34, 0x12, 0x00, 0x04, 0x39, 0x03]))
    }

    @Test("a measurement that is too long for a notification loses its oldest intervals")
    func fits() {
        let measurement = HeartRateMeasurement(
            beatsPerMinute: 300, energyExpended: 1, rrIntervals: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
        #expect(measurement.data.count == 25)
        #expect(measurement.fitting(25) == measurement)
        #expect(measurement.fitting(24).rrIntervals == [2, 3, 4, 5, 6, 7, 8, 9, 10])
        #expect(measurement.fitting(20).rrIntervals == [4, 5, 6, 7, 8, 9, 10])
        #expect(measurement.fitting(20).data.count == 19)
        #expect(measurement.fitting(0).data.count == 5)
    }
}
