import BluezDBus
import Foundation
import Synchronization

/// **BluezKit addition.** Where the library's log lines go, and which of them.
///
/// On Apple platforms CoreBluetooth writes to the system log. Here each line goes to the standard error output as
/// `[CoreBluetooth] …`, until ``handler`` says otherwise. The texts are for people and may change.
public enum BluezKitLog {
    /// How much a line matters. Each level includes those after it.
    public enum Level: Int, Sendable {
        /// What passes between the library and BlueZ. Off, unless the environment has `BLUEZKIT_LOG=debug`.
        case debug = 0
        /// The library could not do something, or did it in part, and there is no callback that says so.
        case warning = 1
        /// The app called something at a moment or in a way that has no effect: "API MISUSE".
        case misuse = 2
    }

    /// Receives a line: its level, and its text without prefix and line break.
    ///
    /// Called on whatever thread has something to say, also in the middle of a call by the app: return soon, and call
    /// nothing of CoreBluetooth from it.
    public typealias Handler = @Sendable (_ level: Level, _ text: String) -> Void

    /// The least important level that is reported. ``Level/warning`` at first; ``Level/debug`` if the environment
    /// variable `BLUEZKIT_LOG` is `debug` when the library first logs. May be set at any time, on any thread.
    public static var level: Level {
        get { Level(rawValue: leastLevel.load(ordering: .relaxed)) ?? .warning }
        set { leastLevel.store(newValue.rawValue, ordering: .relaxed) }
    }

    /// What is done with a line; ``writeToStandardError(_:_:)`` at first. May be set at any time, on any thread.
    public static var handler: Handler {
        get { current.withLock { $0 }.handler }
        set {
            var old = Current(handler: newValue)
            current.withLock { swap(&$0, &old) }
            withExtendedLifetime(old) {}  // what it holds may log at its end
        }
    }

    /// Lines have at most so many bytes of UTF-8; what is longer is cut. Part of it may come from anybody on the bus.
    static let lengthLimit = 1000

    /// The first ``handler``: writes `[CoreBluetooth] text`, or `[CoreBluetooth] API MISUSE: text`, as one line.
    public static func writeToStandardError(_ level: Level, _ text: String) {
        let line = Array(line(level, text).utf8)
        // One call, so that lines of several threads do not mix. Where nobody reads there is nobody to tell.
        _ = line.withUnsafeBytes { write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }

    static func line(_ level: Level, _ text: String) -> String {
        // No control characters: part of a text may have been chosen by another program, or by a peer.
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

    fileprivate static let leastLevel = Atomic<Int>(
        (environment("BLUEZKIT_LOG") == "debug" ? Level.debug : .warning).rawValue)

    /// Not the closure itself: each access to one in a generic container wraps it in two more, until calling it
    /// overflows the stack.
    private struct Current {
        let handler: Handler
    }

    private static let current = Mutex(Current(handler: writeToStandardError))
}

/// The library's own way to log.
enum Log {
    /// The app did something that Apple logs as API MISUSE: it has no effect.
    static func misuse(_ text: String) { report(.misuse, text) }

    /// Something that the app or its operator should know and that no callback tells.
    static func warning(_ text: String) { report(.warning, text) }

    /// The text is not even made while this level is off.
    static func debug(_ text: @autoclosure () -> String) {
        guard isOn(.debug) else { return }
        report(.debug, text())
    }

    /// A line that a radio peer or another program can cause as often as it likes: the first from each `source`, and
    /// then one a minute that says how many there were.
    static func warning(from source: String, _ text: @autoclosure () -> String) {
        guard isOn(.warning), let unsaid = floods.withLock({ $0.admit(source, at: .now) }) else { return }
        report(.warning, unsaid == 0 ? text() : "\(text()) (and \(unsaid) more like it)")
    }

    private static let floods = Mutex(FloodGate())

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
        BluezKitLog.handler(level, isLong ? String(decoding: text.utf8.prefix(limit - 6), as: UTF8.self) + "…" : text)
    }
}
