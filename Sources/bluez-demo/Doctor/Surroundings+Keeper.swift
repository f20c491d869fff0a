import BluezDBus
import BluezKit
import Foundation

extension Surroundings {
    static func keeper() -> KeeperFindings {
        var found = KeeperFindings()
        found.socket = Keeper.path
        found.program = Keeper.program
        found.sharedDirectory = found.socket.flatMap(sharedDirectory)
        guard found.sharedDirectory == nil else { return found }  // what is there is not believed
        do {
            if let managers = try Keeper.status()?.count { found.process = .running(managers: managers) }
        } catch { found.process = .unusable(message: "\(error)") }
        return found
    }

    /// The keeper's directory, or the one in which it will be made. Nil: no other user can write to it.
    static func sharedDirectory(of socket: String) -> String? {
        var path = socket
        var status = stat()
        repeat {
            path = (path as NSString).deletingLastPathComponent
        } while path.count > 1 && stat(path, &status) != 0
        return status.st_uid == geteuid() && status.st_mode & 0o022 == 0 ? nil : path
    }
}
