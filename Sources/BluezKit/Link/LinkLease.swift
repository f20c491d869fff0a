import Foundation

/// Who of this user's programs with BluezKit uses a link. BlueZ does not count: one program's `Disconnect` ends the link of
/// all. So each link has a file, which the one that makes the link creates, and which everyone who uses it holds a shared
/// lock on. Whoever can turn that into an exclusive one is alone, and may end the link; the file goes first, so that what
/// comes after is not taken for it. A link without a file is somebody else's, the desktop's perhaps, and is left alone. The
/// locks of a process that has died are gone, and its file makes the next one its heir.
final class LinkLease {
    private let path: String
    private let descriptor: Int32

    private init(path: String, descriptor: Int32) { (self.path, self.descriptor) = (path, descriptor) }

    deinit { close(descriptor) }

    /// - Parameter creates: Whether this process makes the link. If not: nil where there is no file.
    static func take(_ name: String, in directory: String, creates: Bool) -> LinkLease? {
        let path = directory + "/" + name
        while true {
            let descriptor = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (creates ? O_CREAT : 0), 0o600)
            guard descriptor >= 0 else { return nil }
            let lease = LinkLease(path: path, descriptor: descriptor)
            // An exclusive lock is held for no longer than it takes to remove the file.
            guard flock(descriptor, LOCK_SH) == 0 else { return nil }
            var (locked, current) = (stat(), stat())
            fstat(descriptor, &locked)
            if lstat(path, &current) == 0, current.st_ino == locked.st_ino { return lease }
            // It was removed meanwhile: the next round finds none, or a new one.
        }
    }

    /// Ends the lease if no other process uses the link, and else gives up this process's part in it.
    /// - Returns: Whether none did.
    @discardableResult
    func end() -> Bool {
        guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else { return false }
        unlink(path)
        return true
    }

    /// Where the files are: `$XDG_RUNTIME_DIR/bluezkit`, else `/tmp/bluezkit-UID`. Nil if that is not this user's alone.
    static let directory: String? = {
        let runtime = getenv("XDG_RUNTIME_DIR").map { String(cString: $0) + "/bluezkit" }
        let path = runtime ?? "/tmp/bluezkit-\(getuid())"
        mkdir(path, 0o700)
        var status = stat()
        guard lstat(path, &status) == 0, status.st_mode & S_IFMT == S_IFDIR, status.st_uid == getuid(),
            status.st_mode & 0o077 == 0
        else {
            Log.warning("\(path) is not a directory of this user alone: links are not shared with other programs")
            return nil
        }
        return path
    }()
}
