/// The last values as a row of bars, `▃▃▄▅█`.
struct Sparkline: Equatable {
    private static let bars = Array("▁▂▃▄▅▆▇█")

    private(set) var values: [Int] = []
    /// The number of values that are kept.
    let capacity: Int
    /// The minimum difference between the lowest and the highest bar, so that small changes look small.
    let leastSpan: Int

    init(capacity: Int, leastSpan: Int) { (self.capacity, self.leastSpan) = (max(1, capacity), max(1, leastSpan)) }

    mutating func append(_ value: Int) {
        values.append(value)
        if values.count > capacity { values.removeFirst(values.count - capacity) }
    }

    /// The bars of the last `width` values.
    func text(width: Int) -> String {
        let shown = values.suffix(max(0, width))
        guard let least = shown.min(), let most = shown.max() else { return "" }
        let span = Double(max(most - least, leastSpan))
        let bottom = (Double(least) + Double(most) - span) / 2
        return String(
            shown.map { value in
                let height = (Double(value) - bottom) / span * Double(Self.bars.count - 1)
                return Self.bars[min(max(Int(height.rounded()), 0), Self.bars.count - 1)]
            })
    }
}
