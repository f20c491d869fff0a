import Foundation
import Testing

// A program with more privileges than the user who started it (set-user-ID) took its bus, and so a program to run, its
// state and its adapter from the environment of that user. Now it ignores the environment (secure_getenv).
@Suite struct EnvironmentTests {
    /// Makes the program that follows one with more privileges than its user.
    enum Launcher: String, CaseIterable {
        /// What the C library says in such a program: as any user.
        case library
        /// The kernel: a program that is started with one real user and another effective one is one, whatever its
        /// file's mode is. Only root can arrange it.
        case kernel

        var words: [String] {
            switch self {
            case .library:
                let directory = URL(fileURLWithPath: Probe.path).deletingLastPathComponent().path
                return ["/usr/bin/env", "LD_PRELOAD=\(directory)/libPrivilegedEnvironment.so"]
            case .kernel: return ["/usr/bin/setpriv", "--ruid=65534"]
            }
        }

        static let possible = allCases.filter {
            $0 != .kernel || getuid() == 0 && access("/usr/bin/setpriv", X_OK) == 0
        }
    }

    @Test(
        "a program with the privileges of another user takes no state from the environment",
        arguments: Launcher.possible)
    func state(_ launcher: Launcher) throws {
        let directory = try TemporaryDirectory()
        let file = directory.path + "/central-app.json"
        try "{".write(toFile: file, atomically: true, encoding: .utf8)
        let environment = ["BLUEZKIT_STATE_DIR": directory.path, "HOME": "/nonexistent"]
        #expect(try demo("state", by: [], environment).contains(file))
        let privileged = try demo("state", by: launcher.words, environment)
        #expect(!privileged.contains(file) && privileged.contains("Nothing is preserved"), "\(privileged)")
    }

    @Test(
        "a program with the privileges of another user takes no bus from the environment", arguments: Launcher.possible)
    func bus(_ launcher: Launcher) throws {
        let directory = try TemporaryDirectory()
        // A bus can be a program that libdbus runs; and a shell gives up the rights of another user.
        chmod(directory.path, 0o777)
        let (program, mark) = (directory.path + "/bus", directory.path + "/was-run")
        try "#!/bin/sh\n: > '\(mark)'\n".write(toFile: program, atomically: true, encoding: .utf8)
        chmod(program, 0o755)
        let environment = ["DBUS_SYSTEM_BUS_ADDRESS": "unixexec:path=\(program)"]
        let privileged = try demo("doctor", by: launcher.words, environment)
        #expect(access(mark, F_OK) != 0, "\(privileged)")
        let ordinary = try demo("doctor", by: [], environment)
        #expect(access(mark, F_OK) == 0, "\(ordinary)")
    }

    // Only as the C library says: the shell that starts the simulated bus gives up the rights of another user.
    @Test(
        "a program with the privileges of another user takes no adapter and no runtime directory from the environment")
    func adapter() throws {
        let (own, other) = (try TemporaryDirectory(), try TemporaryDirectory())
        let inspect = "inspect --simulated 426C7A4B-0100-8000-8000-F0F1F2000001"
        func environment(_ directory: TemporaryDirectory, _ adapter: [String: String]) -> [String: String] {
            adapter.merging(["PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": directory.path]) { $1 }
        }
        let adapter = ["BLUEZKIT_ADAPTER": "hci7"]
        // Beside each other, as each takes some seconds.
        let privileged = try begin(inspect, by: Launcher.library.words, environment(own, adapter))
        let misled = try begin(inspect, by: [], environment(other, adapter))
        let ordinary = try begin(inspect, by: [], environment(other, ["BLUEZKIT_ADAPTER": "00:b1:5e:00:00:01"]))
        #expect(privileged().contains("Simulated sensor"))
        #expect(access(own.path + "/bluezkit", F_OK) != 0)
        #expect(misled().contains("there is no adapter hci7, which BLUEZKIT_ADAPTER asks for"))
        #expect(ordinary().contains("Simulated sensor"))
        #expect(access(other.path + "/bluezkit", F_OK) == 0)
    }

    // The doctor asked the daemon for its version by running the program that is called as its process says, which is
    // whatever who started it likes. Now nothing is run.
    @Test("the doctor runs no program that the owner of org.bluez claims to be")
    func daemonName() throws {
        let directory = try TemporaryDirectory()
        let (program, mark) = (directory.path + "/bluetoothd", directory.path + "/was-run")
        try "#!/bin/sh\n: > '\(mark)'\n".write(toFile: program, atomically: true, encoding: .utf8)
        chmod(program, 0o755)
        let (daemon, output) = try start(
            ["/bin/bash", "-c", "exec -a \"$0\" \"$1\" simulate", program, Self.demo], environment: [:])
        defer {
            daemon.terminate()
            daemon.waitUntilExit()
        }
        var text = ""
        while !text.contains("\n") {
            let part = output.availableData
            try #require(!part.isEmpty, "\(text)")
            text += String(decoding: part, as: UTF8.self)
        }
        let name = "DBUS_SYSTEM_BUS_ADDRESS"
        let address = try #require(text.split(separator: "\n").first { $0.hasPrefix(name) }?.dropFirst(name.count + 1))
        let report = try demo("doctor", by: [], [name: String(address)])
        #expect(report.contains("bluetoothd"), "\(report)")
        #expect(access(mark, F_OK) != 0, "\(report)")
    }

    private static let demo = URL(fileURLWithPath: Probe.path).deletingLastPathComponent().path + "/bluez-demo"

    /// - Returns: What `bluez-demo` prints.
    private func demo(_ command: String, by launcher: [String], _ environment: [String: String]) throws -> String {
        try begin(command, by: launcher, environment)()
    }

    /// - Returns: What waits for its end, and returns what it has printed.
    private func begin(
        _ command: String, by launcher: [String], _ environment: [String: String]
    ) throws -> () -> String {
        let words = launcher + [Self.demo] + command.split(separator: " ").map(String.init)
        let (process, output) = try start(words, environment: environment)
        return {
            let text = output.readDataToEndOfFile()
            process.waitUntilExit()
            return String(decoding: text, as: UTF8.self)
        }
    }

    private func start(_ words: [String], environment: [String: String]) throws -> (Process, FileHandle) {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: words[0])
        process.arguments = Array(words.dropFirst())
        process.environment = environment
        let output = Pipe()
        (process.standardOutput, process.standardError) = (output, output)
        try process.run()
        return (process, output.fileHandleForReading)
    }
}
