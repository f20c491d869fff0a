import Testing

@testable import bluez_demo

@Suite struct HeartRateMeasurementTests {
    /// What a correct reader makes of flags and of a body that has every field they announce.
    private func wellFormed(_ flags: UInt8, rrCount: Int) -> (bytes: [UInt8], expected: HeartRateMeasurement?) {
        var bytes = [flags, 0x48]
        if flags & 0x01 != 0 { bytes.append(0x01) }
        if flags & 0x08 != 0 { bytes += [0x34, 0x12] }
        if flags & 0x10 != 0 { for i in 0..<rrCount { bytes += [UInt8(i), 0x04] } }
        return (bytes, try? HeartRateMeasurement(bytes))
    }

    @Test("every combination of flags is read as it is laid out")
    func readsEveryCombinationOfFlags() throws {
        for flags in UInt8.min...UInt8.max {
            for rrCount in 1...9 {
                let (bytes, measurement) = wellFormed(flags, rrCount: rrCount)
                let read = try #require(measurement, "\(bytes)")
                #expect(read.beatsPerMinute == (flags & 0x01 == 0 ? 0x48 : 0x148))
                #expect(read.energyExpended == (flags & 0x08 == 0 ? nil : 0x1234))
                #expect(read.rrIntervals == (flags & 0x10 == 0 ? [] : (0..<rrCount).map { 0x400 + $0 }))
                let contact: HeartRateMeasurement.Contact =
                    flags & 0x04 == 0 ? .notSupported : flags & 0x02 == 0 ? .notDetected : .detected
                #expect(read.contact == contact)
            }
        }
    }

    @Test("a value that is cut off anywhere is an error, except between two RR intervals")
    func refusesTruncatedValues() {
        for flags in UInt8.min...UInt8.max {
            let (bytes, _) = wellFormed(flags, rrCount: 3)
            let beforeRR = bytes.count - (flags & 0x10 == 0 ? 0 : 6)
            for length in 0..<bytes.count {
                let isBetweenIntervals = flags & 0x10 != 0 && length > beforeRR && (length - beforeRR) % 2 == 0
                let read = try? HeartRateMeasurement(bytes.prefix(length))
                #expect((read != nil) == isBetweenIntervals, "\(bytes.prefix(length))")
            }
        }
    }

    @Test("the error names the field that is cut off")
    func namesTheTruncatedField() {
        typealias Failure = HeartRateMeasurement.ParseError
        #expect(throws: Failure.truncated("flags")) { try HeartRateMeasurement([UInt8]()) }
        #expect(throws: Failure.truncated("heart rate")) { try HeartRateMeasurement([0x00]) }
        #expect(throws: Failure.truncated("heart rate")) { try HeartRateMeasurement([0x01, 60]) }
        #expect(throws: Failure.truncated("energy expended")) { try HeartRateMeasurement([0x08, 60, 1]) }
        #expect(throws: Failure.truncated("RR interval")) { try HeartRateMeasurement([0x10, 60]) }
        #expect(throws: Failure.truncated("RR interval")) { try HeartRateMeasurement([0x10, 60, 0, 4, 1]) }
    }

    @Test("no bytes make it trap")
    func survivesAnything() {
        var generator = SystemRandomNumberGenerator()
        for _ in 0..<20_000 {
            let bytes = (0..<Int.random(in: 0...24)).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
            _ = try? HeartRateMeasurement(bytes)
        }
        for first in UInt8.min...UInt8.max {
            for second in UInt8.min...UInt8.max { _ = try? HeartRateMeasurement([first, second]) }
        }
        // Flags, two bytes of rate, two of energy; 507 are left, an odd number.
        #expect((try? HeartRateMeasurement([UInt8](repeating: 0xFF, count: 512))) == nil)
        #expect((try? HeartRateMeasurement([UInt8](repeating: 0xFF, count: 511)))?.rrIntervals.count == 253)
    }

    @Test("bytes after the announced fields are left alone")
    func ignoresWhatItDoesNotKnow() throws {
        #expect(try HeartRateMeasurement([0x00, 60, 1, 2, 3]).beatsPerMinute == 60)
    }

    @Test("RR intervals are in 1/1024 s, shown in milliseconds")
    func convertsIntervals() throws {
        let measurement = try HeartRateMeasurement([0x10, 60, 0x00, 0x04, 0x00, 0x02, 0x01, 0x00, 0xFF, 0xFF])
        #expect(measurement.rrMilliseconds == [1000, 500, 1, 63999])
    }

    @Test("the simulated sensor sends well-formed measurements for hours")
    func simulatedSensorIsWellFormed() throws {
        for beat in 0..<20_000 {
            let measurement = try HeartRateMeasurement(SimulatedHeart.measurement(beat))
            #expect((50...120).contains(measurement.beatsPerMinute))
            #expect(measurement.contact == .detected && measurement.rrIntervals.count == 1)
        }
    }
}
