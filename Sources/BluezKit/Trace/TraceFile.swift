import BluezDBus
import BluezKitRestore
import Foundation

/// The file to which everything is appended that passes the border of this process's managers, if `BLUEZKIT_TRACE`
/// names one (Docs/TRACE.md). Any thread.
///
/// A line is one `write` to a file that is opened with `O_APPEND`: it is with the kernel when a callback begins,
/// whatever becomes of the process, and those of several processes do not mix. What cannot be written ends the trace,
/// with one log line, and nothing else.
final class TraceFile: Sendable {
    struct Options: Equatable, Sendable {
        /// How large the file may become, in bytes, by all processes.
        var limit: Int64 = 64_000_000
        /// Whether values are replaced by zeros.
        var hidesValues = false
    }

    /// Why nothing is written.
    struct Failure: Error, Equatable { let reason: String }

    /// In bytes: room for the line that says that the file is full.
    private static let lastLine: Int64 = 1000
    /// In bytes; the reader refuses what is longer.
    static let longestLine = 1_000_000

    /// Nil: no trace is wanted, or it cannot be written, as the log says. Looked at once for each manager.
    static let shared: TraceFile? = {
        guard let path = environment("BLUEZKIT_TRACE") else { return nil }
        do throws(Failure) {
            let file = try TraceFile(path, try Options(environment: environment))
            BluezKitLog.copyLines { level, text in
                if level != .debug || !file.options.hidesValues { file.write(.log(level: "\(level)", text: text)) }
            }
            return file
        } catch {
            Log.warning("BLUEZKIT_TRACE: there is no trace: \(error.reason)")
            return nil
        }
    }()

    private struct State {
        /// Nil: nothing is written any more.
        var descriptor: Int32?
        let encoder: JSONEncoder
    }

    private let options: Options
    private let state: Protected<State>

