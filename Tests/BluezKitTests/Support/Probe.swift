import BluezKit
import BluezKitSimulator
import BluezDBus
import Foundation
import Glibc
import Testing

/// Kills a program that a test has started, when bluetoothd has handled its calls. The status must be fetched: an exit
/// test waits for any child, and would find this one again and again in place of its own.
func killAndWait(_ process: pid_t) {
    waitForBluetoothd()
    kill(process, SIGKILL)
    waitpid(process, nil, 0)
}

/// In the rig, waits until bluetoothd has handled what programs have asked of it so far: what it handles after their
/// end it keeps, and that would be in the way of all tests that follow (see Docs/BLUEZ-REPORTS.md).
func bluetoothdHandlesCalls() async {
    guard Worlds.isRig else { return }
    _ = try? await Peer.named(.system).call(
        "org.bluez", "/", "org.freedesktop.DBus.Peer", "Ping", deadline: .seconds(5))
}

/// `bluetoothdHandlesCalls()` where nothing can be awaited.
func waitForBluetoothd() {
    guard Worlds.isRig else { return }
    let ping = try? spawnChild([
        "/usr/bin/dbus-send", "--system", "--print-reply=literal", "--reply-timeout=5000", "--dest=org.bluez", "/",
        "org.freedesktop.DBus.Peer.Ping",
    ])
    if let ping { waitpid(ping, nil, 0) }
}

/// Starts a program and waits for its end.
/// - Returns: The status that `waitpid` gives.
func run(_ words: [String], within seconds: Double = 5 * world_deadline) async throws -> Int32 {
    try await waitForEnd(of: spawnChild(words), words.joined(separator: " "), within: seconds)
}

/// Waits for the end of a program, and kills it when the time is over or the test is.
/// - Returns: The status that `waitpid` gives.
func waitForEnd(of process: pid_t, _ name: String, within seconds: Double = 5 * world_deadline) async throws -> Int32 {
    var status: Int32 = 0
    do {
        try await eventually("\(name) has ended", within: seconds) { waitpid(process, &status, WNOHANG) != 0 }
    } catch {
        killAndWait(process)
        throw error
    }
    return status
}

/// `restoration-probe`, an app in its own process, or `glib-probe`: controlled line by line, and killed without
/// warning.
final class Probe: Sendable {
    let pid: pid_t
    private let input: Int32
    private let lines = EventLog<String>()
    private let ended = EventLog<Int32>()

    /// Where the tests were built, and the programs that they start. The test bundle is the program itself, or what
    /// `swift test` gives to its own as an argument.
    static let directory: String = {
        let bundle = CommandLine.arguments.first { $0.hasSuffix(".xctest") } ?? CommandLine.arguments[0]
        return URL(fileURLWithPath: bundle).deletingLastPathComponent().path
    }()

    /// The program, or another build of it.
    static let path = ProcessInfo.processInfo.environment["BLUEZKIT_PROBE"] ?? directory + "/restoration-probe"

    /// `glib-probe`, a program with a GLib main loop.
    static let glib = URL(fileURLWithPath: path).deletingLastPathComponent().path + "/glib-probe"

    /// `kill-at`, which ends it at a system call.
    static let killer = URL(fileURLWithPath: path).deletingLastPathComponent().path + "/kill-at"

    /// Whether the central probes are apps with CoreBluetoothAsync: every scenario of theirs has one source for both
    /// (BLUEZKIT_API).
    static let isAsync = ProcessInfo.processInfo.environment["BLUEZKIT_API"] == "async"

    /// A scenario about something that CoreBluetoothAsync does not have.
    static func onlyCallbacks(_ why: Comment) -> ConditionTrait { .enabled(if: !isAsync, why) }

