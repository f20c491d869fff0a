import BluezKitSimulator
import Foundation

/// The options of `record`.
struct RecordOptions: Equatable {
    /// Nil: the only one in the files.
    var device: DeviceName?
    /// Captures, and files of BlueZ, instead of a device in range.
    var sources: [String]
    /// Where the recording is written to.
    var output: String
    /// How long notifications are recorded.
    var seconds: Double
    /// Whether values are read.
    var readsValues: Bool
    var isAnonymous: Bool
    /// In seconds.
    var timeout: Double

    init(_ parsed: ParsedArguments) throws(UsageError) {
        sources = parsed.all("--from")
        guard parsed.operands.count <= 1 else { throw parsed.error("record takes one device") }
        if let text = parsed.operands.first { device = try parsed.device(text) }
        guard device != nil || !sources.isEmpty else {
            throw parsed.error("record which device? `bluez-demo scan` shows identifiers")
        }
        guard let output = parsed.first("--output") else {
            throw parsed.error("record into which file? --output FILE")
        }
        self.output = output
        isAnonymous = parsed.has(CommandSpec.anonymize)
        readsValues = parsed.has(CommandSpec.values)
        seconds = try parsed.seconds("--seconds") ?? 10
        timeout = try parsed.seconds("--timeout") ?? 30
        guard !sources.isEmpty else { return }
        for name in ["--seconds", "--timeout", "--values", "--simulated", "--adapter"] where parsed.isGiven(name) {
            throw parsed.error("\(name) is for a device in range, and --from reads files")
        }
    }
}

/// The options of `simulate`.
struct SimulateOptions: Equatable {
    var scenario = Scenario.heartRate
    /// Recordings, instead of a scenario.
    var recordings: [String] = []
    /// How fast they are replayed.
    var pace = ReplayPace.recorded
    var isList: Bool

    init(_ parsed: ParsedArguments) throws(UsageError) {
        isList = parsed.has(OptionSpec(name: "--list", help: ""))
        if let name = parsed.operands.first {
            if isList { throw parsed.error("simulate --list does not take '\(name)'") }
            // No scenario has one of these in its name.
            if parsed.operands.contains(where: { $0.contains(".") || $0.contains("/") }) {
                recordings = parsed.operands
            } else {
                scenario = try Self.scenario(name, parsed)
            }
        }
        pace = try Self.pace(parsed)
        if pace != .recorded, recordings.isEmpty {
            throw parsed.error("--pace and --step are for recordings: bluez-demo simulate FILE")
        }
    }

    private static func scenario(_ name: String, _ parsed: ParsedArguments) throws(UsageError) -> Scenario {
        guard var scenario = Scenario(name: name) else {
            throw parsed.error("there is no scenario '\(name)'; --list shows them")
        }
        let rest = parsed.operands.dropFirst()
        if case .crowd = scenario, let size = rest.first {
            scenario = .crowd(try parsed.integer(size, of: "crowd", in: 1...Scenario.largestCrowd))
        }
        let allowed = if case .crowd = scenario { 1 } else { 0 }
        guard rest.count <= allowed else { throw parsed.error("simulate does not take '\(rest.last ?? "")'") }
        return scenario
    }

    private static func pace(_ parsed: ParsedArguments) throws(UsageError) -> ReplayPace {
        let isStepwise = parsed.isGiven("--step")
        guard let text = parsed.first("--pace") else { return isStepwise ? .stepwise : .recorded }
        if isStepwise { throw parsed.error("--step has no pace of its own: leave out --pace") }
        guard let factor = Double(text), factor.isFinite, factor >= 0.001, factor <= 1_000_000 else {
            throw parsed.error("--pace needs a number from 0.001 to 1000000, such as 10, not '\(text)'")
        }
        return .faster(factor)
    }
}
