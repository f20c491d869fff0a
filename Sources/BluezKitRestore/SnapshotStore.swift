import Dispatch
import Foundation
import Synchronization

/// The file of one role and identifier, for as long as a manager uses it. Nobody else does: a lock keeps a second
/// manager out, in this or in another process.
///
/// What is saved is safe from the end of this process at once, as the kernel has it then; and from the end of power some
/// milliseconds later, as the disk is waited for in the background. A file is replaced in one step, so whoever reads it
/// sees the old content or the new one.
package final class SnapshotStore: Sendable {
    /// What stands in the way.
    package struct Failure: Error, Equatable, CustomStringConvertible {
        package let description: String
        /// Another manager uses the file.
        package var isInUse = false
    }

    package let directory: StateDirectory
    package let path: String
    private let role: Snapshot.Role
    private let identifier: String
    private let lock: Int32
    private let isFlushDue = Atomic<Bool>(false)
    private static let flushing = DispatchQueue(label: "bluezkit.state", qos: .utility)

    /// Opens the store and locks it.
    package init(_ directory: StateDirectory, _ role: Snapshot.Role, _ identifier: String) throws(Failure) {
        (self.directory, self.role, self.identifier) = (directory, role, identifier)
        path = directory.file(role, identifier)
        try Self.makeDirectory(directory.path)
        let lockPath = path.dropLast(5) + ".lock"
        lock = open(String(lockPath), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard lock >= 0 else { throw Self.failure("cannot open \(lockPath)") }
        guard flock(lock, LOCK_EX | LOCK_NB) == 0 else {
            let isInUse = errno == EWOULDBLOCK
            var failure = Self.failure("cannot lock \(lockPath)")
            close(lock)
            if isInUse {
                failure = Failure(
                    description: "another \(role) manager with the restore identifier \"\(identifier)\" is alive",
                    isInUse: true)
            }
            throw failure
        }
    }

    // The lock ends with the descriptor, so also with the process. Its file stays: whoever removed it could remove the
    // one that another process has just locked.
    deinit { close(lock) }

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

    private static func failure(_ what: String) -> Failure {
        Failure(description: "\(what): \(String(cString: strerror(errno)))")
    }

    // MARK: Reading

    /// What was preserved, if anything.
    /// - Throws: Why there is a file and it cannot be used. It is out of the way then, under another name.
    package func load() throws(Failure) -> Snapshot? {
        let content: Data?
        do { content = try Self.content(of: path) } catch { throw setAside(error.description) }
        guard let content else { return nil }
        do throws(Snapshot.FileError) {
            let snapshot = try Snapshot(fileContent: content)
            guard snapshot.role == role, snapshot.identifier == identifier else {
                throw .malformed("it is of \(snapshot.role) \"\(snapshot.identifier)\"")
            }
            return snapshot
        } catch { throw setAside(error.description) }
    }

    /// Nil if there is no such file.
    package static func content(of path: String) throws(Failure) -> Data? {
        // Not waiting: it may be a pipe.
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
        guard descriptor >= 0 else {
            if errno == ENOENT { return nil }
            throw failure("cannot open it")
        }
        defer { close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw failure("cannot look at it") }
        guard status.st_mode & S_IFMT == S_IFREG else { throw Failure(description: "it is no file") }
        guard status.st_size <= Snapshot.maximumBytes else {
            throw Failure(description: Snapshot.FileError.tooLarge(bytes: Int(clamping: status.st_size)).description)
        }
        var data = Data(count: Int(status.st_size))
        var count = 0
        while count < data.count {
            let part = data.withUnsafeMutableBytes { buffer in
                read(descriptor, buffer.baseAddress.map { $0 + count }, buffer.count - count)
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
        return Failure(description: "\(path): \(reason). " + (isAside ? "It is now \(aside)" : "It stays where it is"))
    }

    // MARK: Writing

    /// Replaces the file, or removes it if there is nothing to preserve.
    package func save(_ snapshot: Snapshot) throws(Failure) {
        guard !snapshot.isEmpty else { return try remove() }
        let content: Data
        do { content = try snapshot.fileContent() } catch { throw Failure(description: "cannot encode: \(error)") }
        let temporary = path + ".new"
        let descriptor = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw Self.failure("cannot create \(temporary)") }
        defer { close(descriptor) }
        var written = 0
        while written < content.count {
            let part = content.withUnsafeBytes {
                write(descriptor, $0.baseAddress.map { $0 + written }, $0.count - written)
            }
            if part < 0 && errno != EINTR { throw giveUp(temporary, "cannot write \(temporary)") }
            written += max(0, part)
        }
        guard rename(temporary, path) == 0 else { throw giveUp(temporary, "cannot replace \(path)") }
        flush()
    }

    private func giveUp(_ temporary: String, _ what: String) -> Failure {
        let failure = Self.failure(what)
        unlink(temporary)
        return failure
    }

    package func remove() throws(Failure) {
        guard unlink(path) == 0 else {
            if errno == ENOENT { return }
            throw Self.failure("cannot remove \(path)")
        }
        flush()
    }

    /// Has the disk write it, once for all changes that come until it begins.
    private func flush() {
        guard !isFlushDue.exchange(true, ordering: .relaxed) else { return }
        let (path, directory) = (path, directory.path)
        Self.flushing.async { [self] in
            isFlushDue.store(false, ordering: .relaxed)
            for path in [path, directory] {
                let descriptor = open(path, O_RDONLY | O_CLOEXEC)
                guard descriptor >= 0 else { continue }
                fsync(descriptor)
                close(descriptor)
            }
        }
    }
}
