import BluezDBus
import Foundation

/// One lock file for each link or attempt, held shared by every process with BluezKit that uses it. BlueZ does not
/// count its users: one program's `Disconnect` ends the link of all, and a link, or an attempt, outlives the program
/// that asked for it. A process that can turn its lock into an exclusive one is alone, and may end the link; the file
/// goes when BlueZ has ended it, so that the next link is not mistaken for it.
///
/// A link without a file was made by another program, the desktop perhaps, and is left alone. The locks of a dead
/// process are gone: a file without locks belongs to an orphaned link. The next process that needs the link takes it
/// over, and otherwise it is ended (``CentralRole/endOrphans()``).
final class LinkLease {
    /// A process is ending the link, or cancelling the attempt.
    struct IsEnding: Error {}

    private let path: String
    /// Negative: there is no file, as none could be made. The link is this process's nevertheless.
    private let descriptor: Int32

    private init(path: String, descriptor: Int32) { (self.path, self.descriptor) = (path, descriptor) }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Whether there is a file, held or not.
    static func exists(_ name: String, in directory: String?) -> Bool {
        directory.map { access("\($0)/\(name)", F_OK) == 0 } ?? false
    }

    /// Shares a link that a program with BluezKit has made. Does not wait.
    /// - Parameter identifier: As of `CBPeripheral`.
    /// - Returns: Nil if there is no file.
    static func share(_ name: String, in directory: String?, for identifier: UUID) throws(IsEnding) -> LinkLease? {
        guard let directory, let lease = try lock("\(directory)/\(name)", 0, LOCK_SH) else { return nil }
        // Its maker may have died before it came to that.
        _ = lease.identify(identifier)
        return lease
    }

    /// For who makes a link.
    static func make(_ name: String, in directory: String?, for identifier: UUID) throws(IsEnding) -> LinkLease {
        let unshared = LinkLease(path: "", descriptor: -1)
        guard let directory, let lease = try lock("\(directory)/\(name)", O_CREAT, LOCK_SH) else {
            return unshared
        }
        guard lease.identify(identifier) else {
            lease.end()  // the disk is full
            return unshared
        }
        return lease
    }

    /// One that no process holds, for the caller to end.
    /// - Returns: Nil if a process holds it, or it does not exist any more.
    static func inherit(_ name: String, in directory: String) -> LinkLease? {
        (try? lock("\(directory)/\(name)", 0, LOCK_EX)) ?? nil
    }

    private static func lock(_ path: String, _ flags: Int32, _ operation: Int32) throws(IsEnding) -> LinkLease? {
        while true {
            let descriptor = open(path, flags | O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0o600)
            guard descriptor >= 0 else { return nil }
            let lease = LinkLease(path: path, descriptor: descriptor)
            guard flock(descriptor, operation | LOCK_NB) == 0 else {
                if errno == EWOULDBLOCK { throw IsEnding() }
                return nil
            }
            var (locked, current) = (stat(), stat())
            fstat(descriptor, &locked)
            if lstat(path, &current) == 0, current.st_ino == locked.st_ino { return lease }
            // It was removed meanwhile: the next round finds none, or a new one.
        }
    }

    /// The link is to be ended: no process shares it from now on. The file stays: should this process end before BlueZ
    /// has ended the link, the next one finds it.
    /// - Returns: False if another process uses the link, which stays. Then this process's part in it is given up.
    func beginEnding() -> Bool { descriptor < 0 || flock(descriptor, LOCK_EX | LOCK_NB) == 0 }

    /// The link has ended; or this process's part in it, if others use it.
    func end() { if descriptor >= 0, beginEnding() { unlink(path) } }

    // MARK: What is in the file

    /// Has the file say whose link it is, before anything is asked of BlueZ: otherwise no process could end that.
    private func identify(_ identifier: UUID) -> Bool {
        lines.first.flatMap { UUID(uuidString: $0) } != nil || append(identifier.uuidString)
    }

    /// Notes that preserved state may claim the link should this process die.
    func claim(in statePath: String) {
        if descriptor >= 0, !lines.dropFirst().contains(statePath) { _ = append(statePath) }
    }

