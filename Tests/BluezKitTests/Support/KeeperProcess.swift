import Foundation
import Glibc
import Synchronization
import Testing

/// `bluezkit-keeper`, in its own process and with a socket of its own.
final class KeeperProcess: Sendable {
    let socket: String
    private let directory: TemporaryDirectory
    private let process = Mutex<pid_t>(0)

    init() async throws {
        directory = try TemporaryDirectory()
        socket = directory.path + "/keeper"
        try await start()
    }

    private func start() async throws {
        let program = URL(fileURLWithPath: Probe.path).deletingLastPathComponent().path + "/bluezkit-keeper"
        let pid = try spawn(["/usr/bin/env", "BLUEZKIT_KEEPER_SOCKET=\(socket)", program])
        process.withLock { $0 = pid }
        try await eventually("the keeper listens") { access(self.socket, F_OK) == 0 }
    }

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
