import CBluezL2CAP
import Foundation

/// Starts a program, without a shell, with no input and with this process's output. Not Foundation's `Process`, which
/// waits for all that have inherited its descriptors.
/// - Parameters:
///   - words: Its path, and its arguments.
///   - directory: Where it runs; nil: where this process does.
///   - environment: All of its environment; nil: that of this process.
func spawn(
    _ words: [String], directory: String? = nil, environment: [String: String]? = nil
) throws(POSIXError) -> pid_t {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
    if let directory { cl2cap_spawn_in(&actions, directory) }
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    // Threads of a dispatch queue block all signals, which a child would inherit; likewise those that are ignored.
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF))
    var signals = sigset_t()
    sigemptyset(&signals)
    posix_spawnattr_setsigmask(&attributes, &signals)
    for signal in [SIGHUP, SIGINT, SIGTERM, SIGPIPE, SIGXFSZ, SIGCHLD] { sigaddset(&signals, signal) }
    posix_spawnattr_setsigdefault(&attributes, &signals)
    var arguments: [UnsafeMutablePointer<CChar>?] = words.map { strdup($0) } + [nil]
    var variables: [UnsafeMutablePointer<CChar>?] = (environment ?? [:]).map { strdup("\($0)=\($1)") } + [nil]
    defer { for text in arguments + variables { free(text) } }
    var pid: pid_t = 0
    let program = words.first ?? ""
    let result =
        environment == nil
        ? posix_spawn(&pid, program, &actions, &attributes, &arguments, environ)
        : posix_spawn(&pid, program, &actions, &attributes, &arguments, &variables)
    guard result == 0 else { throw POSIXError(POSIXErrorCode(rawValue: result) ?? .ENOEXEC) }
    return pid
}
