import BluezKitSimulator
import Foundation
import Glibc
import Testing

/// What signals do to the demo.
@Suite struct SignalCommandTests {
    private let folder: TemporaryDirectory
    private static let program = URL(fileURLWithPath: Probe.path).deletingLastPathComponent().path + "/bluez-demo"

    init() throws { folder = try TemporaryDirectory() }

    /// Starts the demo through another program, and waits until it runs.
    private func startRunning(_ words: [String]) async throws -> pid_t {
        let name = folder.path + "/running"
        let file = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0o644)
        defer { close(file) }
        let process = try spawnChild(words, output: file)
        try await wait(until: "it runs", process) { FileManager.default.contents(atPath: name)?.isEmpty == false }
        return process
    }

    /// Waits until something is so, and kills the program if it is not.
    private func wait(until what: String, _ process: pid_t, _ condition: () async throws -> Bool) async throws {
        do {
            try await eventually(what, within: 4 * world_deadline, condition)
        } catch {
            killAndWait(process)
            throw error
        }
    }

    // `nohup` starts a program with SIGHUP ignored, which it answered nevertheless.
    @Test("a signal that is ignored from the start stays ignored")
    func ignoredSignal() async throws {
        let process = try await startRunning(
            ["/bin/sh", "-c", "trap '' HUP INT; exec \"$0\" simulate --json", Self.program])
        for signal in [SIGHUP, SIGINT, SIGTERM] { kill(process, signal) }
        #expect(try await waitForEnd(of: process, "it") == 143 << 8)
    }

    @Test("SIGQUIT has its default action, after the terminal was restored")
    func quitSignal() async throws {
        let process = try await startRunning(
            ["/bin/sh", "-c", "ulimit -c 0; exec \"$0\" simulate --json", Self.program])
        kill(process, SIGQUIT)
        #expect(try await waitForEnd(of: process, "it") & 0x7F == SIGQUIT)
    }

    // It was ignored from the start until Dispatch handled it, and lost if it came in between.
    @Test("a signal at any moment of its start ends a program")
    func earlySignal() async throws {
        let null = open("/dev/null", O_WRONLY | O_CLOEXEC)
        defer { close(null) }
        for moment in 0..<60 {
            let process = try spawnChild([Self.program, "simulate", "--json"], output: null)
            let arrival = ContinuousClock.now + .microseconds(400 * moment)
            while ContinuousClock.now < arrival {}
            kill(process, SIGTERM)
            #expect([SIGTERM, 143 << 8].contains(try await waitForEnd(of: process, "it, at moment \(moment)")))
        }
    }

    /// Starts a command that waits for the reader of its output.
    private func startUnread() async throws -> (process: pid_t, pipe: FileHandle) {
        let (pipe, trace) = (folder.path + "/pipe", folder.path + "/long")
        try #require(mkfifo(pipe, 0o600) == 0)
        try String(repeating: CommandTests.trace, count: 5000).write(toFile: trace, atomically: true, encoding: .utf8)
        // Both ends, so that there is a reader.
        let ends = open(pipe, O_RDWR | O_CLOEXEC)
        try #require(ends >= 0)
        let handle = FileHandle(fileDescriptor: ends, closeOnDealloc: true)
        // A group of its own, as a shell gives to a job.
        let process = try spawnChild([Self.program, "trace", trace], output: ends, hasOwnGroup: true)
        var before: Int32 = 0
        try await wait(until: "the pipe is full", process) {
            var count: Int32 = 0
            _ = ioctl(ends, UInt(FIONREAD), &count)
            defer { before = count }
            return count > 50_000 && count == before
        }
        return (process, handle)
    }

    // Signals were answered by the queue that writes, which waited for the reader: only SIGKILL ended the program.
    // Slow: it has five seconds to end cleanly.
    @Test("SIGTERM ends a program whose output is not read")
    func unreadOutput() async throws {
        let (process, pipe) = try await startUnread()
        kill(process, SIGTERM)
        #expect(try await waitForEnd(of: process, "it") == 143 << 8)
        withExtendedLifetime(pipe) {}
    }

    // The same of Ctrl-Z: the shell waited for a job of which the reader alone had stopped.
    @Test("SIGTSTP stops a program whose output is not read")
    func stopsUnread() async throws {
        let (process, pipe) = try await startUnread()
        defer { killAndWait(process) }
        kill(process, SIGTSTP)
        try await eventually("it stops", within: 4 * world_deadline) {
            var news = siginfo_t()
            waitid(P_PID, id_t(process), &news, WSTOPPED | WNOHANG)  // not WEXITED, which would free the number
            return news.si_code == CLD_STOPPED
        }
        withExtendedLifetime(pipe) {}
    }

    /// Whether a signal that was sent to a process, or to one of its threads, was not taken yet.
    private func isPending(_ signal: Int32, _ process: pid_t) -> Bool {
        let tasks = "/proc/\(process)/task"
        return ((try? FileManager.default.contentsOfDirectory(atPath: tasks)) ?? []).contains { task in
            let status = (try? String(contentsOfFile: "\(tasks)/\(task)/status", encoding: .utf8)) ?? ""
            let lines = status.split(separator: "\n").filter { $0.hasPrefix("SigPnd:") || $0.hasPrefix("ShdPnd:") }
            return lines.contains { line in
                let signals = UInt64(line.dropFirst(7).trimmingCharacters(in: .whitespaces), radix: 16) ?? 0
                return signals >> UInt64(signal - 1) & 1 == 1
            }
        }
    }

    // It sent SIGSTOP to itself, from which nothing could continue it there.
    @Test("SIGTSTP does not stop a program that no shell could continue")
    func orphanedGroup() async throws {
        let process = try await startRunning(["/usr/bin/setsid", Self.program, "simulate", "--json"])
        kill(process, SIGTSTP)
        // Dispatch reads each signal from a descriptor of its own: of two that wait, either may come first.
        try await wait(until: "it has taken SIGTSTP", process) { !isPending(SIGTSTP, process) }
        kill(process, SIGTERM)
        #expect(try await waitForEnd(of: process, "it") == 143 << 8)
    }
}
