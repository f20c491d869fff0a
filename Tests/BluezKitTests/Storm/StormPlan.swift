import BluezKitSimulator

/// What happens in a storm: decided by a number, so that a run can be repeated. It knows what it has done to the world,
/// and looks at nothing else.
struct StormPlan {
    /// One thing that happens, and how long to wait after it.
    struct Step {
        /// A control line, or a line that starts with `app`.
        let line: String
        let pauseMilliseconds: Int
    }

    /// A peripheral, by its name in control lines.
    struct Target {
        let key: String
        let address: String
        /// Its table can change.
        let canChange: Bool
    }

    let targets: [Target]
    /// Real daemons take their time.
    let slowness: Int
    private var random: SeededGenerator
    private var absent: Set<String> = []
    private var silent: Set<String> = []
    private var changed: Set<String> = []

    init(seed: UInt64, targets: [Target], slowness: Int) {
        (random, self.targets, self.slowness) = (SeededGenerator(seed: seed), targets, slowness)
    }

    /// Some bad weather, and the lines that make everything well again.
    mutating func round() -> [Step] {
        var steps: [Step] = []
        for _ in 0..<Int.random(in: 5...25, using: &random) { steps += next() }
        return steps + calm()
    }

    private mutating func next() -> [Step] {
        guard let target = targets.randomElement(using: &random) else { return [] }
        let key = target.key
        switch Int.random(in: 0..<100, using: &random) {
        case 0..<24: return [step("\(key) disconnect")]
        case 24..<34:
            absent.insert(key)
            return [step("\(key) vanish")]
        case 34..<46:
            absent.remove(key)
            return [step("\(key) return")]
        case 46..<50:
            silent.insert(key)
            return [step("\(key) advertise off")]
        case 50..<54:
            silent.remove(key)
            return [step("\(key) advertise on")]
        case 54..<66 where target.canChange:
            let isThere = changed.contains(key)
            if isThere { changed.remove(key) } else { changed.insert(key) }
            return [step("\(key) services \(isThere ? "remove" : "add")")]
        case 66..<72: return [step("bluetoothd remove \(target.address)")]
        case 72..<76: return [step("bluetoothd kill", 20...400), step("bluetoothd start")]
        case 76..<78: return [step("bluetoothd stop", 20...400), step("bluetoothd start")]
        case 78..<81: return [step("bluetoothd hang", 20...1500), step("bluetoothd continue")]
        case 81..<84: return [step("rig unplug", 20...600), step("rig plug")]
        case 84..<88: return [step("rig power off", 20...400), step("rig power on")]
        case 88..<91: return [step("app cancel \(key)")]
        case 91..<95: return [step("app read")]
        case 95..<97: return [step("app scan"), step("app stop")]
        case 97..<98: return [step("app release \(key)")]
        default: return [step("app nothing", 0...800)]
        }
    }

    private mutating func step(_ line: String, _ pause: ClosedRange<Int> = 0...150) -> Step {
        // Simultaneous events are the hardest.
        let isHasty = Bool.random(using: &random)
        let milliseconds = Int.random(in: pause, using: &random)
        return Step(line: line, pauseMilliseconds: isHasty ? pause.lowerBound : milliseconds * slowness)
    }

    private mutating func calm() -> [Step] {
        defer { (absent, silent) = ([], []) }
        return absent.sorted().map { Step(line: "\($0) return", pauseMilliseconds: 0) }
            + silent.sorted().map { Step(line: "\($0) advertise on", pauseMilliseconds: 0) }
    }
}
