import BluezKitRestore
import Foundation

/// What a keeper hosts, for the next one if it is killed: a file beside its socket, which ends with the user's session.
package struct KeeperJournal: Sendable {
    private let path: String

    package init(socket: String) { path = socket + ".managers" }

    /// What each manager's app has told last.
    func write(_ managers: [KeeperHello]) {
        do {
            let bytes = try BorderFormat.encoder().encode(managers)
            unlink(path + ".new")
            let descriptor = open(path + ".new", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o600)
            guard descriptor >= 0 else { throw POSIXError(POSIXErrorCode(rawValue: errno) ?? .EACCES) }
            let file = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
            try file.write(contentsOf: bytes)
            guard rename(path + ".new", path) == 0 else { throw POSIXError(POSIXErrorCode(rawValue: errno) ?? .EACCES) }
        } catch { Log.warning("\(path) cannot be written: \(error.localizedDescription)") }
    }

    func read() -> [KeeperHello] {
        guard let content = try? SnapshotStore.content(of: path, mustBeOurs: true) else { return [] }
        // By a keeper of another version, perhaps: what can be read counts.
        return ((try? BorderFormat.decoder().decodeSafely([Readable].self, from: content)) ?? []).compactMap(\.manager)
    }

    private struct Readable: Decodable {
        let manager: KeeperHello?
        init(from decoder: any Decoder) { manager = try? KeeperHello(from: decoder) }
    }

    /// No keeper is to continue with this one.
    func strike(_ statePath: String) {
        let managers = read()
        let rest = managers.filter { $0.statePath != statePath }
        if rest.count < managers.count { write(rest) }
    }

    /// The managers of apps that are not running, with what these have preserved. Other apps connect again themselves.
    func orphans() -> [KeeperHello] {
        read().compactMap { manager in
            guard let snapshot = Self.preserved(by: manager) else { return nil }
            var manager = manager
            (manager.preserved, manager.resumes) = (snapshot, false)
            return manager
        }
    }

    /// - Returns: Nil: nothing, or its app is running.
    private static func preserved(by manager: KeeperHello) -> Snapshot? {
        guard let end = manager.statePath.lastIndex(of: "/"),
            let content = try? SnapshotStore.content(of: manager.statePath, mustBeOurs: true),
            let found = try? Snapshot(fileContent: content), found.role == manager.role, !found.isEmpty,
            let store = try? SnapshotStore(
                StateDirectory(path: String(manager.statePath[..<end])), manager.role, found.identifier)
        else { return nil }
        defer { store.close() }
        return store.path == manager.statePath ? try? store.load() : nil
    }
}
