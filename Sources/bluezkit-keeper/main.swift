import BluezDBus
import BluezKit
import Dispatch
import Foundation

let usage = """
    bluezkit-keeper: Bluetooth continues for apps that are not running.

    USAGE: bluezkit-keeper [--detach] [--replace | --replace-older]

    Apps with BluezKit that ask for a keeper (BluezManagerOptionKeeperKey) start it when they need it, and it ends when
    none does. For apps that are units of systemd, have systemd start it (Packaging/systemd in the source): otherwise it
    is a part of the unit that has started it, and ends with that.

      --detach         begin, and return when it listens
      --replace        end the one that runs first, unless it is newer, or started by systemd: apps hear what a restart
                       of bluetoothd tells them, and what is done for those that are not running is begun again
      --replace-older  the same, but only if it is older
      --help           this text
      --version        the version of the connection between it and apps

    ENVIRONMENT
      XDG_RUNTIME_DIR          it listens at bluezkit/keeper in there
      BLUEZKIT_KEEPER_SOCKET   or here
      BLUEZKIT_LOG=debug       says what it asks of BlueZ
    """

func fail(_ text: String, status: Int32 = 1) -> Never {
    FileHandle.standardError.write(Data("bluezkit-keeper: \(text)\n".utf8))
    exit(status)
}

/// There is no more use in it: no app reaches it any more.
@Sendable func end(_ reason: String) {
    BluezKitLog.handler(.warning, "this keeper ends: \(reason)")
    exit(0)
}

/// Starts this program as one that outlives the terminal, and waits until it listens.
func detach() throws {
    var pid: pid_t = 0
    var ready: [Int32] = [0, 0]
    guard pipe(&ready) == 0 else { throw POSIXError(.EMFILE) }
    let words: [UnsafeMutablePointer<CChar>?] = [
        strdup("bluezkit-keeper"), strdup("--ready"), strdup("\(ready[1])"), nil,
    ]
    let result = posix_spawn(&pid, "/proc/self/exe", nil, nil, words, environ)
    guard result == 0 else { throw POSIXError(POSIXErrorCode(rawValue: result) ?? .ENOEXEC) }
    close(ready[1])
    var byte: UInt8 = 0
    guard read(ready[0], &byte, 1) == 1 else { exit(1) }  // it has said why
}

/// Programs that list processes show the name, which is that of the link by which it was started.
func nameProcess() {
    let name = open("/proc/self/comm", O_WRONLY | O_CLOEXEC)
    _ = write(name, "bluezkit-keeper", 15)
    close(name)
}

/// Nothing of the program that has started this one is kept open; the log goes to the system's.
func leaveTerminal() {
    let null = open("/dev/null", O_RDWR)
    for descriptor: Int32 in 0...2 { dup2(null, descriptor) }
    if null > 2 { close(null) }
    openlog("bluezkit-keeper", LOG_PID, LOG_USER)
    BluezKitLog.handler = { level, text in
        withVaList([text]) { vsyslog(level == .debug ? LOG_DEBUG : LOG_WARNING, "%s", $0) }
    }
}

/// The socket, if systemd has made it, and has started this because an app has connected (sd_listen_fds(3)).
func givenSocket() -> Int32? {
    let count = environment("LISTEN_PID") == "\(getpid())" ? environment("LISTEN_FDS").flatMap { Int($0) } : nil
    // Neither it nor these are for the apps that this starts.
    for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"] { unsetenv(name) }
    guard let count, count > 0, fcntl(3, F_SETFD, FD_CLOEXEC) == 0 else { return nil }
    return 3
}

/// Closes what the program that has started this one has left open.
func closeOthers(but ready: Int32?) {
    let names = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []
    for descriptor in names.compactMap({ Int32($0) }) where descriptor > 2 && descriptor != ready { close(descriptor) }
}

/// Where it will listen: in a directory that only this user can write to.
func preparedPath() throws -> String {
    guard let path = Keeper.path else { fail("XDG_RUNTIME_DIR is not set, or not absolute") }
    try Keeper.makeDirectory(of: path)
    return path
}

func run(ready: Int32?) throws -> Never {
    let path = try preparedPath()
    let socket = givenSocket()
    let makesWay: @Sendable () -> Void = { end("another one takes its place") }
    let host = KeeperHost(journal: KeeperJournal(socket: path), replaced: socket == nil ? makesWay : nil)
    let isOnly: Bool
    if let socket {
        // One that an app has started before this socket was there notices that, and ends.
        isOnly = try Keeper.claim(path, waits: true)
        host.resume()
        host.listen(on: socket)
    } else {
        isOnly = try Keeper.claim(path) && !(try Keeper.isServed(path))
        if isOnly {
            host.resume()
            try Keeper.listen(at: path, for: host) { end("\(path), where it has listened, is gone") }
        }
    }
    if let ready {
        leaveTerminal()
        _ = write(ready, "!", 1)
        close(ready)
    }
    guard isOnly else {
        if ready == nil { fail("another one listens at \(path)") }
        exit(0)
    }
    host.whenIdle(for: .seconds(10)) { exit(0) }
    dispatchMain()
}

func misunderstood() -> Never {
    fail("\(words.joined(separator: " ")) is not understood; --help shows what is", status: 64)
}

signal(SIGPIPE, SIG_IGN)
signal(SIGCHLD, SIG_IGN)
umask(0o077)
let words = Array(CommandLine.arguments.dropFirst())
do {
    switch words.first {
    case nil, "--detach", "--replace", "--replace-older":
        guard Set(words).isSubset(of: ["--detach", "--replace", "--replace-older"]) else { misunderstood() }
        if words.contains(where: { $0 != "--detach" }) {
            _ = try preparedPath()
            try Keeper.endRunning(ifOlder: !words.contains("--replace"))
        }
        if words.contains("--detach") { try detach() } else { try run(ready: nil) }
    case "--ready" where words.count == 2:
        setsid()
        nameProcess()
        closeOthers(but: Int32(words[1]))
        chdir("/")
        try run(ready: Int32(words[1]))
    case "--help" where words.count == 1, "-h" where words.count == 1: print(usage)
    case "--version" where words.count == 1: print("bluezkit-keeper \(Keeper.version)")
    default: misunderstood()
    }
} catch { fail(error.localizedDescription) }
