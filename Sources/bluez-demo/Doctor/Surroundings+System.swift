import Foundation

/// What can be found out without the bus.
extension Surroundings {
    mutating func lookAround(onlyBus: Bool) {
        rfkill = Self.rfkill(in: "/sys/class/rfkill")
        isContainer =
            access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0
            || Terminal.environment("container") != nil
        isDaemonInstalled = Self.installedDaemons.contains { access($0, X_OK) == 0 }
        if !onlyBus { sockets = Self.socketFamily() }
    }

    static let installedDaemons = [
        "/usr/libexec/bluetooth/bluetoothd", "/usr/lib/bluetooth/bluetoothd", "/usr/sbin/bluetoothd",
        "/usr/lib/bluez/bluetooth/bluetoothd", "/snap/bin/bluez.bluetoothd",
    ]

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

    /// What the daemon was started with, and what its program says of its version.
    mutating func lookAtDaemon(process: UInt32) {
        var arguments: [String] = []
        if let data = FileManager.default.contents(atPath: "/proc/\(process)/cmdline") {
            arguments = data.split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
        }
        runsExperimental = arguments.contains("-E") || arguments.contains("--experimental")
        let running = arguments.first.flatMap { $0.hasPrefix("/") ? $0 : nil }
        // Only a daemon that was seen running may be asked: another one on the disk proves nothing.
        if let running, running.hasSuffix("/bluetoothd"), access(running, X_OK) == 0 {
            daemonVersion = Self.version(of: running)
        }
    }

    private static func version(of program: String) -> Version? {
        let process = Process()
        let pipe = Pipe()
        process.executableURL = URL(fileURLWithPath: program)
        process.arguments = ["--version"]
        process.standardInput = FileHandle.nullDevice
        process.standardOutput = pipe
        process.standardError = FileHandle.nullDevice
        guard (try? process.run()) != nil else { return nil }
        let output = pipe.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        guard process.terminationStatus == 0 else { return nil }
        return Version(String(decoding: output, as: UTF8.self))
    }
}
