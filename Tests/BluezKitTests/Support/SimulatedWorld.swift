import BluezKit
import BluezKitSimulator
import Foundation

/// A fresh simulator with the rig's peripherals, for tests that need no more than the scenarios do, and for those that
/// reach into it.
final class SimulatedWorld: World {
    let simulator: Simulator
    let heart = VirtualPeripheral.heart()
    let sink = VirtualPeripheral.sink()
    private let events = EventLog<String>()

    var managerOptions: [String: Any] { [BluezManagerOptionBusAddressKey: simulator.address.rawValue] }
    let connectTimeout: Double

    /// - Parameter seed: Of a busy world; nil: nobody else is near, and bluetoothd answers at once.
    init(timing: SimulatorTiming = .fast, seed: UInt64? = SimulatedWorld.seed) async throws {
        _ = LogCapture.shared
        connectTimeout = timing.connectTimeout / .seconds(1)
        var options = SimulatorOptions()
        options.bustle = seed.map { SimulatorBustle(seed: $0) }
        simulator = try await Simulator(timing: timing, options: options)
        simulator.add(heart)
        simulator.add(sink)
        simulator.onEvent { [events] in events.append($0) }
    }

    /// `BLUEZKIT_SEED=7` makes the worlds of all tests busy.
    static let seed = ProcessInfo.processInfo.environment["BLUEZKIT_SEED"].flatMap { UInt64($0) }

    @discardableResult
    func control(_ line: String) async throws -> String { try await simulator.control(line) }

    func nextEvent(_ what: String, where matches: @escaping @Sendable (String) -> Bool) async throws -> String {
        try await events.next(what) { matches($0) ? $0 : nil }
    }
}

/// The library's log lines, of all tests of this process: look for what only your own test can have caused.
final class LogCapture: Sendable {
    static let shared = LogCapture()
    private let state = ProtectedBox<(lines: [String], waiters: [(String) -> Bool])>(([], []))

    private init() {
        BluezKitLog.handler = { [state] level, text in
            let line = "\(level): \(text)"
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
