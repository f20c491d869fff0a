import BluezDBus
import BluezKitSimulator
import Foundation

@testable import BluezKit

/// A fresh simulator with the rig's peripherals, for tests that need no more than the scenarios do, and for those that
/// reach into it.
final class SimulatedWorld: World {
    let simulator: Simulator
    let heart = VirtualPeripheral.rigHeart()
    let sink: VirtualPeripheral
    private let events = EventLog<String>()
    private let times: ShortTimes?
    /// Of a world with ``WaitingTimes/virtual``.
    let time: PassingTime?

    var managerOptions: [String: Any] { [BluezManagerOptionBusAddressKey: simulator.address] }
    let connectTimeout: Double

    /// - Parameters:
    ///   - timing: How long the simulated daemon and radio take. Nil: ``SimulatorTiming/fast``, or, with a clock,
    ///     ``SimulatorTiming/real``.
    ///   - times: How long BluezKit waits.
    init(
        _ options: SimulatorOptions = .busy, timing: SimulatorTiming? = nil, times: WaitingTimes = .short
    ) async throws {
        _ = LogCapture.shared
        Log.forgetFloods()  // devices of other worlds have the same names
        time = times == .virtual ? PassingTime() : nil
        let isFast = timing == nil && time == nil
        var timing = timing ?? (isFast ? .fast : .real)
        // An app that answers at once is in the same process, which may stand still for seconds on a busy machine.
        if isFast { timing.applicationTimeout = BlueZTiming.short.server.request }
        // A tenth of what the rig's takes: a cancelled read returns long before its answer.
        sink = VirtualPeripheral.rigSink(slowRead: .milliseconds(500))
        connectTimeout = timing.connectTimeout / .seconds(1)
        simulator = try await Simulator(timing: timing, options: options, clock: time?.clock ?? .real)
        self.times = times == .short ? ShortTimes(on: simulator.busAddress) : nil
        simulator.add(heart)
        simulator.add(sink)
        simulator.onEvent { [events] in events.append($0) }
    }

    @discardableResult
    func control(_ line: String) async throws -> String { try await simulator.control(line) }

    func nextEvent(_ what: String, where matches: @escaping @Sendable (String) -> Bool) async throws -> String {
        try await events.next(what) { matches($0) ? $0 : nil }
    }

    /// Waits for a call while time stands still, but for what leads to it: `waitForCalls` lets time pass.
    func awaitCall(_ member: String) async throws {
        try await eventually("\(member) is called") {
            await time?.clock.advance(by: .milliseconds(10))
            return !simulator.calls(member).isEmpty
        }
    }
}

extension SimulatorOptions {
    /// As in the real world (``SimulatorBustle``): what a test gets unless it asks for something else.
    static var busy: SimulatorOptions { .busy(seed: seed) }

    static func busy(seed: UInt64) -> SimulatorOptions {
        var options = SimulatorOptions(version: version)
        options.bustle = SimulatorBustle(seed: seed)
        return options
    }

    /// No other devices or programs, and bluetoothd answers at once: for tests that count events or calls, or that need
    /// exact timing. They say why.
    static let calm = SimulatorOptions(version: version)

    /// `BLUEZKIT_SIMULATED_BLUEZ=5.87` runs tests against a later version than the oldest.
    static let version: SimulatorVersion = {
        guard let text = ProcessInfo.processInfo.environment["BLUEZKIT_SIMULATED_BLUEZ"] else { return .v5_66 }
        guard let version = SimulatorVersion(rawValue: text) else {
            fatalError("BLUEZKIT_SIMULATED_BLUEZ: one of \(SimulatorVersion.allCases.map(\.rawValue))")
        }
        return version
    }()

    /// Of the busy worlds of this run. `BLUEZKIT_SEED=7` repeats it.
    static let seed: UInt64 = {
        let told = ProcessInfo.processInfo.environment["BLUEZKIT_SEED"].flatMap { UInt64($0) }
        let seed = told ?? .random(in: 1...999_999)
        FileHandle.standardError.write(Data("simulated worlds are busy: BLUEZKIT_SEED=\(seed) repeats them\n".utf8))
        return seed
    }()
}

/// The library's log lines, of all tests of this process: look for what only your own test can have caused.
final class LogCapture: Sendable {
    static let shared = LogCapture()
    private let state = ProtectedBox<(lines: [String], waiters: [(String) -> Bool])>(([], []))

    private init() {
        BluezKitLog.handler = { [state] level, text in
            let line = "\(level): \(text)"
            BluezKitLog.writeToStandardError(level, text)
            state.withLock { state in
                state.lines.append(line)
                state.waiters.removeAll { $0(line) }
            }
        }
    }

    /// Waits for a line with all these parts; one that has come already counts. Install the capture, by naming
    /// `shared`, before the line can come.
    func expect(_ parts: String...) async throws {
        let log = EventLog<String>()
        let matches = { (line: String) in parts.allSatisfy(line.contains) }
        state.withLock { state in
            if let line = state.lines.first(where: matches) { return log.append(line) }
            state.waiters.append { line in
                guard matches(line) else { return false }
                log.append(line)
                return true
            }
        }
        _ = try await log.next("log line with \(parts)") { $0 }
    }

    func last(_ count: Int) -> [String] { state.withLock { $0.lines.suffix(count) } }
    func forget() { state.withLock { $0.lines = [] } }

    func count(_ part: String) -> Int { state.withLock { $0.lines.filter { $0.contains(part) }.count } }
}
