import BluezKit
import Foundation

/// The library's log lines from now on. There is one handler for the process and tests run side by side, so each sees
/// the lines of all: look for what names your own objects.
final class LogLines: @unchecked Sendable {  // holds: constant, and the log is safe
    let log = EventLog<String>()

    private static let all = Listeners()

    private final class Listeners: @unchecked Sendable {  // holds: what changes is under `lock`
        private let lock = NSLock()
        private var logs: [ObjectIdentifier: EventLog<String>] = [:]

        init() {
            BluezKitLog.handler = { [unowned self] _, text in
                for log in lock.withLock({ Array(logs.values) }) { log.append(text) }
            }
        }

        func add(_ log: EventLog<String>) { lock.withLock { logs[ObjectIdentifier(log)] = log } }
        func remove(_ log: EventLog<String>) { lock.withLock { logs[ObjectIdentifier(log)] = nil } }
    }

    init() { Self.all.add(log) }
    deinit { Self.all.remove(log) }

    /// Waits for the next line that contains all of these.
    @discardableResult
    func next(_ parts: String...) async throws -> String {
        try await log.next("a log line with \(parts)") { line in parts.allSatisfy { line.contains($0) } ? line : nil }
    }
}
