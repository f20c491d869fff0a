import Foundation
import Glibc
import Testing

/// `bluezkit-keeper`, in its own process and with a socket of its own.
final class KeeperProcess: Sendable {
    let socket: String
    private let directory: TemporaryDirectory
    private let pid: pid_t

    init() async throws {
        directory = try TemporaryDirectory()
        socket = directory.path + "/keeper"
        let program = URL(fileURLWithPath: Probe.path).deletingLastPathComponent().path + "/bluezkit-keeper"
        pid = try spawn(["/usr/bin/env", "BLUEZKIT_KEEPER_SOCKET=\(socket)", program])
        try await eventually("the keeper listens") { access(self.socket, F_OK) == 0 }
    }

    func kill() { Glibc.kill(pid, SIGKILL) }

    deinit {
        killAndWait(pid)
        // Apps start another one in its place.
        for line in (try? String(contentsOfFile: socket + ".lock", encoding: .utf8))?.split(separator: "\n") ?? [] {
            pid_t(line).map { _ = Glibc.kill($0, SIGKILL) }
        }
    }
}
