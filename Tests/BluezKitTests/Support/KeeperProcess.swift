import BluezKitSimulator
import Foundation
import Glibc
import Synchronization
import Testing

/// `bluezkit-keeper`, in its own process and with a socket of its own.
final class KeeperProcess: Sendable {
    let socket: String
    private let directory: TemporaryDirectory
    private let process = Mutex<pid_t>(0)

    /// - Parameter point: At which of its system calls it is killed; nil: at none.
    init(killedAt point: Int? = nil) async throws {
        directory = try TemporaryDirectory()
        socket = directory.path + "/keeper"
        try await start(point.map { [Probe.killer, "+\($0)"] } ?? [])
    }

    private func start(_ launcher: [String] = []) async throws {
        let program = URL(fileURLWithPath: Probe.path).deletingLastPathComponent().path + "/bluezkit-keeper"
        let words = ["/usr/bin/env", "BLUEZKIT_KEEPER_SOCKET=\(socket)"] + launcher + [program]
        let output = open(directory.path + "/output", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        defer { close(output) }
        let pid = try spawnChild(words, output: output)
        process.withLock { $0 = pid }
        try await eventually("the keeper listens") { [self] in
            access(socket, F_OK) == 0 || !launcher.isEmpty && hasEnded(pid)
        }
    }

    private func hasEnded(_ pid: pid_t) -> Bool {
        var found = siginfo_t()
        return waitid(P_PID, id_t(pid), &found, WEXITED | WNOHANG | WNOWAIT) == 0 && found.si_signo == SIGCHLD
    }

    /// Ends it in order. - Returns: how many system calls it has made (`kill-at`).
    func calls() async throws -> Int {
        let keeper = try String(contentsOfFile: socket + ".lock", encoding: .utf8).split(separator: "\n").last
        Glibc.kill(try #require(keeper.flatMap { pid_t($0) }), SIGTERM)
        _ = try await waitForEnd(of: process.withLock { $0 }, "kill-at")
        let output = try String(contentsOfFile: directory.path + "/output", encoding: .utf8)
        return try #require(output.split(separator: " ").last.flatMap { Int($0.trimmingCharacters(in: .newlines)) })
    }

    /// It does nothing until it is resumed.
    func pause() { Glibc.kill(process.withLock { $0 }, SIGSTOP) }
    func resume() { Glibc.kill(process.withLock { $0 }, SIGCONT) }
    func kill() { Glibc.kill(process.withLock { $0 }, SIGKILL) }

    /// It is killed, and there is another one.
    func restart() async throws {
        killAndWait(process.withLock { $0 })
        unlink(socket)
        try await start()
    }

    deinit {
        killAndWait(process.withLock { $0 })
        // Apps start another one in its place.
        for line in (try? String(contentsOfFile: socket + ".lock", encoding: .utf8))?.split(separator: "\n") ?? [] {
            pid_t(line).map { _ = Glibc.kill($0, SIGKILL) }
        }
    }
}