    private func append(_ line: String) -> Bool {
        let bytes = [UInt8]((line + "\n").utf8)
        return write(descriptor, bytes, bytes.count) == bytes.count
    }

    private var lines: [String] { Self.lines(of: descriptor) }

    /// No other program writes into the directory, and a path has 4,096 bytes at most.
    private static func lines(of descriptor: Int32) -> [String] {
        var bytes = [UInt8](repeating: 0, count: 65536)
        let count = pread(descriptor, &bytes, bytes.count, 0)
        return String(decoding: bytes.prefix(max(0, count)), as: UTF8.self).split(separator: "\n").map(String.init)
    }

    // MARK: Orphaned links

    /// A file, perhaps of an orphaned link.
    struct Found {
        let name: String
        /// The last element of the device's path.
        let element: String
        let identity: DeviceIdentity
        /// Files of preserved state that may claim it.
        let states: [String]
    }

    /// Links of a generation of bluetoothd, held or not. Removes files of generations that are over.
    /// - Parameter generation: As in the name of ``share(_:in:)``, without the device.
    static func all(of generation: String, in directory: String) -> [Found] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
        let ours = generation.split(separator: " ", omittingEmptySubsequences: false)
        let bus = (ours.first ?? "") + " "
        func endIfOld(_ name: String) { if isOld("\(directory)/\(name)") { inherit(name, in: directory)?.end() } }
        // Of another bus it is not known whether it is there.
        for name in names where !name.hasPrefix(bus) { endIfOld(name) }
        return names.filter { $0.hasPrefix(bus) }.sorted().compactMap { name in
            let parts = name.split(separator: " ", omittingEmptySubsequences: false)
            guard parts.dropLast() == ours[...] else {
                // One bus has one bluetoothd at a time.
                let isOver = ours.count > 2 && parts.count > 3 && parts[2] == ours[2]
                if isOver { inherit(name, in: directory)?.end() } else { endIfOld(name) }
                return nil
            }
            let descriptor = open("\(directory)/\(name)", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
            guard descriptor >= 0 else { return nil }
            defer { close(descriptor) }
            let lines = lines(of: descriptor)
            guard let identity = lines.first.flatMap({ UUID(uuidString: $0) }).flatMap(DeviceIdentity.init(identifier:))
            else {
                // No process that has used it has asked BlueZ for anything yet.
                inherit(name, in: directory)?.end()
                return nil
            }
            return Found(
                name: name, element: parts.last.map(String.init) ?? "", identity: identity,
                states: lines.filter { $0.hasPrefix("/") })  // two who came at once have both written the first line
        }
    }

    private static func isOld(_ path: String) -> Bool {
        var status = stat()
        return lstat(path, &status) == 0 && status.st_mtim.tv_sec + 86_400 < time(nil)
    }

    // MARK: Where the files are

    /// `$XDG_RUNTIME_DIR/bluezkit`, else `/tmp/bluezkit-UID`. Nil if that cannot be made, or is not this user's alone.
    static var directory: String? {
        let isOurs = makeDirectory(path)
        let isNews = isMissing.withLock { isMissing in
            defer { isMissing = !isOurs }
            return !isOurs && !isMissing
        }
        if isNews {
            Log.warning("\(path) is not a directory of this user alone: links are not shared with other programs")
        }
        return isOurs ? path : nil
    }

    /// Makes it again if it has gone: systemd removes it when the user has logged out.
    /// - Returns: Whether it is this user's alone.
    static func makeDirectory(_ path: String) -> Bool {
        var (own, above) = (stat(), stat())
        // Not what root would make in another user's, which would keep that user out until the session ends.
        if stat((path as NSString).deletingLastPathComponent, &above) == 0,
            geteuid() != 0 || above.st_uid == 0 || above.st_mode & S_ISVTX != 0
        {
            mkdir(path, 0o700)
        }
        return lstat(path, &own) == 0 && own.st_mode & S_IFMT == S_IFDIR && own.st_uid == geteuid()
            && own.st_mode & 0o077 == 0
    }

    private static let isMissing = Protected(false)
    private static let path = sharedDirectory()
}
