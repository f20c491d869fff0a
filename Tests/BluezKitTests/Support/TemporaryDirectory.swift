import BluezKitRestore
import CoreBluetooth
import Foundation

/// A directory that is removed with the test.
final class TemporaryDirectory: Sendable {
    let path: String

    init() throws {
        path = NSTemporaryDirectory() + "/bluezkit-test-\(UUID().uuidString)"
        try FileManager.default.createDirectory(
            atPath: path, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
    }

    /// What is in another one now.
    convenience init(copying other: TemporaryDirectory) throws {
        try self.init()
        for name in try FileManager.default.contentsOfDirectory(atPath: other.path) {
            try FileManager.default.copyItem(atPath: "\(other.path)/\(name)", toPath: "\(path)/\(name)")
        }
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    /// Of a central manager with the identifier `app` that preserves its state here.
    var centralOptions: [String: Any] {
        [CBCentralManagerOptionRestoreIdentifierKey: "app", BluezManagerOptionStateDirectoryKey: path]
    }

    /// The state files in it.
    var files: [String] {
        ((try? FileManager.default.contentsOfDirectory(atPath: path)) ?? []).filter { $0.hasSuffix(".json") }.sorted()
    }

    /// The state file of a central manager whose identifier needs no escaping.
    func file(_ identifier: String) -> String { "\(path)/central-\(identifier).json" }

    func edit(_ name: String, _ change: (String) -> String) throws {
        let file = "\(path)/\(name)"
        try change(String(contentsOfFile: file, encoding: .utf8)).write(toFile: file, atomically: true, encoding: .utf8)
    }

    /// Changes preserved state, as if it had been written that way.
    func editState(_ name: String, _ change: (inout Snapshot) -> Void) throws {
        let file = URL(fileURLWithPath: "\(path)/\(name)")
        var snapshot = try Snapshot(fileContent: Data(contentsOf: file))
        change(&snapshot)
        try snapshot.fileContent().write(to: file, options: .atomic)
    }
}
