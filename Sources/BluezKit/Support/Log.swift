import BluezDBus
import Foundation
import Synchronization

/// **BluezKit addition.** The destination and the level of the library's log.
///
/// On Apple platforms CoreBluetooth writes to the system log. Here each line goes to standard error as
/// `[CoreBluetooth] …`, unless ``handler`` is set. The texts are for people and may change.
public enum BluezKitLog {
    /// The importance of a line. Each level includes those after it.
    public enum Level: Int, Sendable {
        /// The messages between the library and BlueZ. Off, unless the environment has `BLUEZKIT_LOG=debug`.
        case debug = 0
        /// The library could not do something, or only in part, and there is no callback that reports it.
        case warning = 1
        /// The app made a call that has no effect because of its time or its arguments: "API MISUSE".
        case misuse = 2
    }

    /// Receives a line: its level, and its text without prefix and line break.
    ///
    /// Called on the thread that logs, possibly in the middle of a call by the app: return quickly, and do not call
    /// CoreBluetooth from it, nor take a lock that is held, or wait for a queue that is occupied, while CoreBluetooth
    /// is called.
    public typealias Handler = @Sendable (_ level: Level, _ text: String) -> Void

    /// The least important level that is reported. ``Level/warning`` by default; ``Level/debug`` if the environment
    /// variable `BLUEZKIT_LOG` is `debug` when the library first logs. May be set at any time, on any thread.
    public static var level: Level {
        get { Level(rawValue: leastLevel.load(ordering: .relaxed)) ?? .warning }
        set { leastLevel.store(newValue.rawValue, ordering: .relaxed) }
    }

    /// The destination of log lines; ``writeToStandardError(_:_:)`` by default. May be set at any time, on any thread.
    public static var handler: Handler {
        get { current.withLock { $0 }.handler }
        set {
            var old = Current(handler: newValue)
            current.withLock { swap(&$0, &old) }
            withExtendedLifetime(old) {}  // what it holds may log when it is released
        }
    }

    /// The maximum length of a line in bytes of UTF-8; longer lines are cut. Other programs on the bus may influence
    /// their content.
    static let lengthLimit = 1000

    /// The default ``handler``: writes `[CoreBluetooth] text`, or `[CoreBluetooth] API MISUSE: text`, as one line.
    ///
    /// Waits at most 0.1 s for a reader that has stalled. After that, lines are lost until it reads again; then a line
    /// says how many.
    public static func writeToStandardError(_ level: Level, _ text: String) {
        let lost = lostLines.exchange(0, ordering: .relaxed)
        let note = lost == 0 ? "" : line(.warning, "lines that standard error did not take in time are lost: \(lost)")
        let bytes = Array((note + line(level, text)).utf8)
        if write(bytes, within: 0) || lost == 0 && write(bytes, within: 100) { return }
        lostLines.add(lost + 1, ordering: .relaxed)
    }

    private static let lostLines = Atomic<Int>(0)

    /// Writes in one call, so that lines of several threads do not mix.
    /// - Parameter limit: How long to wait for room, in milliseconds.
    /// - Returns: Whether there was room for all of it. Other failures cannot be reported anywhere.
    private static func write(_ bytes: [UInt8], within limit: Int32) -> Bool {
        var status = stat()
        guard fstat(STDERR_FILENO, &status) == 0 else { return true }
        let kind = status.st_mode & S_IFMT
        var output = pollfd(fd: STDERR_FILENO, events: Int16(POLLOUT), revents: 0)
        // Of a terminal it says nothing.
        guard poll(&output, 1, limit) != 0 || kind == S_IFCHR else { return false }
        // A write to a pipe without a reader would be a SIGPIPE.
        if kind == S_IFIFO, output.revents & Int16(POLLERR) != 0 { return true }
        // A write must fail instead of waiting, while the app's own still wait. So pipes and terminals are opened
        // again, each time, as the app may redirect standard error. One that is another user's cannot be opened.
        let file =
            kind == S_IFIFO || kind == S_IFCHR
            ? open("/proc/self/fd/\(STDERR_FILENO)", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1
        defer { if file >= 0 { close(file) } }
        let count = bytes.withUnsafeBytes {
            kind == S_IFSOCK
                ? send(STDERR_FILENO, $0.baseAddress, $0.count, Int32(MSG_DONTWAIT) | Int32(MSG_NOSIGNAL))
                : Glibc.write(file >= 0 ? file : STDERR_FILENO, $0.baseAddress, $0.count)
        }
        return count == bytes.count || count < 0 && errno != EAGAIN && errno != EINTR
    }

    static func line(_ level: Level, _ text: String) -> String {
        // No control characters, because parts of the text may have been chosen by another program or by a peer.
        let isPlain = text.unicodeScalars.allSatisfy { $0.properties.generalCategory != .control }
        let text =
            isPlain
            ? text
            : String(
                String.UnicodeScalarView(
                    text.unicodeScalars.map { scalar in
                        scalar.properties.generalCategory == .control ? " " : scalar
                    }))
        return "[CoreBluetooth] \(level == .misuse ? "API MISUSE: " : "")\(text)\n"
    }

    /// Where each line goes as well, whatever the handler is. For a trace.
    static func copyLines(to receiver: @escaping Handler) { copy.withLock { $0 = Current(handler: receiver) } }

    fileprivate static func copyLine(_ level: Level, _ text: String) { copy.withLock { $0 }?.handler(level, text) }

    private static let copy = Mutex<Current?>(nil)

    fileprivate static let leastLevel = Atomic<Int>(
        (environment("BLUEZKIT_LOG") == "debug" ? Level.debug : .warning).rawValue)

    /// Not the closure itself: each access to a closure in a generic container wraps it in two more, until calling it
    /// overflows the stack.
    private struct Current {
        let handler: Handler
    }

    private static let current = Mutex(Current(handler: writeToStandardError))
}

/// The library's own interface for logging.
package enum Log {
    /// The app did something that Apple logs as API MISUSE, and that has no effect.
    package static func misuse(_ text: String) { report(.misuse, text) }

    /// Something that the app or its operator should know and that no callback reports.
    static func warning(_ text: String) { report(.warning, text) }

    /// The text is not even created while this level is off.
    static func debug(_ text: @autoclosure () -> String) {
        guard isOn(.debug) else { return }
        report(.debug, text())
    }

    /// A line that a peer or another program can cause as often as it likes: the first one from each `source`, and then
    /// one a minute with the number of suppressed lines.
    static func warning(from source: String, _ text: @autoclosure () -> String) {
        guard isOn(.warning), let unsaid = floods.withLock({ $0.admit(source, at: .now) }) else { return }
        report(.warning, unsaid == 0 ? text() : "\(text()) (and \(unsaid) more like it)")
    }

    private static let floods = Mutex(FloodGate())

    /// For tests: what was said before does not suppress anything.
    static func forgetFloods() { floods.withLock { $0 = FloodGate() } }

    private static func isOn(_ level: BluezKitLog.Level) -> Bool {
        BluezKitLog.leastLevel.load(ordering: .relaxed) <= level.rawValue
    }

    private static func report(_ level: BluezKitLog.Level, _ text: String) {
        #if DEBUG
        precondition(LockOrder.held == .none, "the app's handler is called under a lock: \(text)")
        #endif
        guard isOn(level) else { return }
        let limit = BluezKitLog.lengthLimit
        let isLong = text.utf8.count > limit
        let line = isLong ? String(decoding: text.utf8.prefix(limit - 6), as: UTF8.self) + "…" : text
        BluezKitLog.copyLine(level, line)
        BluezKitLog.handler(level, line)
    }
}
