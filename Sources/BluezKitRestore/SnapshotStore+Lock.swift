package import Foundation

/// The directory of the files, and who may use them.
extension SnapshotStore {
    static func lockPath(_ path: String) -> String { path.dropLast(5) + ".lock" }

    /// Makes the directory if it is missing, and locks the file.
    static func lock(
        _ directory: StateDirectory, _ path: String, _ role: Snapshot.Role, _ identifier: String
    ) throws(Failure) -> Int32 {
        try makeDirectory(directory.path)
        try check(directory.path)
        let lockPath = lockPath(path)
        let lock = open(lockPath, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard lock >= 0 else { throw failure("cannot open \(lockPath)") }
        guard flock(lock, LOCK_EX | LOCK_NB) == 0 else {
            let isInUse = errno == EWOULDBLOCK
            var failure = failure("cannot lock \(lockPath)")
            Glibc.close(lock)
            if isInUse {
                failure = Failure(
                    description: "another \(role) manager, of this program or another one, is in use with the restore "
                        + "identifier \"\(identifier)\"",
                    isInUse: true)
            }
            throw failure
        }
        return lock
    }

    /// Whether a manager has the file at this path. Does not lock it, which would be in the way of one that is just
    /// beginning.
    package static func isInUse(_ path: String) -> Bool {
        var status = stat()
        guard lstat(lockPath(path), &status) == 0,
            let locks = try? String(contentsOfFile: "/proc/locks", encoding: .utf8)
        else { return false }
        return locks.split(separator: "\n").contains { $0.contains(" FLOCK ") && $0.contains(":\(status.st_ino) ") }
    }

    /// Creates all missing levels, accessible to this user only.
    package static func makeDirectory(_ path: String) throws(Failure) {
        if mkdir(path, 0o700) == 0 { return }
        if errno == ENOENT, let slash = path.lastIndex(of: "/"), slash > path.startIndex {
            try makeDirectory(String(path[..<slash]))
            if mkdir(path, 0o700) == 0 { return }
        }
        let reason = errno
        // It may be there, whatever the file system says of making it.
        guard reason != EEXIST, access(path, F_OK) != 0 else { return }
        errno = reason
        throw failure("cannot create \(path)")
    }

    /// A user who can write there decides what this app connects to and publishes.
    static func check(_ path: String) throws(Failure) {
        var status = stat()
        guard stat(path, &status) == 0 else { throw failure("cannot examine \(path)") }
        guard isOurs(status) else {
            throw Failure(
                description:
                    "\(path) is not a directory that only this user (\(geteuid())) can write to: it belongs to user "
                    + "\(status.st_uid), with mode \(String(status.st_mode & 0o7777, radix: 8))")
        }
    }

    package static func isOurs(_ status: stat) -> Bool { status.st_uid == geteuid() && status.st_mode & 0o022 == 0 }

    static func failure(_ what: String) -> Failure {
        Failure(description: "\(what): \(String(cString: strerror(errno)))")
    }
}
