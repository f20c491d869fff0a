package import Foundation
import Glibc

/// Starts a program, without a shell. Not Foundation's `Process`: it waits for all programs that have inherited its
/// descriptors, and a child that it starts from a thread of a dispatch queue has all signals blocked.
/// - Parameters:
///   - words: Its name, and its arguments.
///   - program: Its path; nil: the first word.
///   - input: What it has as standard input; nil: that of this process.
///   - output: What it has as standard output; nil: that of this process.
///   - environment: All of its environment; nil: that of this process.
///   - hasOwnGroup: Whether it is no part of this process's group: Ctrl-C in a terminal does not reach it.
///   - prepare: Adds further descriptors.
package func spawnChild(
    _ words: [String], program: String? = nil, input: Int32? = nil, output: Int32? = nil,
    environment: [String: String]? = nil, hasOwnGroup: Bool = false,
    prepare: (inout posix_spawn_file_actions_t) -> Void = { _ in }
) throws(SpawnFailure) -> pid_t {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    if let input { posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO) }
    if let output { posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO) }
    prepare(&actions)
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    // No blocked signals: threads of a dispatch queue block them all, and a child would inherit that. None that are
    // ignored either: a shell starts a job in the background with SIGINT and SIGQUIT ignored, and others start one with
    // SIGPIPE ignored.
    var flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF
    if hasOwnGroup { flags |= POSIX_SPAWN_SETPGROUP }
    posix_spawnattr_setflags(&attributes, Int16(flags))
    var signals = sigset_t()
    sigemptyset(&signals)
    posix_spawnattr_setsigmask(&attributes, &signals)
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGXFSZ, SIGTSTP] { sigaddset(&signals, signal) }
    posix_spawnattr_setsigdefault(&attributes, &signals)
    var arguments: [UnsafeMutablePointer<CChar>?] = words.map { strdup($0) } + [nil]
    var variables: [UnsafeMutablePointer<CChar>?] = (environment ?? [:]).map { strdup("\($0)=\($1)") } + [nil]
    defer { for text in arguments + variables { free(text) } }
    let path = program ?? words.first ?? ""
    var pid: pid_t = 0
    let result =
        environment == nil
        ? posix_spawn(&pid, path, &actions, &attributes, &arguments, environ)
        : posix_spawn(&pid, path, &actions, &attributes, &arguments, &variables)
    guard result == 0 else { throw SpawnFailure(description: "\(path): \(String(cString: strerror(result)))") }
    return pid
}

/// Reads lines of UTF-8 until the end, and closes `descriptor`. Not by a `FILE`: since glibc 2.41 `exit` waits for the
/// thread that reads from one.
package func readLines(of descriptor: Int32, _ receive: (String) -> Void) {
    defer { close(descriptor) }
    var buffer = [UInt8](repeating: 0, count: 4096)
    var line: [UInt8] = []
    while true {
        let count = read(descriptor, &buffer, buffer.count)
        if count < 0, errno == EINTR { continue }
        guard count > 0 else { break }
        var rest = buffer[..<count]
        while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
            receive(String(decoding: line + rest[..<end], as: UTF8.self).trimmingCharacters(in: .newlines))
            line = []
            rest = rest[(end + 1)...]
        }
        line += rest
    }
    if !line.isEmpty { receive(String(decoding: line, as: UTF8.self)) }
}

/// Why a program could not be started.
package struct SpawnFailure: Error, CustomStringConvertible {
    package let description: String
    package init(description: String) { self.description = description }
}

/// Two connected sockets. Sockets, because they can be created close-on-exec in one step: a child that another thread
/// starts must not inherit them.
func socketPair() -> (Int32, Int32)? {
    var ends: [Int32] = [-1, -1]
    let kind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
    return socketpair(AF_UNIX, kind, 0, &ends) == 0 ? (ends[0], ends[1]) : nil
}
