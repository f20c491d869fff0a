import BluezKitSimulator
import Foundation
import Testing

struct Missing: Error, CustomStringConvertible { let description: String }

/// Waits until something is so.
func until(_ condition: () async throws -> Bool) async throws {
    let deadline = ContinuousClock.now + .seconds(30)
    while try await !condition() {
        guard ContinuousClock.now < deadline else { throw Missing(description: "it did not happen") }
        try await Task.sleep(for: .milliseconds(20))
    }
}

/// Lines that a program writes.
final class Lines: @unchecked Sendable {  // holds: everything is touched under the lock
    private let lock = NSLock()
    private var lines: [String] = []

    func add(_ line: String) { lock.withLock { lines.append(line) } }

    /// The next one that matches; those before it are dropped.
    func next(_ matches: (String) -> Bool = { _ in true }) async throws -> String {
        var found: String?
        do {
            try await until {
                lock.withLock {
                    guard let index = lines.firstIndex(where: matches) else { return }
                    found = lines[index]
                    lines.removeSubrange(...index)
                }
                return found != nil
            }
        } catch { throw Missing(description: "no such line, but: \(lock.withLock { lines.suffix(20) })") }
        return found ?? ""
    }

    /// Waits until there were lines with these contents, in any order.
    func expect(_ contents: [String]) async throws {
        do {
            try await until { lock.withLock { contents.allSatisfy { part in lines.contains { $0.contains(part) } } } }
        } catch { throw Missing(description: "not all of \(contents), but: \(lock.withLock { lines.suffix(20) })") }
    }
}

/// Calls a closure with each line that a process writes, on a thread of its own.
func readLines(_ pipe: Pipe, _ handle: @escaping @Sendable (String) -> Void) {
    Thread.detachNewThread { [descriptor = pipe.fileHandleForReading.fileDescriptor] in
        withExtendedLifetime(pipe) {
            guard let file = fdopen(descriptor, "r") else { return }
            var line: UnsafeMutablePointer<CChar>?
            var size = 0
            while true {
                let length = getline(&line, &size, file)
                guard length > 0, let line else { break }
                let bytes = UnsafeRawBufferPointer(start: line, count: length).filter { $0 != 10 }
                handle(String(decoding: bytes, as: UTF8.self))
            }
        }
    }
}

/// A running example.
final class Example {
    private let process = Process()
    private let input = Pipe()
    private let output = Lines()
    private let problems = Lines()

    static func path(_ name: String) -> String {
        URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent().path + "/" + name
    }

    init(
        _ name: String, _ arguments: [String], _ simulator: Simulator?, state: String? = nil,
        environment: [String: String] = [:]
    ) throws {
        process.executableURL = URL(fileURLWithPath: Self.path(name))
        process.arguments = arguments
        process.environment = ProcessInfo.processInfo.environment.merging(
            [
                "DBUS_SYSTEM_BUS_ADDRESS": simulator?.address ?? "unix:path=/nowhere",
                "BLUEZKIT_STATE_DIR": state ?? "/nowhere",
            ]
        ) { $1 }.merging(environment) { $1 }
        let (out, err) = (Pipe(), Pipe())
        (process.standardInput, process.standardOutput, process.standardError) = (input, out, err)
        try process.run()
        for (pipe, lines) in [(out, output), (err, problems)] { readLines(pipe) { lines.add($0) } }
    }

    deinit { stop() }

    func nextLine() async throws -> String { try await output.next() }
    /// BluezKit's own log is not what the example says.
    func nextProblem() async throws -> String { try await problems.next { !$0.contains("[CoreBluetooth]") } }
    func problem(_ matches: (String) -> Bool) async throws -> String { try await problems.next(matches) }
    func expectLines(_ contents: [String]) async throws { try await output.expect(contents) }
    func expectProblems(_ contents: [String]) async throws { try await problems.expect(contents) }

    var processIdentifier: Int32 { process.processIdentifier }

    func type(_ text: String) { input.fileHandleForWriting.write(Data(text.utf8)) }
    func endInput() { try? input.fileHandleForWriting.close() }

    func stop(_ signal: Int32 = SIGTERM) { if process.isRunning { kill(process.processIdentifier, signal) } }

    /// Waits for its end.
    func status() async -> Int32 {
        try? await until { !process.isRunning }
        if process.isRunning {
            stop(SIGKILL)
            return -1
        }
        return process.terminationStatus
    }
}

/// A directory that ends with the test.
final class TemporaryDirectory {
    let path: String

    init() throws {
        path = NSTemporaryDirectory() + "examples-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }
}
