import BluezKitProfiles
import Testing

@testable import bluez_demo

@Suite struct VirtualHeartTests {
    @Test("rates and intervals are realistic, and consistent with each other", arguments: [30.0, 72, 150, 220])
    func isPlausible(_ rate: Double) {
        var heart = VirtualHeart(rate: rate)
        var (beats, total, previous) = (0, 0.0, 0)
        for _ in 0..<3600 {
            let measurement = heart.measurement(over: 1)
            let bpm = Int(measurement.beatsPerMinute)
            #expect(Double(bpm) > rate * 0.8 && Double(bpm) < rate * 1.2)
            #expect(previous == 0 || abs(bpm - previous) <= max(5, Int(rate * 0.07)))
            previous = bpm
            beats += measurement.rrIntervals.count
            total += measurement.rrIntervals.reduce(0) { $0 + Double($1) / 1024 }
        }
        // An hour of beats lasts an hour.
        #expect(abs(total - 3600) < 3, "\(total)")
        #expect(abs(Double(beats) - rate * 60) < rate * 2, "\(beats)")
    }

    @Test("the energy grows, comes with every tenth measurement, and can be reset")
    func countsEnergy() throws {
        var heart = VirtualHeart(rate: 120)
        var energies: [UInt16] = []
        for number in 1...600 {
            let energy = heart.measurement(over: 1).energyExpended
            #expect((energy != nil) == number.isMultiple(of: 10))
            if let energy { energies.append(energy) }
        }
        #expect(energies == energies.sorted())
        #expect(try (200...400).contains(#require(energies.last)))  // ten minutes of sport
        heart.resetEnergy()
        for _ in 0..<9 { _ = heart.measurement(over: 1) }
        #expect(try #require(heart.measurement(over: 1).energyExpended) < 10)
    }

    // An empty one was reported each minute, and only changes are events.
    @Test("the battery loses one percent a minute, and an empty one does not change any more")
    func drains() {
        var levels = [BatteryLevel(percent: 2)]
        for second in 1...300 { if let next = levels.last?.drained(at: second) { levels.append(next) } }
        #expect(levels.map(\.percent) == [2, 1, 0])
    }
}
