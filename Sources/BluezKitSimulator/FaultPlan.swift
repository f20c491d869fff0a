/// What goes wrong, and when. A plan is printed as it is written, and does the same each time.
///
/// ```swift
/// let plan = FaultPlan(
///     seed: 7,
///     [
///         .rssi(from: -50, to: -90, over: .seconds(20)),
///         .failReads(0.05),
///         .vanish(at: .seconds(3), for: .seconds(2)),
///         .hangDaemon(at: .seconds(8), for: .seconds(10)),
///     ])
/// print(plan)
/// let run = simulator.run(plan, on: sensor)
/// // … the app must get along with it …
/// await run.waitForEnd()
/// ```
/// Times are those of the simulator's timers, from the start of the plan on. They are not shortened, as those of
/// ``SimulatorTiming/fast`` are: for a fast test, write milliseconds.
public struct FaultPlan: Hashable, Sendable, CustomStringConvertible {
    /// Decides what is left to chance. The same seed decides the same, for the same sequence of reads and writes.
    public var seed: UInt64
    /// In any order.
    public var steps: [Step]

    /// A plan with these steps.
    public init(seed: UInt64 = 1, _ steps: [Step]) { (self.seed, self.steps) = (seed, steps) }

    /// A plan made by chance: a number of times, a peripheral vanishes for a moment or ends the link, links are
    /// refused, bluetoothd hangs or crashes, or Bluetooth is switched off for a moment.
    /// - Parameters:
    ///   - seed: The same seed makes the same plan.
    ///   - duration: The time in which all of it happens.
    ///   - count: How many of these, evenly over the time.
    public static func random(seed: UInt64, over duration: Duration, count: Int = 10) -> FaultPlan {
        var random = SeededGenerator(seed: seed)
        let slot = duration / max(1, count)
        let steps = (0..<max(0, count)).map { number in
            let start = slot * (Double(number) + random.fraction() / 2), period = slot * (random.fraction() / 2)
            return switch UInt8.random(in: 0..<7, using: &random) {
            case 0, 1: Step.vanish(at: start, for: period)
            case 2: Step.disconnect(at: start)
            case 3: Step.refuseLinks(at: start, for: period)
            case 4: Step.hangDaemon(at: start, for: period)
            case 5: Step.crashDaemon(at: start, for: period)
            default: Step.powerOff(at: start, for: period)
            }
        }
        return FaultPlan(seed: seed, steps)
    }

    /// The seed, and a line for each step, in the order of time.
    public var description: String {
        (["faults, seed \(seed)"] + steps.sorted { $0.start < $1.start }.map { "  \($0)" }).joined(separator: "\n")
    }

    /// One fault, with its time.
    public struct Step: Hashable, Sendable, CustomStringConvertible {
        let start: Duration
        /// Nil: it does not end, or has no end.
        let period: Duration?
        let fault: Fault

        /// When, what, and for how long: `at 3 s: the peripheral vanishes for 2 s`.
        public var description: String {
            "at \(start.inSeconds): \(fault)" + (period.map { " for \($0.inSeconds)" } ?? "")
        }
    }

    enum Fault: Hashable, Sendable, CustomStringConvertible {
        case vanish, comeBack, disconnect, refuseLinks
        case rssi(from: Int16?, to: Int16)
        case failReads(Double, ATTFailure)
        case failWrites(Double, ATTFailure)
        case hangDaemon, crashDaemon
        case powerOff(adapter: Int)
        case unplug(adapter: Int)

        var description: String {
            func percent(_ part: Double) -> String { "\((part * 1000).rounded() / 10) %".replacing(".0 ", with: " ") }
            return switch self {
            case .vanish: "the peripheral vanishes"
            case .comeBack: "the peripheral comes back"
            case .disconnect: "the peripheral ends its links"
            case .refuseLinks: "the peripheral refuses links"
            case .rssi(nil, let end): "the RSSI is \(end) dBm"
            case .rssi(let begin?, let end): "the RSSI walks from \(begin) to \(end) dBm"
            case .failReads(let part, let failure): "\(percent(part)) of reads fail with 0x\(Hex.byte(failure.code))"
            case .failWrites(let part, let failure): "\(percent(part)) of writes fail with 0x\(Hex.byte(failure.code))"
            case .hangDaemon: "bluetoothd hangs"
            case .crashDaemon: "bluetoothd crashes, and is away"
            case .powerOff(let index): "hci\(index) is switched off"
            case .unplug(let index): "hci\(index) is unplugged"
            }
        }
    }
}

