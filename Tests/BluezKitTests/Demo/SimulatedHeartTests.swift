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
}
