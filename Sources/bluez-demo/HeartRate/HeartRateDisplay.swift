import BluezKitProfiles

/// The display of the latest measurements. Pure.
struct HeartRateDisplay {
    var isConnected = false
    /// In percent.
    var battery: Int?
    /// If we are the sensor: the number of subscribed centrals.
    var listeners: Int?
    private var latest: HeartRateMeasurement?
    private var energy: Int?
    private var rates = Sparkline(capacity: 500, leastSpan: 14)

    mutating func take(_ measurement: HeartRateMeasurement) {
        latest = measurement
        // Sent with some measurements only, and valid until the next one.
        energy = measurement.energyExpended.map(Int.init) ?? energy
        rates.append(Int(measurement.beatsPerMinute))
    }

    /// Two lines that are redrawn in place; none before the first measurement.
    func block(width: Int) -> [Line] {
        guard let latest else { return [] }
        let heart = Line("\u{2665}", isConnected ? .red : .dim)
        let rate = Line(Self.right(Int(latest.beatsPerMinute), 4), isConnected ? .bold : .dim) + " bpm  "
        let beginning = "  " + heart + rate
        let shown = max(0, min(40, width - beginning.width - 12))
        var first = beginning + Line(rates.text(width: shown), isConnected ? .cyan : .dim)
        let values = rates.values.suffix(shown)
        if let least = values.min(), let most = values.max() { first += Line("  \(least)-\(most)", .dim) }

        var facts: [Line] = isConnected ? [] : [Line("not connected", .yellow)]
        if let listeners { facts.append(Line("\(listeners) subscribed", listeners > 0 ? .green : .dim)) }
        if !latest.rrIntervals.isEmpty { facts.append(Line("RR " + Self.milliseconds(latest))) }
        if latest.contact != .notSupported { facts.append(Self.contact(latest)) }
        if let energy { facts.append(Line("\(energy) kJ")) }
        if let battery { facts.append(Line("battery \(battery) %", battery <= 20 ? .yellow : .plain)) }
        var second = Line("    ")
        for (index, fact) in facts.enumerated() { second += index == 0 ? fact : Line("   ") + fact }
        return [first, second]
    }

    /// One measurement on its own line.
    func plainLine(_ measurement: HeartRateMeasurement) -> Line {
        var line = Line(Self.right(Int(measurement.beatsPerMinute), 4) + " bpm")
        if !measurement.rrIntervals.isEmpty { line += Line("   RR " + Self.milliseconds(measurement)) }
        if measurement.contact != .notSupported { line += "   " + Self.contact(measurement) }
        if let energy = measurement.energyExpended { line += Line("   \(energy) kJ") }
        return line
    }

    private static func contact(_ measurement: HeartRateMeasurement) -> Line {
        measurement.contact == .detected ? "skin contact" : Line("no skin contact", .yellow)
    }

    private static func milliseconds(_ measurement: HeartRateMeasurement) -> String {
        measurement.rrMilliseconds.map { String(Int($0.rounded())) }.joined(separator: ", ") + " ms"
    }

    private static func right(_ number: Int, _ width: Int) -> String {
        let text = String(number)
        return String(repeating: " ", count: max(0, width - text.count)) + text
    }
}
