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
    let connectTimeout = 0.4

    init() async throws {
        simulator = try await Simulator()
        simulator.add(heart)
        simulator.add(sink)
        simulator.onEvent { [events] in events.append($0) }
    }

    func control(_ line: String) async throws -> String { try await simulator.control(line) }

    func nextEvent(_ what: String, where matches: @escaping @Sendable (String) -> Bool) async throws -> String {
        try await events.next(what) { matches($0) ? $0 : nil }
    }
}

/// The library's log lines, of all tests of this process: look for what only your own test can have caused.
final class LogCapture: Sendable {
    static let shared = LogCapture()
    private let lines = EventLog<String>()

    private init() { BluezKitLog.handler = { [lines] level, text in lines.append("\(level): \(text)") } }

    /// Waits for a line with all these parts.
    func expect(_ parts: String...) async throws {
        _ = try await lines.next("log line with \(parts)") { line in parts.allSatisfy(line.contains) ? line : nil }
    }

    func count(_ part: String) -> Int { lines.all.filter { $0.contains(part) }.count }
}