/// The faults that there are. Without a period (`for`) a fault lasts until ``FaultRun/stop()``.
extension FaultPlan.Step {
    private init(_ fault: FaultPlan.Fault, _ start: Duration, _ period: Duration?) {
        precondition(start >= .zero && (period ?? .zero) >= .zero, "a step lies before its plan: \(start)")
        (self.fault, self.start, self.period) = (fault, start, period)
    }

    /// As ``VirtualPeripheral/vanish()``, and back after the period.
    public static func vanish(at start: Duration, for period: Duration? = nil) -> Self { Self(.vanish, start, period) }

    /// As ``VirtualPeripheral/comeBack()``.
    public static func comeBack(at start: Duration) -> Self { Self(.comeBack, start, nil) }

    /// As ``VirtualPeripheral/disconnect()``.
    public static func disconnect(at start: Duration) -> Self { Self(.disconnect, start, nil) }

    /// As ``VirtualPeripheral/refusesLinks``.
    public static func refuseLinks(at start: Duration = .zero, for period: Duration? = nil) -> Self {
        Self(.refuseLinks, start, period)
    }

    /// The signal strength from now on, in dBm.
    public static func rssi(_ dBm: Int16, at start: Duration) -> Self { Self(.rssi(from: nil, to: dBm), start, nil) }

    /// The signal strength walks from one value to another, in dBm, up to 2 dBm beside the straight line, and stays
    /// there.
    public static func rssi(
        from begin: Int16, to end: Int16, at start: Duration = .zero, over period: Duration
    ) -> Self { Self(.rssi(from: begin, to: end), start, period) }

    /// Each read of a characteristic may fail.
    /// - Parameters:
    ///   - part: The probability: 0.05 for one in twenty.
    ///   - failure: What the peripheral answers.
    ///   - start: When it begins, from the begin of the plan.
    ///   - period: How long it lasts; nil: for good.
    public static func failReads(
        _ part: Double, with failure: ATTFailure = .unlikely, at start: Duration = .zero, for period: Duration? = nil
    ) -> Self {
        precondition((0...1).contains(part), "a probability is between 0 and 1: \(part)")
        return Self(.failReads(part, failure), start, period)
    }

    /// Each write with response may fail, and then has no effect.
    /// - Parameters:
    ///   - part: The probability: 0.05 for one in twenty.
    ///   - failure: What the peripheral answers.
    ///   - start: When it begins, from the begin of the plan.
    ///   - period: How long it lasts; nil: for good.
    public static func failWrites(
        _ part: Double, with failure: ATTFailure = .unlikely, at start: Duration = .zero, for period: Duration? = nil
    ) -> Self {
        precondition((0...1).contains(part), "a probability is between 0 and 1: \(part)")
        return Self(.failWrites(part, failure), start, period)
    }

    /// As ``Simulator/hangDaemon()``, and ``Simulator/continueDaemon()`` after the period.
    public static func hangDaemon(at start: Duration, for period: Duration) -> Self { Self(.hangDaemon, start, period) }

    /// As ``Simulator/killDaemon()``, and ``Simulator/startDaemon()`` after the period.
    public static func crashDaemon(at start: Duration, for period: Duration = .zero) -> Self {
        Self(.crashDaemon, start, period)
    }

    /// As ``Simulator/setPowered(_:adapter:)``, and on again after the period.
    public static func powerOff(at start: Duration, for period: Duration? = nil, adapter index: Int = 0) -> Self {
        Self(.powerOff(adapter: index), start, period)
    }

    /// As ``Simulator/unplugAdapter(_:)``, and ``Simulator/plugAdapter(_:)`` after the period.
    public static func unplugAdapter(at start: Duration, for period: Duration? = nil, adapter index: Int = 0) -> Self {
        Self(.unplug(adapter: index), start, period)
    }
}

extension Duration {
    /// `3 s`, `0.25 s`.
    var inSeconds: String {
        let seconds = (self / .microseconds(1)).rounded() / 1_000_000
        return seconds == seconds.rounded() && abs(seconds) < 1e15 ? "\(Int64(seconds)) s" : "\(seconds) s"
    }
}
