import Glibc

/// Kills a process when this one ends, however it ends: a shell reads what only this process can write. It ends when
/// this is released.
final class Lifeline: Sendable {
    private let shell: pid_t
    private let end: Int32

    private static let script = "read process; read end || kill -9 $process 2>/dev/null"

    init() throws(SpawnFailure) {
        guard let pair = socketPair() else { throw SpawnFailure(description: String(cString: strerror(errno))) }
        defer { close(pair.0) }
        do throws(SpawnFailure) {
            // A group of its own: Ctrl-C in a terminal would end the shell before its work is done.
            shell = try spawnChild(["/bin/sh", "-c", Self.script], input: pair.0, hasOwnGroup: true)
        } catch {
            close(pair.1)
            throw error
        }
        end = pair.1
    }

    deinit {
        kill(shell, SIGKILL)
        waitpid(shell, nil, 0)
        close(end)
    }

    /// - Parameter process: A child of this process. It must not have been waited for when this is released.
    func tie(_ process: pid_t) {
        let line = Array("\(process)\n".utf8)
        _ = send(end, line, line.count, Int32(MSG_NOSIGNAL))
    }
}
