import BluezDBus
import BluezKitRestore
import Foundation

/// What an app tells its keeper of a manager first.
struct KeeperHello: Codable, Sendable {
    let role: Snapshot.Role
    /// Where its state is preserved, which tells the manager from others of the user.
    let statePath: String
    /// The program. The keeper believes the kernel rather than this.
    var app: String
    /// The bus, and which adapter; nil: the first one that is powered.
    let address: String
    let adapter: String?
    /// By role.
    var central: CentralManagerCore.Configuration?
    var peripheral: PeripheralManagerCore.Configuration?
    /// What an earlier process has left, for a keeper that has nothing of the manager.
    var preserved: Snapshot?
    let relaunch: BluezRelaunch
    var limits = EventLog.Limits()
    /// Whether this process has lost another connection to a keeper: the app has been told, and asks for everything
    /// again.
    var resumes = false
    /// Whether the callback that ran when an app died is not called again.
    var isAtMostOnce = false

    /// Tells the managers of a user apart.
    var name: String { "\(role.rawValue) \(statePath)" }

    var session: Session.Key {
        Session.Key(address: BusAddress(address), adapter: adapter.map { AdapterChoice($0) })
    }

    /// Where the app's managers preserve their state; nil: nowhere.
    var directory: StateDirectory? {
        guard let end = statePath.lastIndex(of: "/"), end > statePath.startIndex else { return nil }
        return StateDirectory(path: String(statePath[..<end]))
    }

    /// Whether it is another manager of the same app, with its state in the same place.
    func isBeside(_ other: KeeperHello) -> Bool {
        // An environment and arguments are those of one start; a unit or a name on the bus is another app's.
        app == other.app && (relaunch == other.relaunch || !relaunch.namesApp && !other.relaunch.namesApp)
            && name != other.name && directory == other.directory
    }

    /// Whether what was done for `other` is what this one asks for: another version of the app may want another bus or
    /// other permissions, and another program that preserves its state in the same file is not to have its values.
    func continues(_ other: KeeperHello) -> Bool {
        let isSameApp = app == other.app || relaunch == other.relaunch && relaunch.namesApp
        return isSameApp && address == other.address && adapter == other.adapter && central == other.central
            && peripheral == other.peripheral
    }
}

struct KeeperTicket: Codable { let ticket: UInt32 }

struct KeeperQuery<Query: Codable & Sendable>: Codable, Sendable {
    let ticket: UInt32
    let query: Query
}

struct KeeperAnswer<Answer: Codable & Sendable>: Codable, Sendable {
    let ticket: UInt32
    let answer: Answer
}
