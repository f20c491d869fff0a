import Foundation
import Testing

// A program with more privileges than the user who started it (set-user-ID) took its bus, and so a program to run, its
// state and its adapter from the environment of that user. Now it ignores the environment (secure_getenv).
@Suite struct EnvironmentTests {
    /// A program that is started with one real user and another effective one is one, whatever its file's mode is.
    @Test(
        "a program with the privileges of another user ignores the environment",
        .enabled(if: getuid() == 0 && access("/usr/bin/setpriv", X_OK) == 0, "only root can arrange it"))
    func setUserID() throws {
        let directory = try TemporaryDirectory()
        let file = directory.path + "/central-app.json"
        try "{".write(toFile: file, atomically: true, encoding: .utf8)
        #expect(try preservedState(in: directory, by: []).contains(file))
        let privileged = try preservedState(in: directory, by: ["/usr/bin/setpriv", "--ruid=65534"])
        #expect(!privileged.contains(file) && privileged.contains("Nothing is preserved"), "\(privileged)")
    }

    private func preservedState(in directory: TemporaryDirectory, by launcher: [String]) throws -> String {
        let demo = URL(fileURLWithPath: Probe.path).deletingLastPathComponent().path + "/bluez-demo"
        let words = launcher + [demo, "state"]
        let process = Process()
        process.executableURL = URL(fileURLWithPath: words[0])
        process.arguments = Array(words.dropFirst())
        process.environment = ["BLUEZKIT_STATE_DIR": directory.path, "HOME": "/nonexistent"]
        let output = Pipe()
        (process.standardOutput, process.standardError) = (output, output)
        try process.run()
        let text = output.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        return String(decoding: text, as: UTF8.self)
    }
}
