import BluezDBus
public import Foundation
import Synchronization

/// An app in a process of its own, for tests that kill it and start it again: on a simulator's bus, with a directory
/// for its preserved state.
///
/// ```swift
/// let app = try TestApp("pulse-logger", on: simulator)  // an executable of this package
/// try await app.nextLine(containing: "connected")
/// try await app.restart()  // killed, and started again
/// try await app.nextLine(containing: "restored")
/// ```
/// The app gets the simulator's bus by `DBUS_SYSTEM_BUS_ADDRESS`, and the directory by `BLUEZKIT_STATE_DIR`, so it
/// needs no preparation. It prints what the test is to know; a program whose output is a pipe must flush it
/// (`FileHandle.standardOutput.write` does). Its standard error is that of the test.
///
/// It is killed when this is released, and when the process of the test ends, however that ends.
///
/// In place of Foundation's `Process`: a child that `Process` starts from a task or a dispatch queue has all signals
/// blocked, so that SIGTERM and Ctrl-C have no effect on it.
public final class TestApp: Sendable {
    /// How a process has ended.
    public enum Ending: Hashable, Sendable {
        /// By `exit`, or at the end of `main`; with its status.
        case exited(Int32)
        /// By a signal, such as SIGKILL or SIGTRAP.
        case signalled(Int32)
    }

    /// What has not happened.
    public enum Failure: Error, CustomStringConvertible {
        /// There is no such program, or it cannot be started; with the cause.
        case notStarted(String)
        /// The awaited line did not come in time; with the last lines.
        case noLine(String, last: [String])
        /// The app has ended before the awaited line came; with the last lines.
        case ended(String, last: [String])
        /// The app did not end in time.
        case stillRunning

        /// What, in words.
        public var description: String {
            switch self {
            case .notStarted(let cause): "the app was not started: \(cause)"
            case .noLine(let what, let last): "the app has not printed \(what) in time; its last lines: \(last)"
            case .ended(let what, let last): "the app has ended without printing \(what); its last lines: \(last)"
            case .stillRunning: "the app has not ended in time"
            }
        }
    }

    /// Where it preserves its state.
    public let stateDirectory: URL
    private let words: [String]
    private let environment: [String: String]
    private let ownsDirectory: Bool
    private let child: Mutex<ChildProcess>

    /// Starts an app.
    /// - Parameters:
    ///   - program: Its path, or only the name of an executable that is built next to the tests.
    ///   - arguments: Its arguments.
    ///   - simulator: Whose bus it gets.
    ///   - environment: Variables that it gets in addition to those of this process.
    ///   - stateDirectory: Where it preserves its state; nil: a new directory, which is removed when this is released.
    /// - Throws: ``Failure/notStarted(_:)``
    public init(
        _ program: String, arguments: [String] = [], on simulator: Simulator, environment: [String: String] = [:],
        stateDirectory: URL? = nil
    ) throws {
        let path = program.contains("/") ? program : Self.productsDirectory.appendingPathComponent(program).path
        words = [path] + arguments
        ownsDirectory = stateDirectory == nil
        let directory =
            stateDirectory
            ?? FileManager.default.temporaryDirectory.appendingPathComponent("test-app-\(UUID().uuidString)")
        self.stateDirectory = directory
        do {
            try FileManager.default.createDirectory(
                at: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        } catch { throw Failure.notStarted("\(directory.path): \(error.localizedDescription)") }
        self.environment =
            ownEnvironment
            .merging(["DBUS_SYSTEM_BUS_ADDRESS": simulator.address, "BLUEZKIT_STATE_DIR": directory.path]) { $1 }
            .merging(environment) { $1 }
        child = Mutex(try ChildProcess(words, self.environment))
    }

    deinit {
        current.kill()
        if ownsDirectory { try? FileManager.default.removeItem(at: stateDirectory) }
    }

    /// Where the package's executables are built: next to its tests.
    public static var productsDirectory: URL {
        // The test bundle is the program itself, or what `swift test` gives to its own as an argument.
        let bundle = CommandLine.arguments.first { $0.hasSuffix(".xctest") } ?? CommandLine.arguments[0]
        return URL(fileURLWithPath: bundle).deletingLastPathComponent()
    }

    private var current: ChildProcess { child.withLock { $0 } }

    // MARK: Its life

    /// The process that was started last.
    public var processIdentifier: Int32 { current.pid }

    /// Whether that has not ended.
    public var isRunning: Bool { current.ending == nil }

    /// Kills it, as SIGKILL does, and waits until it has ended.
    public func kill() async {
        current.kill()
        _ = await current.waitForEnd(within: nil)
    }

    /// Asks it to end, as `kill` and systemd do, by SIGTERM; another signal may be chosen. Waits until it has ended.
    /// - Throws: ``Failure/stillRunning`` if it has not within `limit`.
    @discardableResult
    public func terminate(_ signal: Int32 = SIGTERM, within limit: Duration = .seconds(20)) async throws -> Ending {
        current.send(signal: signal)
        return try await waitForEnd(within: limit)
    }

    /// Waits until it ends on its own.
    /// - Throws: ``Failure/stillRunning`` if it has not within `limit`.
    @discardableResult
    public func waitForEnd(within limit: Duration = .seconds(20)) async throws -> Ending {
        guard let ending = await current.waitForEnd(within: limit) else { throw Failure.stillRunning }
        return ending
    }

    /// Kills it if it is running, and starts it again, with the same arguments and the same state.
    /// - Throws: ``Failure/notStarted(_:)``
    public func restart() async throws {
        await kill()
        let next = try ChildProcess(words, environment)
        child.withLock { $0 = next }
    }

    // MARK: What it prints and reads

    /// The lines that the present process has printed so far.
    public var output: [String] { current.lines }

    /// The next line of the present process, after those that were taken before, that contains a text; those before it
    /// are skipped.
    /// - Parameters:
    ///   - text: A part of the line.
    ///   - limit: How long to wait for it, in real time.
    /// - Throws: ``Failure/noLine(_:last:)``, ``Failure/ended(_:last:)``
    @discardableResult
    public func nextLine(containing text: String = "", within limit: Duration = .seconds(20)) async throws -> String {
        let child = current
        if let line = await child.nextLine(within: limit, where: { text.isEmpty || $0.contains(text) }) { return line }
        let (what, last) = (text.isEmpty ? "a line" : "'\(text)'", Array(child.lines.suffix(8)))
        throw child.hasNoMoreLines ? Failure.ended(what, last: last) : Failure.noLine(what, last: last)
    }

    /// The lines of the present process, after those that were taken before. The sequence ends with the process, and
    /// keeps this until then.
    /// - Parameter limit: How long to wait for each line, in real time. Then it throws ``Failure/noLine(_:last:)``.
    public func lines(within limit: Duration = .seconds(20)) -> AsyncThrowingStream<String, any Error> {
        let child = current
        return AsyncThrowingStream { [self] in
            defer { withExtendedLifetime(self) {} }
            if let line = await child.nextLine(within: limit, where: { _ in true }) { return line }
            if child.hasNoMoreLines { return nil }
            throw Failure.noLine("a line", last: Array(child.lines.suffix(8)))
        }
    }

    /// Writes a line to its standard input. If it does not read any more, the line is lost.
    public func send(_ line: String) { current.send(line: line) }
}
