import BluezDBus
import BluezKit
import Foundation

/// Findings that do not need the bus.
extension Surroundings {
    mutating func lookAround(onlyBus: Bool) {
        // A container need not have it.
        rfkill = access("/sys/class", F_OK) == 0 ? Self.rfkill(in: "/sys/class/rfkill") : nil
        kernel = .current
        isContainer =
            access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0
            || environment("container") != nil
        hasSystemd = access("/run/systemd/system", F_OK) == 0
        isDaemonInstalled = Self.installedDaemons.contains { access($0, X_OK) == 0 }
        if !onlyBus { (sockets, keeper) = (Self.socketFamily(), Self.keeper()) }
    }

    static let installedDaemons = [
        "/usr/libexec/bluetooth/bluetoothd", "/usr/lib/bluetooth/bluetoothd", "/usr/sbin/bluetoothd",
        "/usr/lib/bluez/bluetooth/bluetoothd", "/snap/bin/bluez.bluetoothd",
    ]

    /// The user who runs this program.
    static var user: User {
        let map = try? String(contentsOfFile: "/proc/self/uid_map", encoding: .utf8)
        return User(here: geteuid(), outside: outside(geteuid(), in: map ?? "") ?? geteuid())
    }

    /// - Parameter map: Lines with the first number of a range inside, that outside, and how many there are.
    /// - SeeAlso: user_namespaces(7).
    static func outside(_ user: UInt32, in map: String) -> UInt32? {
        for line in map.split(separator: "\n") {
            let numbers = line.split(separator: " ").compactMap { UInt32($0) }
            guard numbers.count == 3, user >= numbers[0], user - numbers[0] < numbers[2] else { continue }
            return UInt32(exactly: UInt64(user - numbers[0]) + UInt64(numbers[1]))
        }
        return nil
    }

    /// The switches that the kernel shows in a directory such as `/sys/class/rfkill`.
    static func rfkill(in directory: String) -> [RFKill] {
        let entries = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
        return entries.sorted().compactMap { entry in
            func read(_ file: String) -> String? {
                (try? String(contentsOfFile: "\(directory)/\(entry)/\(file)", encoding: .utf8))?
                    .trimmingCharacters(in: .whitespacesAndNewlines)
            }
            guard read("type") == "bluetooth" else { return nil }
            return RFKill(
                name: read("name") ?? entry, isSoftBlocked: read("soft") == "1", isHardBlocked: read("hard") == "1")
        }
    }

    private static func socketFamily() -> SocketFamily {
        // AF_BLUETOOTH, BTPROTO_L2CAP: glibc's headers have no name for them.
        let descriptor = socket(31, Int32(SOCK_SEQPACKET.rawValue), 0)
        guard descriptor >= 0 else { return .refused(message: String(cString: strerror(errno))) }
        close(descriptor)
        return .available
    }

    /// The daemon's command line. It is only read: the owner of the daemon's name on the bus need not be the daemon.
    /// In a container its number is that of another process, or of none.
    mutating func lookAtDaemon(process: UInt32) {
        guard !isContainer, let data = FileManager.default.contents(atPath: "/proc/\(process)/cmdline") else { return }
        let arguments = data.split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
        runsExperimental = arguments.contains("-E") || arguments.contains("--experimental")
    }
}
