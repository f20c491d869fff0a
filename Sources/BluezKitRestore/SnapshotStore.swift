package import Dispatch
package import Foundation
import Synchronization

/// The file of one role and identifier, while a manager uses it. A lock keeps other managers out, in this process and
/// in others.
///
/// A change is appended, at the same cost however large the file is. When the changes outweigh the rest, the file is
/// rewritten in the background. Saved state survives the end of this process at once, because the kernel has it, and a
/// power cut some milliseconds later, because the disk is flushed in the background. A file is replaced in one step,
/// and only by one that is on disk, so no file system can lose both the old one and the new one. Changes that arrive
/// during a rewrite go into both files. A power cut can tear the last lines, which are then ignored. The lock is held
/// during a wait for the disk only when a process saves for the first time and replaces an older file.
///
/// A directory or file that another user owns or can write to is not trusted. A file with invalid content is set aside.
/// A file that cannot be read (no descriptors, no memory, a disk error) is left alone, and the manager runs without
/// preservation, because saving might overwrite valid state. State of more than 16 MiB is not written.
package final class SnapshotStore: Sendable {
    /// Why the store cannot be used.
    package struct Failure: Error, Equatable, CustomStringConvertible {
        package let description: String
        /// Another manager uses the file.
        package var isInUse = false
        /// The file was read and is invalid: another attempt would find the same.
        package var isBadContent = false
    }

    private struct State {
        /// The lock's descriptor; nil: it has been released.
        var lock: Int32?
        /// The length of the file; nil: it does not contain what was saved last, and must be rewritten.
        var length: Int?
        /// How much of it is not changes.
        var headLength = 0
        /// What was saved since a rewrite began in the background; nil: no rewrite is in progress.
        var late: Data?
        /// Counts the files. The result of a background rewrite for an earlier file is discarded.
        var generation: UInt64 = 0
        var isFlushDue = false
    }

    /// The calls whose order decides what a power cut leaves. Tests record it.
    package struct Disk: Sendable {
        /// Waits until what was written to a file, or to a directory, is on the disk. Gets its path as well.
        package var flush: @Sendable (_ descriptor: Int32, _ path: String) -> Int32 = { descriptor, _ in
            fsync(descriptor)
        }
        package var rename: @Sendable (_ old: String, _ new: String) -> Int32 = { Glibc.rename($0, $1) }

        package init() {}
    }

    package let directory: StateDirectory
    package let path: String
    private var temporary: String { path + ".new" }
    private let role: Snapshot.Role
    private let identifier: String
    private let state: Mutex<State>
    private let disk: Disk
    /// Waits for disks. Work here retains neither the store nor its lock.
    package static let background = DispatchQueue(label: "bluezkit.state", qos: .utility)

    /// Opens the store and locks it.
    package init(
        _ directory: StateDirectory, _ role: Snapshot.Role, _ identifier: String, disk: Disk = Disk()
    ) throws(Failure) {
        (self.directory, self.role, self.identifier, self.disk) = (directory, role, identifier, disk)
        path = directory.file(role, identifier)
        let lock = try Self.lock(directory, path, role, identifier)
        state = Mutex(State(lock: lock))
        unlink(temporary)  // left by a process that was killed
    }

    deinit { close() }

    /// Whether the lock keeps others out: someone may have deleted its file, or the directory. Then the files there, if
    /// any, belong to the process that has made them since.
    private func isLockInPlace(_ state: State) -> Bool {
        var (locked, present) = (stat(), stat())
        guard let lock = state.lock, fstat(lock, &locked) == 0, lstat(Self.lockPath(path), &present) == 0 else {
            return false
        }
        return locked.st_ino == present.st_ino && locked.st_dev == present.st_dev
    }

    private func lockAgain(_ state: inout State) throws(Failure) {
        let lock = try Self.lock(directory, path, role, identifier)
        state.lock.map { _ = Glibc.close($0) }
        (state.lock, state.length) = (lock, nil)
    }

    /// Releases the lock: nothing is saved any more. The lock also ends with the process. The lock file stays, because
    /// removing it could remove the one that another process has just locked.
    package func close() {
        state.withLock { state in
            guard let lock = state.lock else { return }
            abandonRewriting(&state)
            Glibc.close(lock)
            state.lock = nil
        }
    }

    // MARK: Reading

    /// The preserved state, if any.
    /// - Throws: If there is a file that cannot be used. One with invalid content has been moved aside under another
    ///   name; one that is temporarily unreadable stays.
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
                throw .malformed("it belongs to \(snapshot.role) \"\(snapshot.identifier)\"")
            }
            state.withLock { state in
                state.length = length == content.count ? length : nil
                state.headLength = headLength
            }
            return snapshot
        } catch { throw Failure(description: error.description, isBadContent: true) }
    }

    /// Nil if there is no such file.
    /// - Parameter mustBeOurs: Whether no other user may have been able to write it.
    package static func content(of path: String, mustBeOurs: Bool = false) throws(Failure) -> Data? {
        // Non-blocking, because it may be a pipe.
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
        guard descriptor >= 0 else {
            if errno == ENOENT { return nil }
            var failure = failure("cannot open it")
            failure.isBadContent = errno == ELOOP || errno == ENXIO  // a symbolic link, a socket
            throw failure
        }
        defer { Glibc.close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw failure("cannot examine it") }
        guard status.st_mode & S_IFMT == S_IFREG else {
            throw Failure(description: "it is not a regular file", isBadContent: true)
        }
        guard !mustBeOurs || isOurs(status) else {
            throw Failure(
                description: "it belongs to user \(status.st_uid), or others can write to it", isBadContent: true)
        }
        guard status.st_size <= Snapshot.maximumBytes else {
            let error = Snapshot.FileError.tooLarge(bytes: Int(clamping: status.st_size))
            throw Failure(description: error.description, isBadContent: true)
        }
        var data = Data(count: Int(clamping: status.st_size))
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

    /// The last one is kept so that it can be examined, or used by the later version that has written it. A directory
    /// may be in the way, such as one that was set aside.
    private func setAside(_ reason: String) -> Failure {
        let aside = [".damaged", ".damaged-2", ".damaged-3"].map { path + $0 }.first { rename(path, $0) == 0 }
        return Failure(
            description: "\(path): \(reason.hasSuffix(".") ? reason : reason + ".") "
                + (aside.map { "It is now \($0)" } ?? "It stays where it is"),
            isBadContent: true)
    }

    // MARK: Writing

    /// Makes the file match `snapshot`; removes it if there is nothing to preserve. What was deleted meanwhile is made
    /// again.
    /// - Parameter changes: The changes since the last save, or since ``load()``; nil: the whole file is written.
    /// - Returns: Whether the directory, or the lock, had been deleted. Until now another process could use the file.
    @discardableResult
    package func save(_ snapshot: Snapshot, _ changes: [Snapshot.Change]? = nil) throws(Failure) -> Bool {
        try state.withLock { (state) throws(Failure) in
            guard state.lock != nil else { return false }
            let isInPlace = isLockInPlace(state)
            if snapshot.isEmpty {
                if isInPlace { try remove(&state) }
                return false
            }
            if !isInPlace { try lockAgain(&state) }
            try write(snapshot, changes, &state)
            return !isInPlace
        }
    }

    private func write(_ snapshot: Snapshot, _ changes: [Snapshot.Change]?, _ state: inout State) throws(Failure) {
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

    /// - Returns: The new length of the file; nil: it is not the expected file, or there is no room in it.
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
            ftruncate(descriptor, off_t(length))  // a torn line would hide everything after it
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

    /// Waits for the disk if there is an older file, because that may be the only valid one.
    private func replace(with snapshot: Snapshot, _ state: inout State) throws(Failure) {
        abandonRewriting(&state)
        state.length = nil
        let content = try Self.fileContent(snapshot)
        let descriptor = try create()
        defer { Glibc.close(descriptor) }
        do throws(Failure) {
            try Self.write(content, to: descriptor, temporary)
            if access(path, F_OK) == 0, disk.flush(descriptor, temporary) != 0 {
                throw Self.failure("cannot write \(temporary)")
            }
            guard disk.rename(temporary, path) == 0 else { throw Self.failure("cannot replace \(path)") }
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

    /// Rewriting does not pay off while the changes take fewer bytes than this.
    package static let leastRewriting = 64 << 10

    /// Rewrites the file without its accumulated changes. Changes that are saved meanwhile go into both files.
    private func rewrite(_ snapshot: Snapshot, _ state: inout State) {
        state.late = Data()
        let (temporary, generation, disk) = (temporary, state.generation, disk)
        Self.background.async { [weak self] in
            guard let descriptor = self?.beginRewriting(generation) else { return }
            defer { Glibc.close(descriptor) }
            do throws(Failure) {
                let content = try Self.fileContent(snapshot)
                try Self.write(content, to: descriptor, temporary)
                guard disk.flush(descriptor, temporary) == 0 else { throw Self.failure("cannot write \(temporary)") }
                self?.endRewriting(generation, descriptor, content.count)
            } catch {
                self?.endRewriting(generation, descriptor, nil)
            }
        }
    }

    private func beginRewriting(_ generation: UInt64) -> Int32? {
        state.withLock { state in
            guard state.generation == generation else { return nil }
            let descriptor = isLockInPlace(state) ? try? create() : nil
            if descriptor == nil { giveUpRewriting(&state) }
            return descriptor
        }
    }

    /// - Parameter length: The length written; nil: it failed.
    private func endRewriting(_ generation: UInt64, _ descriptor: Int32, _ length: Int?) {
        state.withLock { state in
            guard state.generation == generation, let late = state.late else { return }
            // Late changes are not flushed first: the present file does not have them on disk either.
            guard let length, state.length != nil, isLockInPlace(state),
                (try? Self.write(late, to: descriptor, temporary)) != nil, disk.rename(temporary, path) == 0
            else { return giveUpRewriting(&state) }
            (state.length, state.headLength, state.late) = (length + late.count, length, nil)
            flush(&state)
        }
    }

    /// The file is valid as it is. The rewrite is tried again when the file has grown again by as much.
    private func giveUpRewriting(_ state: inout State) {
        abandonRewriting(&state)
        state.headLength = state.length ?? 0
    }

    private func abandonRewriting(_ state: inout State) {
        state.generation += 1
        guard state.late != nil else { return }
        state.late = nil
        if isLockInPlace(state) { unlink(temporary) }
    }

    /// Flushes the file to disk, once for all changes that arrive before the flush begins.
    private func flush(_ state: inout State) {
        guard !state.isFlushDue else { return }
        state.isFlushDue = true
        let (path, directory, disk) = (path, directory.path, disk)
        Self.background.async { [weak self] in
            self?.state.withLock { $0.isFlushDue = false }
            for path in [path, directory] {
                let descriptor = open(path, O_RDONLY | O_CLOEXEC)
                guard descriptor >= 0 else { continue }
                _ = disk.flush(descriptor, path)
                Glibc.close(descriptor)
            }
        }
    }
}
