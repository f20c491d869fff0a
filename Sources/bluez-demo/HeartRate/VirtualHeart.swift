import BluezKitProfiles
import Foundation

/// A simulated heart: slightly irregular, faster when breathing in, with slow variations. Pure.
struct VirtualHeart {
    /// The average heart rate, in beats per minute.
    let rate: Double
    /// Between the last beat and the next, in seconds.
    private var interval: Double
    /// Until the next beat, in seconds.
    private var untilBeat: Double
    private var time = 0.0
    private var measurements = 0
    private var kilojoules = 0.0

    init(rate: Double) { (self.rate, interval, untilBeat) = (rate, 60 / rate, 60 / rate) }

    /// Beats per minute at a point in time: an exertion that varies within minutes, a breath about every 4 s, and a
    /// small irregularity.
    private var currentRate: Double {
        let effort = 0.10 * sin(time / 41) + 0.04 * sin(time / 13.7)
        return rate * (1 + effort + 0.03 * sin(time * 2 * .pi / 4.1) + 0.008 * sin(time * 1.7))
    }

    mutating func resetEnergy() { kilojoules = 0 }

    /// The measurement of the next number of seconds; with the energy every tenth time.
    mutating func measurement(over seconds: Double) -> HeartRateMeasurement {
        var intervals: [UInt16] = []
        var rest = seconds
        while untilBeat <= rest {
            time += untilBeat
            rest -= untilBeat
            intervals.append(UInt16(clamping: Int((interval * 1024).rounded())))
            interval = 60 / currentRate
            untilBeat = interval
        }
        untilBeat -= rest
        time += rest
        // Some 5 kJ a minute at rest, and more with each beat above 60.
        kilojoules += (5 + 0.4 * max(0, currentRate - 60)) * seconds / 60
        measurements += 1
        return HeartRateMeasurement(
            beatsPerMinute: UInt16(clamping: Int(currentRate.rounded())), contact: .detected,
            energyExpended: measurements.isMultiple(of: 10) ? UInt16(clamping: Int(kilojoules)) : nil,
            rrIntervals: intervals)
    }
}

extension BatteryLevel {
    /// What a battery that loses 1 % a minute has then. Nil: nothing changes, as of one that is empty.
    func drained(at second: Int) -> BatteryLevel? {
        second.isMultiple(of: 60) && percent > 0 ? BatteryLevel(percent: percent - 1) : nil
    }
}
