package import Dispatch
package import Foundation
import Synchronization

/// The file of one role and identifier, for as long as a manager uses it. Nobody else does: a lock keeps a second
/// manager out, in this or in another process.
///
/// A change is put behind what is there, and costs the same however much that is; when the changes outweigh the rest, the
/// file is written anew in the background. What is saved is safe from the end of this process at once, as the kernel has it
/// then; and from the end of power some milliseconds later, as the disk is waited for in the background. A file is replaced
/// in one step, and only by one that is on the disk, so no file system can lose the old one and the new one.
package final class SnapshotStore: Sendable {
    /// What stands in the way.
    package struct Failure: Error, Equatable, CustomStringConvertible {
        package let description: String
        /// Another manager uses the file.
        package var isInUse = false
        /// It was read, and is no use: another attempt would find the same.
        package var isBadContent = false
    }

    private struct State {
        /// The lock's descriptor; nil: it is given up.
        var lock: Int32?
        /// How long the file is; nil: it does not hold what was saved last, and has to be written anew.
        var length: Int?
        /// How much of that is not changes.
        var headLength = 0
        /// What was saved since the file began to be written anew in the background; nil: it is not.
        var late: Data?
        /// Counts the files. What was written in the background for another one is void.
        var generation: UInt64 = 0
        var isFlushDue = false
    }

    package let directory: StateDirectory
    package let path: String
    private var temporary: String { path + ".new" }
    private let role: Snapshot.Role
    private let identifier: String
    private let state: Mutex<State>
    /// Waits for disks. What runs here keeps neither the store nor its lock meanwhile.
    package static let background = DispatchQueue(label: "bluezkit.state", qos: .utility)

    /// Opens the store and locks it.
    package init(_ directory: StateDirectory, _ role: Snapshot.Role, _ identifier: String) throws(Failure) {
        (self.directory, self.role, self.identifier) = (directory, role, identifier)
        path = directory.file(role, identifier)
        try Self.makeDirectory(directory.path)
        try Self.check(directory.path)
        let lockPath = path.dropLast(5) + ".lock"
        let lock = open(String(lockPath), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard lock >= 0 else { throw Self.failure("cannot open \(lockPath)") }
        guard flock(lock, LOCK_EX | LOCK_NB) == 0 else {
            let isInUse = errno == EWOULDBLOCK
            var failure = Self.failure("cannot lock \(lockPath)")
            Glibc.close(lock)
            if isInUse {
                failure = Failure(
                    description: "another \(role) manager with the restore identifier \"\(identifier)\" is alive",
                    isInUse: true)
            }
            throw failure
        }
        state = Mutex(State(lock: lock))
        unlink(temporary)  // of a process that was killed
    }

    deinit { close() }

    /// Gives up the lock: nothing is saved any more. It ends with the process as well. Its file stays: whoever removed it
    /// could remove the one that another process has just locked.
    package func close() {
        state.withLock { state in
            guard let lock = state.lock else { return }
            abandonRewriting(&state)
            Glibc.close(lock)
            state.lock = nil
        }
    }

    /// All levels that are missing, for this user only.
    private static func makeDirectory(_ path: String) throws(Failure) {
        var missing: [String] = []
        var path = path
        while !path.isEmpty, path != "/", mkdir(path, 0o700) != 0, errno == ENOENT {
            missing.append(path)
            path = String(path[..<(path.lastIndex(of: "/") ?? path.startIndex)])
        }
        guard missing.isEmpty || errno == EEXIST || access(path, F_OK) == 0 else {
            throw failure("cannot create \(path)")
        }
        for path in missing.reversed() where mkdir(path, 0o700) != 0 && errno != EEXIST {
            throw failure("cannot create \(path)")
        }
    }

    /// Who can write there says what this app connects to and publishes.
    private static func check(_ path: String) throws(Failure) {
        var status = stat()
        guard stat(path, &status) == 0 else { throw failure("cannot look at \(path)") }
        guard isOurs(status) else {
            throw Failure(
                description:
                    "\(path) is not a directory that only this user (\(geteuid())) can write to: it is of user "
                    + "\(status.st_uid), with mode \(String(status.st_mode & 0o7777, radix: 8))")
        }
    }

    private static func isOurs(_ status: stat) -> Bool { status.st_uid == geteuid() && status.st_mode & 0o022 == 0 }

    private static func failure(_ what: String) -> Failure {
        Failure(description: "\(what): \(String(cString: strerror(errno)))")
    }

    // MARK: Reading

    /// What was preserved, if anything.
    /// - Throws: Why there is a file and it cannot be used. One with bad content is out of the way then, under another name;
    ///   one that cannot be read now stays.
    package func load() throws(Failure) -> Snapshot? {
        do throws(Failure) {
            guard let content = try Self.content(of: path, mustBeOurs: true) else { return nil }
            return try read(content)
        } catch {
            guard error.isBadContent else { throw Failure(description: "\(path): \(error)") }
            throw setAside(error.description)
        }
    }

    private func read(_ content: Data) throws(Failure) -> Snapshot {
        do throws(Snapshot.FileError) {
            let (snapshot, headLength, length) = try Snapshot.read(content)
            guard snapshot.role == role, snapshot.identifier == identifier else {
                throw .malformed("it is of \(snapshot.role) \"\(snapshot.identifier)\"")
            }
            state.withLock { state in
                state.length = length == content.count ? length : nil
                state.headLength = headLength
            }
            return snapshot
        } catch { throw Failure(description: error.description, isBadContent: true) }
    }

    /// Nil if there is no such file.
    /// - Parameter mustBeOurs: Whether the file is to be believed, so that nobody else may have written it.
    package static func content(of path: String, mustBeOurs: Bool = false) throws(Failure) -> Data? {
        // Not waiting: it may be a pipe.
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
        guard descriptor >= 0 else {
            if errno == ENOENT { return nil }
            var failure = failure("cannot open it")
            failure.isBadContent = errno == ELOOP || errno == ENXIO  // a symbolic link, a socket
            throw failure
        }
        defer { Glibc.close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw failure("cannot look at it") }
        guard status.st_mode & S_IFMT == S_IFREG else {
            throw Failure(description: "it is no file", isBadContent: true)
        }
        guard !mustBeOurs || isOurs(status) else {
            throw Failure(
                description: "it is of user \(status.st_uid), or others can write to it", isBadContent: true)
        }
        guard status.st_size <= Snapshot.maximumBytes else {
            let error = Snapshot.FileError.tooLarge(bytes: Int(clamping: status.st_size))
            throw Failure(description: error.description, isBadContent: true)
        }
        var data = Data(count: Int(status.st_size))
        var count = 0
        while count < data.count {
            let part = data.withUnsafeMutableBytes { buffer in
                Glibc.read(descriptor, buffer.baseAddress.map { $0 + count }, buffer.count - count)
            }
            if part == 0 { break }
            if part < 0 && errno != EINTR { throw failure("cannot read it") }
            count += max(0, part)
        }
        return data.prefix(count)
    }

    /// The last one is kept, so that a person can look at it.
    private func setAside(_ reason: String) -> Failure {
        let aside = path + ".damaged"
        let isAside = rename(path, aside) == 0
        return Failure(
            description: "\(path): \(reason). " + (isAside ? "It is now \(aside)" : "It stays where it is"),
            isBadContent: true)
    }

    // MARK: Writing

    /// Has the file say what `snapshot` says; removes it if there is nothing to preserve.
    /// - Parameter changes: What is new since the last save, or since ``load()``; nil: the file is written as a whole.
    package func save(_ snapshot: Snapshot, _ changes: [Snapshot.Change]? = nil) throws(Failure) {
        try state.withLock { (state) throws(Failure) in
            guard state.lock != nil else { return }
            guard !snapshot.isEmpty else { return try remove(&state) }
            let before = state.length
            state.length = nil
            if let changes, let before {
                let lines = try Self.encode { try Snapshot.lines(changes, saved: snapshot.saved) }
                state.length = try append(lines, at: before)
                if state.length != nil { state.late?.append(lines) }
            }
            guard let length = state.length else { return try replace(with: snapshot, &state) }
            if state.late == nil, length - state.headLength > max(Self.leastRewriting, state.headLength) {
                rewrite(snapshot, &state)
            }
            flush(&state)
        }
    }

    private static func encode(_ body: () throws -> Data) throws(Failure) -> Data {
        do { return try body() } catch { throw Failure(description: "cannot encode: \(error)") }
    }

    private static func write(_ content: Data, to descriptor: Int32, _ path: String) throws(Failure) {
        var written = 0
        while written < content.count {
            let part = content.withUnsafeBytes {
                Glibc.write(descriptor, $0.baseAddress.map { $0 + written }, $0.count - written)
            }
            if part < 0 && errno != EINTR { throw failure("cannot write \(path)") }
            written += max(0, part)
        }
    }

    /// - Returns: How long the file is then; nil: it is not the one that is expected, or there is no room in it.
    private func append(_ lines: Data, at length: Int) throws(Failure) -> Int? {
        guard length + lines.count <= Snapshot.maximumBytes else { return nil }
        let descriptor = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW)
        guard descriptor >= 0 else {
            if errno == ENOENT { return nil }
            throw Self.failure("cannot open \(path)")
        }
        defer { Glibc.close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_size == length else { return nil }
        do { try Self.write(lines, to: descriptor, path) } catch {
            ftruncate(descriptor, off_t(length))  // a torn line would end what is read for good
            throw error
        }
        return length + lines.count
    }

    private func create() throws(Failure) -> Int32 {
        unlink(temporary)
        let descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw Self.failure("cannot create \(temporary)") }
        return descriptor
    }

    private static func fileContent(_ snapshot: Snapshot) throws(Failure) -> Data {
        let content = try encode(snapshot.fileContent)
        guard content.count <= Snapshot.maximumBytes else {
            throw Failure(
                description: "there is too much to preserve: \(content.count) bytes, and at most "
                    + "\(Snapshot.maximumBytes) are kept")
        }
        return content
    }

    /// Waits for the disk if there is a file: that may be the only good one.
    private func replace(with snapshot: Snapshot, _ state: inout State) throws(Failure) {
        abandonRewriting(&state)
        state.length = nil
        let content = try Self.fileContent(snapshot)
        let descriptor = try create()
        defer { Glibc.close(descriptor) }
        do throws(Failure) {
            try Self.write(content, to: descriptor, temporary)
            if access(path, F_OK) == 0, fsync(descriptor) != 0 { throw Self.failure("cannot write \(temporary)") }
            guard rename(temporary, path) == 0 else { throw Self.failure("cannot replace \(path)") }
        } catch {
            unlink(temporary)
            throw error
        }
        (state.length, state.headLength) = (content.count, content.count)
        flush(&state)
    }

    package func remove() throws(Failure) {
        try state.withLock { (state) throws(Failure) in try remove(&state) }
    }

    private func remove(_ state: inout State) throws(Failure) {
        abandonRewriting(&state)
        state.length = nil
        guard unlink(path) == 0 else {
            if errno == ENOENT { return }
            throw Self.failure("cannot remove \(path)")
        }
        flush(&state)
    }

    // MARK: In the background

    /// Changes are not worth it while they take less than this, in bytes.
    package static let leastRewriting = 64 << 10

    /// Writes the file anew, without the changes that it has gathered. What is saved meanwhile goes into both.
    private func rewrite(_ snapshot: Snapshot, _ state: inout State) {
        state.late = Data()
        let (temporary, generation) = (temporary, state.generation)
        Self.background.async { [weak self] in
            guard let descriptor = self?.beginRewriting(generation) else { return }
            defer { Glibc.close(descriptor) }
            do throws(Failure) {
                let content = try Self.fileContent(snapshot)
                try Self.write(content, to: descriptor, temporary)
                guard fsync(descriptor) == 0 else { throw Self.failure("cannot write \(temporary)") }
                self?.endRewriting(generation, descriptor, content.count)
            } catch {
                self?.endRewriting(generation, descriptor, nil)
            }
        }
    }

    private func beginRewriting(_ generation: UInt64) -> Int32? {
        state.withLock { state in
            guard state.generation == generation else { return nil }
            let descriptor = try? create()
            if descriptor == nil { giveUpRewriting(&state) }
            return descriptor
        }
    }

    /// - Parameter length: What was written; nil: that has failed.
    private func endRewriting(_ generation: UInt64, _ descriptor: Int32, _ length: Int?) {
        state.withLock { state in
            guard state.generation == generation, let late = state.late else { return }
            // What is late is not waited for: the disk does not have it in the present file either.
            guard let length, state.length != nil, (try? Self.write(late, to: descriptor, temporary)) != nil,
                rename(temporary, path) == 0
            else { return giveUpRewriting(&state) }
            (state.length, state.headLength, state.late) = (length + late.count, length, nil)
            flush(&state)
        }
    }

    /// The file is good as it is. It is tried again when it has grown once more by as much.
    private func giveUpRewriting(_ state: inout State) {
        abandonRewriting(&state)
        state.headLength = state.length ?? 0
    }

    private func abandonRewriting(_ state: inout State) {
        state.generation += 1
        guard state.late != nil else { return }
        state.late = nil
        unlink(temporary)
    }

    /// Has the disk write it, once for all changes that come until it begins.
    private func flush(_ state: inout State) {
        guard !state.isFlushDue else { return }
        state.isFlushDue = true
        let (path, directory) = (path, directory.path)
        Self.background.async { [weak self] in
            self?.state.withLock { $0.isFlushDue = false }
            for path in [path, directory] {
                let descriptor = open(path, O_RDONLY | O_CLOEXEC)
                guard descriptor >= 0 else { continue }
                fsync(descriptor)
                Glibc.close(descriptor)
            }
        }
    }
}
