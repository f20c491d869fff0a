import BluezKitProfiles
import Foundation
import Testing

@testable import bluez_demo

@Suite struct SimulatedHeartTests {
    @Test("the simulated sensor sends well-formed measurements for hours")
    func isWellFormed() throws {
        for beat in 0..<20_000 {
            let measurement = try HeartRateMeasurement(Data(SimulatedHeart.measurement(beat)))
            #expect((50...120).contains(measurement.beatsPerMinute))
            #expect(measurement.contact == .detected && measurement.rrIntervals.count == 1)
        }
    }

    @Test("numbered measurements have the number of the beat in place of the energy")
    func numbers() throws {
        for beat in [0, 1, 10, 255, 256, 65_535] {
            let measurement = try HeartRateMeasurement(Data(SimulatedHeart.numbered(beat)))
            #expect(measurement.energyExpended.map(Int.init) == beat && measurement.rrIntervals.count == 1)
        }
    }
}
