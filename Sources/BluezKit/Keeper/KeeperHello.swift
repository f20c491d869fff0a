import BluezKitRestore
import Foundation

/// What an app tells its keeper of a manager first.
struct KeeperHello: Codable, Sendable {
    let role: Snapshot.Role
    /// Where its state is preserved, which tells the manager from others of the user.
    let statePath: String
    /// The bus, and which adapter; nil: the first one that is powered.
    let address: String
    let adapter: String?
    let central: CentralManagerCore.Configuration?
    /// What an earlier process has left, for a keeper that has nothing of the manager.
    var preserved: Snapshot?
    let relaunch: BluezRelaunch
    /// Whether this process has lost another connection to a keeper: the app has been told, and asks for everything
    /// again.
    var resumes = false
    /// Whether the callback that ran when an app died is not called again.
    var isAtMostOnce = false
}

/// What the keeper answers. The page goes beside it.
struct KeeperWelcome: Codable, Sendable {
    /// Nil: the keeper had nothing of the manager.
    let handOver: HandOver?
}