    /// Opens the file, makes it if there is none, and adds the header.
    init(_ path: String, _ options: Options) throws(Failure) {
        var options = options
        // Beyond that, the process would be ended by a signal.
        var most = rlimit()
        if getrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &most) == 0, most.rlim_cur < UInt64(Int64.max) {
            options.limit = min(options.limit, Int64(most.rlim_cur))
        }
        let encoder = BorderFormat.encoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        if options.hidesValues {
            encoder.dataEncodingStrategy = .custom { data, encoder in
                var container = encoder.singleValueContainer()
                try container.encode(Data(count: data.count).base64EncodedString())
            }
        }
        let (descriptor, isNew) = try Self.open(path)
        self.options = options
        state = Protected(State(descriptor: descriptor, encoder: encoder))
        let header = TraceHeader(
            version: bluezKitVersion, border: BorderFormat.version,
            program: StateDirectory.app.split(separator: "/").last.map(String.init) ?? "",
            system: "Linux \(LinuxVersion.current?.description ?? "of an unknown version")", boot: StateDirectory.boot,
            hidesValues: options.hidesValues)
        // A process that was killed may have left half a line.
        write(.began(header), after: isNew ? "" : "\n")
    }

    deinit { state.withLock { state in state.descriptor.map { _ = close($0) } } }

    /// Values are for the user alone, so the file is: a link could be to another one's, and another one could have made
    /// the file, or keep a second name of it.
    private static func open(_ path: String) throws(Failure) -> (descriptor: Int32, isNew: Bool) {
        func failure(_ reason: String) -> Failure { Failure(reason: "\(path) \(reason)") }
        // Not waiting: to open a named pipe would wait for its reader.
        let flags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC
        let descriptor = Glibc.open(path, flags, 0o600)
        guard descriptor >= 0 else {
            let error = errno
            throw failure(
                error == ELOOP ? "is a symbolic link" : "cannot be opened: " + String(cString: strerror(error)))
        }
        var status = stat()
        let problem: String? =
            if fstat(descriptor, &status) != 0 || status.st_mode & S_IFMT != S_IFREG {
                "is not a regular file"
            } else if status.st_uid != geteuid() {
                "belongs to another user"
            } else if status.st_nlink > 1 {
                "has several names"
            } else if status.st_mode & 0o077 != 0, fchmod(descriptor, 0o600) != 0 {
                "can be read by other users"
            } else {
                nil
            }
        guard let problem else { return (descriptor, status.st_size == 0) }
        close(descriptor)
        throw failure(problem)
    }

    /// - Parameter manager: Nil: it is about the process.
    func write(_ message: TraceMessage, of manager: Int? = nil) { write(message, of: manager, after: "") }

    private func write(_ message: TraceMessage, of manager: Int? = nil, after prefix: String) {
        let problem = state.withLock { state -> String? in
            guard let descriptor = state.descriptor else { return nil }
            do throws(Failure) {
                var line = Data(prefix.utf8)
                line += encoded(options.hidesValues ? message.hidingValues : message, manager, state.encoder)
                try append(line, to: descriptor, state.encoder)
                return nil
            } catch {
                close(descriptor)
                state.descriptor = nil
                return error.reason
            }
        }
        if let problem { Log.warning("BLUEZKIT_TRACE: the trace ends here: \(problem)") }
    }

    private func encoded(_ message: TraceMessage, _ manager: Int?, _ encoder: JSONEncoder) -> Data {
        func line(_ message: TraceMessage) throws -> Data {
            let now = Self.now()
            return try encoder.encode(
                TraceLine(wall: now.wall, clock: now.clock, process: getpid(), manager: manager, message: message))
        }
        var problem = "a message that cannot be encoded"
        if let bytes = try? line(message) {
            if bytes.count < Self.longestLine { return bytes + Data("\n".utf8) }
            problem = "a message of \(bytes.count) bytes"
        }
        return ((try? line(.omitted(problem))) ?? Data()) + Data("\n".utf8)
    }

    private func append(_ line: Data, to descriptor: Int32, _ encoder: JSONEncoder) throws(Failure) {
        var status = stat()
        if fstat(descriptor, &status) == 0,
            Int64(status.st_size) + Int64(line.count) > options.limit - Self.lastLine
        {
            let last = encoded(.full(limit: options.limit), nil, encoder)
            // Other processes may have filled the rest. Beyond RLIMIT_FSIZE not even this one may be written.
            if Int64(status.st_size) + Int64(last.count) <= options.limit { _ = Self.write(last, descriptor) }
            throw Failure(reason: "the file may have \(options.limit) bytes (BLUEZKIT_TRACE_LIMIT)")
        }
        switch Self.write(line, descriptor) {
        case line.count: break
        case -1: throw Failure(reason: String(cString: strerror(errno)))
        default: throw Failure(reason: "the disk has no room")
        }
    }

    private static func write(_ bytes: Data, _ descriptor: Int32) -> Int {
        var count = -1
        repeat {
            count = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
        } while count < 0 && errno == EINTR
        return count
    }

    /// In microseconds, as numbers that JSON has exactly as many digits of.
    private static func now() -> (wall: Double, clock: Double) {
        func seconds(_ clock: clockid_t) -> Double {
            var time = timespec()
            clock_gettime(clock, &time)
            return Double(Int64(time.tv_sec) * 1_000_000 + Int64(time.tv_nsec) / 1000) / 1_000_000
        }
        return (seconds(CLOCK_REALTIME), seconds(CLOCK_BOOTTIME))
    }
}

extension TraceFile.Options {
    /// - Parameter value: Returns the value of an environment variable; nil for an empty one.
    init(environment value: (String) -> String?) throws(TraceFile.Failure) {
        hidesValues = value("BLUEZKIT_TRACE_VALUES") == "0"
        guard let text = value("BLUEZKIT_TRACE_LIMIT") else { return }
        guard let megabytes = Int64(text), (1...1_000_000).contains(megabytes) else {
            throw TraceFile.Failure(
                reason: "BLUEZKIT_TRACE_LIMIT needs a number of megabytes from 1 to 1000000, not '\(text)'")
        }
        limit = megabytes * 1_000_000
    }
}
