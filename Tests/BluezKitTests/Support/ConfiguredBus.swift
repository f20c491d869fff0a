import BluezKitSimulator
import BluezDBus
import Foundation

/// A D-Bus daemon that listens on the given addresses. Ends with this object, and with this process however it ends.
final class ConfiguredBus: @unchecked Sendable {  // holds: constant after init
    struct Failed: Error, CustomStringConvertible { let description: String }

    /// All addresses, in the order in which they were requested.
    let addresses: [BusAddress]
    let directory: URL
    private let shell = Process()
    private let lifeline = Pipe()

    /// - Parameter listen: `tcp:host=127.0.0.1,port=0`, `unix:abstract=…`; `DIR` is replaced by a directory of its own.
    init(listen: [String], auth: [String] = ["EXTERNAL", "ANONYMOUS"]) throws {
        let directory = FileManager.default.temporaryDirectory.appendingPathComponent(
            "bluezkit-test-\(UUID().uuidString)")
        self.directory = directory
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        let lines =
            listen.map { "<listen>\($0.replacingOccurrences(of: "DIR", with: directory.path))</listen>" }
            + auth.map { "<auth>\($0)</auth>" }
        try """
        <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
         "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
        <busconfig>
        <type>session</type>
        \(lines.joined(separator: "\n"))
        <allow_anonymous/>
        <policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/>
        <allow own="*"/></policy>
        </busconfig>
        """.write(to: directory.appendingPathComponent("bus.conf"), atomically: false, encoding: .utf8)
        let output = Pipe()
        shell.executableURL = URL(fileURLWithPath: "/bin/sh")
        // Without `wait`: the shell may have SIGCHLD blocked, as threads of a dispatch queue have, and would wait
        // forever.
        shell.arguments = [
            "-c",
            """
            dbus-daemon --nofork --nopidfile --nosyslog --config-file="$1/bus.conf" --print-address=1 2>"$1/log" &
            daemon=$!
            exec >/dev/null
            read line
            kill -9 $daemon
            rm -rf "$1"
            """, "sh", directory.path,
        ]
        shell.standardInput = lifeline
        // A child that another test starts in the meantime must not keep it open.
        _ = fcntl(lifeline.fileHandleForWriting.fileDescriptor, F_SETFD, FD_CLOEXEC)
        shell.standardOutput = output
        try shell.run()
        let data = output.fileHandleForReading.availableData
        let line = String(decoding: data, as: UTF8.self).trimmingCharacters(in: .whitespacesAndNewlines)
        guard !line.isEmpty else {
            let log = try? String(contentsOf: directory.appendingPathComponent("log"), encoding: .utf8)
            try? lifeline.fileHandleForWriting.close()
            throw Failed(description: "dbus-daemon did not start: \(log ?? "")")
        }
        addresses = line.split(separator: ";").map { BusAddress(String($0)) }
    }

    deinit {
        // The shell then ends the daemon. It is not waited for, because that would need a run loop.
        try? lifeline.fileHandleForWriting.close()
    }

    func address(_ transport: String) throws -> BusAddress {
        guard let found = addresses.first(where: { $0.rawValue.hasPrefix(transport) }) else {
            throw Failed(description: "no \(transport) among \(addresses)")
        }
        return found
    }
}