    /// - Parameters:
    ///   - launcher: What runs it, if not itself: a program and its arguments.
    ///   - program: The program, if not `restoration-probe`.
    convenience init(
        _ world: any World, _ arguments: [String], launcher: [String] = [], program: String = Probe.path
    ) throws {
        let bus = world.managerOptions[BluezManagerOptionBusAddressKey] as? String
        let api = Self.isAsync && program == Probe.path ? ["--async"] : []
        try self.init(launcher + [program] + api + (bus.map { ["--bus", $0] } ?? []) + arguments)
    }

    private init(_ words: [String]) throws {
        guard access(words[0], X_OK) == 0 else {
            throw SpawnFailure(
                description: "no \(words[0]): it takes BLUEZKIT_TOOLS=1 swift build --build-tests, as in scripts/test")
        }
        var toChild: [Int32] = [-1, -1], fromChild: [Int32] = [-1, -1]
        // Sockets, as they can be made close-on-exec in one step.
        let kind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, kind, 0, &toChild) == 0, socketpair(AF_UNIX, kind, 0, &fromChild) == 0 else {
            throw SpawnFailure(description: "no socket")
        }
        defer {
            close(toChild[0])
            close(fromChild[1])
        }
        let child = try spawnChild(words, input: toChild[0], output: fromChild[1])
        (pid, input) = (child, toChild[1])
        let (lines, ended, output, pid) = (lines, ended, fromChild[0], child)
        Thread.detachNewThread {
            readLines(of: output, lines.append)
            lines.append(Self.endLine)
            var status: Int32 = 0
            waitpid(pid, &status, 0)
            ended.append(status)
        }
    }

    deinit {
        waitForBluetoothd()
        Glibc.kill(pid, SIGKILL)
        close(input)
    }

    func send(_ line: String) {
        let bytes = [UInt8]((line + "\n").utf8)
        // It may have exited already; that must not end this process.
        _ = bytes.withUnsafeBytes { Glibc.send(input, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
    }

    /// SIGKILL, and waits until the process has exited.
    func kill() async throws {
        await bluetoothdHandlesCalls()
        Glibc.kill(pid, SIGKILL)
        try await waitForEnd()
    }

    /// - Returns: The status that `waitpid` gives.
    @discardableResult
    func waitForEnd() async throws -> Int32 { try await ended.next("end of the probe") { $0 } }

    var all: [String] { lines.all }

    /// The next line, after those that were taken already, that begins with `start` and has all `parts`.
    @discardableResult
    func next(_ start: String, _ parts: String..., within seconds: Double = world_deadline) async throws -> String {
        try await lines.next(([start] + parts).joined(separator: " … "), within: seconds) { line in
            line.hasPrefix(start) && parts.allSatisfy(line.contains) ? line : nil
        }
    }

    /// The next line with each of these starts: in this order, except with CoreBluetoothAsync, which has a sequence for
    /// each kind of event, and no order between two of them.
    func nextOfEach(_ starts: [String]) async throws {
        guard Self.isAsync else {
            for start in starts { try await next(start) }
            return
        }
        var missing = starts
        try await lines.next("\(starts), in any order") { line -> Bool? in
            missing.removeAll(where: line.hasPrefix)
            return missing.isEmpty ? true : nil
        }
    }

    /// The next line with one of these starts; nil: the process has ended before one came.
    func nextOrEnd(_ starts: String...) async throws -> String? {
        let line = try await lines.next("\(starts), or the end") { line in
            starts.contains(where: line.hasPrefix) || line == Self.endLine ? line : nil
        }
        return line == Self.endLine ? nil : line
    }

    private static let endLine = "(the end)"

    /// The current state of its objects.
    func now() async throws -> String {
        send("tell")
        return try await next("now")
    }

    /// The first callbacks' names, in order: `restored`, `state`, …
    var callbacks: [String] {
        let others: Set = ["begin", "end", "log", "now", "report", "identifiers", "discarded"]
        return all.map { String($0.prefix { $0 != " " }) }.filter { !others.contains($0) }
    }
}
