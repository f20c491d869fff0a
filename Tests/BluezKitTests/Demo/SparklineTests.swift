import Testing

@testable import bluez_demo

@Suite struct SparklineTests {
    private func line(_ values: [Int], leastSpan: Int = 1, width: Int = 100) -> String {
        var sparkline = Sparkline(capacity: 100, leastSpan: leastSpan)
        for value in values { sparkline.append(value) }
        return sparkline.text(width: width)
    }

    @Test("a sparkline shows the lowest value as the lowest bar, and the highest as the highest")
    func spansAllBars() {
        #expect(line([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█")
        #expect(line([190, 40, 190]) == "█▁█")
    }

    @Test("small changes look small in a sparkline")
    func keepsSmallChangesSmall() {
        #expect(line([70, 71], leastSpan: 14) == "▄▅")
        #expect(line([70, 70, 70], leastSpan: 14) == "▅▅▅")
    }

    @Test("a sparkline shows and keeps only the last values")
    func showsTheLastValues() {
        #expect(line([0, 9, 0, 9, 9], width: 3) == "▁██")
        #expect(line([1, 2], width: 0).isEmpty && line([], width: 5).isEmpty && line([1], width: -1).isEmpty)
        var sparkline = Sparkline(capacity: 2, leastSpan: 1)
        for value in 0..<5 { sparkline.append(value) }
        #expect(sparkline.values == [3, 4])
    }

    @Test("a sparkline does not trap on any value")
    func survivesExtremes() {
        #expect(line([0, 65_535]) == "▁█")
        #expect(line([-40, 0, 65_535, 3]).count == 4)
    }
}
