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
    /// - Parameter locks: Those of all processes; for tests.
    package static func isInUse(
        _ path: String, locks: String? = try? String(contentsOfFile: "/proc/locks", encoding: .utf8)
    ) -> Bool {
        var status = stat()
        guard lstat(lockPath(path), &status) == 0, let locks else { return false }
        // 1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF
        return locks.split(separator: "\n").contains { line in
            let words = line.split(separator: " ")
            guard words.contains("FLOCK"), let place = words.firstIndex(where: { $0.hasSuffix(":\(status.st_ino)") }),
                place > 0
            else { return false }
            // Files of different file systems may have the same number, and not all tell the device that is in there.
            return mayHaveOpen(status, process: words[place - 1])
        }
    }

    /// - Returns: True as well if the process does not let this one look.
    private static func mayHaveOpen(_ file: stat, process: Substring) -> Bool {
        let descriptors = "/proc/\(process)/fd"
        guard let names = try? FileManager.default.contentsOfDirectory(atPath: descriptors) else {
            return access("/proc/\(process)", F_OK) == 0
        }
        return names.contains { name in
            var status = stat()
            return stat("\(descriptors)/\(name)", &status) == 0 && status.st_ino == file.st_ino
                && status.st_dev == file.st_dev
        }
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
