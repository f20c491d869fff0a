import BluezKitSimulator
import Foundation
import Glibc
import Testing

/// Apps in processes of their own.
@Suite("Simulator: an app in a process of its own") struct TestAppTests {
    @Test("an app is killed and started again, and is restored; its lines are a sequence")
    func restoration() async throws {
        let simulator = try await Simulator()
        let sensor = simulator.add(.heartRateSensor())
        sensor.notifyRepeatedly("2A37", every: .milliseconds(20)) { [0, UInt8(60 + $0 % 60)] }
        let app = try TestApp("restoration", on: simulator)  // Examples/Restoration
        #expect(try await app.nextLine() == "Looking for a sensor.")
        #expect(try await app.nextLine(containing: "bpm").hasSuffix(" bpm"))
        sensor.advertise(false)
        let first = app.processIdentifier
        try await app.restart()
        #expect(app.processIdentifier != first && app.isRunning)
        var lines: [String] = []
        for try await line in app.lines() {
            lines.append(line)
            if lines.count == 2 { break }
        }
        #expect(lines.first == "Restored.")
        #expect(lines.last?.hasSuffix(" bpm") == true)
        await app.kill()
        #expect(!app.isRunning)
        #expect(try await app.waitForEnd() == .signalled(SIGKILL))
    }

    private func shell(_ script: String, _ simulator: Simulator) throws -> TestApp {
        try TestApp("/bin/sh", arguments: ["-c", script], on: simulator, environment: ["GREETING": "hello"])
    }

    // A child that Foundation starts from a thread of a dispatch queue has all signals blocked.
    @Test("an app that is started from a task gets SIGTERM")
    func terminates() async throws {
        let simulator = try await Simulator()
        let app = try await Task.detached { try self.shell("echo ready; exec sleep 600", simulator) }.value
        try await app.nextLine(containing: "ready")
        #expect(try await app.terminate() == .signalled(SIGTERM))
    }

    @Test("an app has the simulator's bus, a directory for its state that lasts as long as it, and what it is sent")
    func environment() async throws {
        let simulator = try await Simulator()
        var app: TestApp? = try shell(
            "echo $DBUS_SYSTEM_BUS_ADDRESS; echo $BLUEZKIT_STATE_DIR; echo $GREETING; read a; echo got $a; exit 3",
            simulator)
        let directory = try #require(app).stateDirectory.path
        #expect(try await app?.nextLine() == simulator.address)
        #expect(try await app?.nextLine() == directory)
        #expect(try await app?.nextLine() == "hello")
        app?.send("this")
        #expect(try await app?.nextLine() == "got this")
        #expect(try await app?.waitForEnd() == .exited(3))
        #expect(FileManager.default.fileExists(atPath: directory))
        app = nil
        #expect(!FileManager.default.fileExists(atPath: directory))
    }

    @Test("a line that does not come is a failure that shows the last ones; likewise the end, and a missing program")
    func failures() async throws {
        let simulator = try await Simulator()
        let app = try shell("echo one; echo two; exec sleep 600", simulator)
        _ = try await app.nextLine(containing: "two")
        let late = await thrown { try await app.nextLine(containing: "three", within: .milliseconds(200)) }
        #expect("\(late as Any)".contains("three") && "\(late as Any)".contains("one"))
        await app.kill()
        let ended = try shell("echo one", simulator)
        let gone = await thrown { try await ended.nextLine(containing: "two") }
        #expect("\(gone as Any)".contains("has ended without printing 'two'"))
        #expect(throws: TestApp.Failure.self) { try TestApp("no-such-program", on: simulator) }
        var count = 0
        for try await _ in try shell("echo a; echo b; echo c", simulator).lines() { count += 1 }
        #expect(count == 3)
    }

    @Test("what is sent to an app that does not read is lost, and is not waited for")
    func deaf() async throws {
        let app = try shell("sleep 1000", try await Simulator())
        app.send(String(repeating: "x", count: 10_000_000))
        await app.kill()
    }

    @Test("a line is printed as it is, with a byte of zero as well")
    func zeroByte() async throws {
        let app = try shell(#"printf 'a\000b\nc\n'"#, try await Simulator())
        #expect(try await app.nextLine() == "a\0b")
        #expect(try await app.nextLine() == "c")
    }

    #if compiler(>=6.2)  // exit tests
    // An app went on, with a bus that was gone, until it was found and killed by hand.
    @Test("an app ends with the process of the test, also when that is killed")
    func orphan() async throws {
        let directory = try TemporaryDirectory()
        setenv("TEST_APP_FILE", directory.file("pid"), 1)
        await #expect(processExitsWith: .signal(SIGKILL)) {
            let script = "echo $$ > $TEST_APP_FILE; echo ready; exec sleep 600"
            let app = try TestApp("/bin/sh", arguments: ["-c", script], on: try await Simulator())
            try await app.nextLine()
            kill(getpid(), SIGKILL)
        }
        let text = try String(contentsOfFile: directory.file("pid"), encoding: .utf8)
        let pid = try #require(pid_t(text.trimmingCharacters(in: .newlines)))
        // The first process of a container may leave it in the table of processes.
        try await eventually("it has ended") {
            (try? String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8))?.contains(") Z ") ?? true
        }
    }
    #endif

    @Test("a released app is killed")
    func released() async throws {
        let simulator = try await Simulator()
        var app: TestApp? = try shell("echo ready; exec sleep 600", simulator)
        try await app?.nextLine()
        let pid = try #require(app).processIdentifier
        app = nil
        try await eventually("it has ended") { Glibc.kill(pid, 0) != 0 }
    }
}
