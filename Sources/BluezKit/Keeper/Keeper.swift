import BluezDBus
import BluezKitRestore
import CBluezL2CAP
import Foundation

/// The keeper of this user: where it listens.
package enum Keeper {
    /// That of what it and its apps say to each other.
    package static let version = BorderFormat.version

    /// The socket; nil: there is no directory of the user's that ends with the session.
    package static var path: String? {
        let path =
            environment("BLUEZKIT_KEEPER_SOCKET") ?? environment("XDG_RUNTIME_DIR").map { $0 + "/bluezkit/keeper" }
        return path?.hasPrefix("/") == true ? path : nil
    }

    /// Makes the directory in which it is to listen. - Throws: Why it cannot listen there.
    package static func makeDirectory(of path: String) throws {
        let directory = (path as NSString).deletingLastPathComponent
        // Not where it would be of no use: one that root makes for itself keeps the user's own keeper out.
        if try !checkDirectory(of: path) {
            try SnapshotStore.makeDirectory(directory)
            _ = try checkDirectory(of: path)
        }
        guard access(directory, W_OK) == 0 else { throw Failure.refused("\(directory) cannot be written to") }
    }

    /// Nothing is believed or written where another user can replace it.
    /// - Returns: False: there is no directory.
    package static func checkDirectory(of path: String) throws(Failure) -> Bool {
        let directory = (path as NSString).deletingLastPathComponent
        let parent = (directory as NSString).deletingLastPathComponent
        var (own, above) = (stat(), stat())
        guard stat(parent, &above) == 0 else { return false }
        // /tmp is everyone's, but only owners replace what is in it.
        guard [0, geteuid()].contains(above.st_uid), above.st_mode & 0o022 == 0 || above.st_mode & S_ISVTX != 0 else {
            throw .unsafeDirectory(parent)
        }
        guard lstat(directory, &own) == 0 else { return false }
        guard own.st_mode & S_IFMT == S_IFDIR, SnapshotStore.isOurs(own) else { throw .unsafeDirectory(directory) }
        return true
    }

    /// Why there is no keeper.
    package enum Failure: LocalizedError, CustomStringConvertible {
        case noDirectory
        case unsafeDirectory(String)
        case noProgram
        case notStarted(String)
        case otherVersion(Int)
        case noAnswer
        case refused(String)

        package var description: String {
            switch self {
            case .noDirectory: "XDG_RUNTIME_DIR is not set"
            case .unsafeDirectory(let path):
                "\(path) is not a directory that only this user (\(geteuid())) can write to"
            case .noProgram:
                "bluezkit-keeper is neither beside this program nor in /usr/libexec (BLUEZKIT_KEEPER names another place)"
            case .notStarted(let reason): "bluezkit-keeper cannot be started: \(reason)"
            case .otherVersion(let version):
                "the one that runs has version \(version), and this program \(BorderFormat.version)"
            case .noAnswer: "it does not answer"
            case .refused(let reason): reason
            }
        }

        package var errorDescription: String? { description }
    }

    /// A connection to the keeper; nil: there is none.
    /// - Parameter isOfAnyVersion: Whether it may have another version.
    static func running(isOfAnyVersion: Bool = false) throws(Failure) -> KeeperSocket? {
        guard let path else { return nil }
        return try connect(path, isOfAnyVersion: isOfAnyVersion)
    }

    /// A connection to the keeper, which is started if there is none, and replaced if it is older.
    static func connectOrStart() throws(Failure) -> KeeperSocket {
        guard let path else { throw .noDirectory }
        // Another program may be starting it at the same time, and then it may not listen yet; or one that was idle is
        // ending.
        let end = DispatchTime.now().later(by: .seconds(20))
        var attempts = 0
        repeat {
            do throws(Failure) {
                if let socket = try connect(path) { return socket }
                try start(until: end)
            } catch {
                guard case .otherVersion(1..<BorderFormat.version) = error, attempts < 3 else { throw error }
                // Nothing happens if the program is not newer, or if systemd starts the keeper.
                guard (try? start("--replace-older", until: end)) != nil else { throw error }
            }
            if attempts > 0 { usleep(20_000) }
            attempts += 1
        } while .now() < end
        throw .notStarted("it does not listen at \(path)")
    }

    /// - Returns: Nil: none listens there.
    private static func connect(_ path: String, isOfAnyVersion: Bool = false) throws(Failure) -> KeeperSocket? {
        guard try checkDirectory(of: path), let socket = try reach(path), socket.peerUser == geteuid() else {
            return nil
        }
        return try greeted(socket, isOfAnyVersion)
    }

    /// The keeper says first which version it has.
    private static func greeted(
        _ socket: KeeperSocket, _ isOfAnyVersion: Bool = false
    ) throws(Failure) -> KeeperSocket? {
        var reader = FrameReader()
        while true {
            switch socket.receive(into: &reader, upTo: Frame.greetingSize, waits: true) {
            case .bytes: break
            case .notReady: throw .noAnswer
            case .ended: return nil  // it is just ending
            }
            let frame: Frame?
            do throws(FrameReader.Failure) { frame = try reader.next() } catch { throw .noAnswer }
            guard let version = frame?.version(as: .greeting) else { continue }
            guard version == BorderFormat.version || isOfAnyVersion else { throw .otherVersion(version) }
            return socket
        }
    }

    #if DEBUG
    private static let inProcess = KeeperHost()

    /// Test builds with `BLUEZKIT_BORDER=keeper` have each manager hosted by a keeper in the same process.
    static func connectInProcess() -> KeeperSocket? {
        guard let (app, keeper) = KeeperSocket.pair() else { return nil }
        inProcess.take(keeper)
        return try? greeted(app)
    }
    #endif

    /// How long it may take to answer.
    private static let patience: Duration = .seconds(5)

    /// - Returns: Nil: none listens there.
    private static func reach(_ path: String) throws(Failure) -> KeeperSocket? {
        let descriptor = Glibc.socket(AF_UNIX, streamKind, 0)
        guard descriptor >= 0 else { return nil }
        let socket = KeeperSocket(descriptor: descriptor)
        socket.limitWaiting(to: patience, receiving: patience)
        if withAddress(of: path, { Glibc.connect(descriptor, $0, $1) }) == 0 { return socket }
        // It listens, and has taken no connection for that long.
        if errno == EAGAIN { throw .noAnswer }
        return nil
    }

    /// Whether connections are taken there: by a keeper, or by systemd, which starts one.
    package static func isServed(_ path: String) throws(Failure) -> Bool { try reach(path)?.peerUser == geteuid() }

    /// Starts it, and waits until it listens.
    private static func start(_ options: String..., until end: DispatchTime) throws(Failure) {
        guard let program else { throw .noProgram }
        let pid: pid_t
        do throws(POSIXError) { pid = try spawn([program, "--detach"] + options) } catch {
            throw .notStarted("\(program): \(error.localizedDescription)")
        }
        var status: Int32 = 0
        while case let ended = waitpid(pid, &status, WNOHANG), ended == 0 || ended < 0 && errno == EINTR {
            if .now() > end {
                kill(pid, SIGKILL)
                waitpid(pid, nil, 0)
                throw .notStarted("\(program): it does not say that it listens")
            }
            usleep(2000)
        }
        // An app that waits for all of its children may have taken the status.
        guard status == 0 else { throw .notStarted("\(program): exit status \(status >> 8 & 0xFF)") }
    }

    /// The first that there is. Nil: there is none.
    package static var program: String? {
        let beside = (StateDirectory.app as NSString).deletingLastPathComponent + "/bluezkit-keeper"
        let places = [environment("BLUEZKIT_KEEPER"), beside, "/usr/libexec/bluezkit-keeper"].compactMap { $0 }
        return places.first { access($0, X_OK) == 0 }
    }

    /// The only keeper that listens at `path` from now on, as long as the process lasts.
    /// - Parameter waits: Until it is the only one.
    /// - Returns: False: another one does.
    package static func claim(_ path: String, waits: Bool = false) throws -> Bool {
        let descriptor = open(path + ".lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0o600)
        guard descriptor >= 0 else { throw POSIXError(POSIXErrorCode(rawValue: errno) ?? .EACCES) }
        while flock(descriptor, waits ? LOCK_EX : LOCK_EX | LOCK_NB) != 0 {
            guard errno == EINTR else {
                close(descriptor)
                return false
            }
        }
        // For people who look who that is.
        ftruncate(descriptor, 0)
        let pid = "\(getpid())\n"
        _ = write(descriptor, pid, pid.utf8.count)
        return true
    }

    /// Listens, and lets `host` take each connection. - Throws: Why that cannot be.
    /// - Parameter lost: Called when the socket is removed, or another one is in its place: no app comes any more.
    package static func listen(at path: String, for host: KeeperHost, lost: @escaping @Sendable () -> Void) throws {
        host.listen(on: try makeSocket(at: path))
        let watch = inotify_init1(Int32(IN_NONBLOCK | IN_CLOEXEC))
        guard watch >= 0, inotify_add_watch(watch, path, UInt32(IN_ATTRIB | IN_MOVE_SELF)) >= 0 else { return }
        let own = identity(of: path)
        host.watch(watch) { _ in
            var events = [UInt8](repeating: 0, count: 4096)
            while read(watch, &events, events.count) > 0 {}
            if identity(of: path) != own { lost() }
        }
    }

    /// Nil: there is no such file.
    private static func identity(of path: String) -> [UInt64]? {
        var status = stat()
        return lstat(path, &status) == 0 ? [UInt64(status.st_dev), UInt64(status.st_ino)] : nil
    }

    private static func makeSocket(at path: String) throws -> Int32 {
        let descriptor = Glibc.socket(AF_UNIX, streamKind, 0)
        guard descriptor >= 0 else { throw POSIXError(.EMFILE) }
        guard unlink(path) == 0 || errno == ENOENT, fchmod(descriptor, 0o600) == 0,
            let bound = withAddress(of: path, { bind(descriptor, $0, $1) }), bound == 0,
            Glibc.listen(descriptor, 64) == 0
        else {
            let reason = POSIXErrorCode(rawValue: errno) ?? .EINVAL
            close(descriptor)
            throw POSIXError(reason)
        }
        return descriptor
    }

    private static let streamKind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue)

    /// - Returns: Nil: the path is too long for a socket.
    private static func withAddress<Result>(
        of path: String, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Result
    ) -> Result? {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let bytes = Array(path.utf8)
        guard bytes.count < MemoryLayout.size(ofValue: address.sun_path) else { return nil }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                body($0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
    }
}
