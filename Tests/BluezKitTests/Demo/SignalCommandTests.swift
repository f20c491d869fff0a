import BluezKitSimulator
import Foundation
import Glibc
import Testing

/// What signals do to the demo.
@Suite struct SignalCommandTests {
    private let folder: TemporaryDirectory
    private static let program = URL(fileURLWithPath: Probe.path).deletingLastPathComponent().path + "/bluez-demo"

    init() throws { folder = try TemporaryDirectory() }

    // `nohup` starts a program with SIGHUP ignored, which it answered nevertheless.
    @Test("a signal that is ignored from the start stays ignored")
    func ignoredSignal() async throws {
        let name = folder.path + "/ignoring"
        let file = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0o644)
        defer { close(file) }
        let process = try spawnChild(
            ["/bin/sh", "-c", "trap '' HUP INT; exec \"$0\" simulate --json", Self.program], output: file)
        try await eventually("it runs", within: 4 * world_deadline) {
            FileManager.default.contents(atPath: name)?.isEmpty == false
        }
        for signal in [SIGHUP, SIGINT, SIGTERM] { kill(process, signal) }
        #expect(try await waitForEnd(of: process, "it") == 143 << 8)
    }

    @Test("SIGQUIT has its default action, after the terminal was restored")
    func quitSignal() async throws {
        let name = folder.path + "/quitting"
        let file = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0o644)
        defer { close(file) }
        let process = try spawnChild(
            ["/bin/sh", "-c", "ulimit -c 0; exec \"$0\" simulate --json", Self.program], output: file)
        try await eventually("it runs", within: 4 * world_deadline) {
            FileManager.default.contents(atPath: name)?.isEmpty == false
        }
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
        do {
            try await eventually("the pipe is full", within: 4 * world_deadline) {
                var count: Int32 = 0
                _ = ioctl(ends, UInt(FIONREAD), &count)
                defer { before = count }
                return count > 50_000 && count == before
            }
        } catch {
            killAndWait(process)
            throw error
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
    @Test("SIGTSTP stops a program whose output is not read, and another one once it was continued")
    func stopsUnread() async throws {
        let (process, pipe) = try await startUnread()
        defer { killAndWait(process) }
        for turn in 1...2 {
            kill(process, SIGTSTP)
            try await eventually("it stops, turn \(turn)", within: 4 * world_deadline) {
                var news = siginfo_t()
                waitid(P_PID, id_t(process), &news, WSTOPPED | WEXITED | WNOHANG)
                return news.si_code == CLD_STOPPED
            }
            kill(process, SIGCONT)
        }
        withExtendedLifetime(pipe) {}
    }

    // It sent SIGSTOP to itself, from which nothing could continue it there.
    @Test("SIGTSTP does not stop a program that no shell could continue")
    func orphanedGroup() async throws {
        let name = folder.path + "/orphaned"
        let file = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0o644)
        defer { close(file) }
        let process = try spawnChild(["/usr/bin/setsid", Self.program, "simulate", "--json"], output: file)
        try await eventually("it runs", within: 4 * world_deadline) {
            FileManager.default.contents(atPath: name)?.isEmpty == false
        }
        kill(process, SIGTSTP)
        kill(process, SIGTERM)
        #expect(try await waitForEnd(of: process, "it") == 143 << 8)
    }
}
