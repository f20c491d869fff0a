import BluezKitSimulator
import Foundation
import Glibc
import Testing

@testable import BluezKit
@testable import bluez_demo

/// Programs that write a trace, and the program that shows it.
@Suite struct TraceCommandTests {
    private let place: TracePath
    private static let program = URL(fileURLWithPath: Probe.path).deletingLastPathComponent().path + "/bluez-demo"

    init() throws { place = try TracePath() }

    private struct Outcome {
        let status: Int32
        let output: String
        let errors: String
        var lines: [String] { output.split(separator: "\n").map(String.init) }
    }

    /// Runs the demo until it ends.
    /// - Parameter text: Its output is read up to the line with this text, which ends it; nil: all of it.
    private func demo(
        _ words: [String], environment: [String] = [], launcher: [String] = [], until text: String? = nil
    ) async throws -> Outcome {
        let name = place.directory.path + "/" + UUID().uuidString
        let script =
            if let text {
                // The status of the demo, not of what reads its output.
                "{ \"$@\" 2>\(name).err; echo $? >\(name).status; } | grep -m 1 '\(text)' >\(name).out; "
                    + "exit $(cat \(name).status)"
            } else {
                "\"$@\" >\(name).out 2>\(name).err"
            }
        let status = try await run(
            ["/usr/bin/env"] + environment + ["/bin/sh", "-c", script, "sh"] + launcher + [Self.program] + words,
            within: 6 * world_deadline)
        func content(_ suffix: String) -> String {
            FileManager.default.contents(atPath: name + suffix).map { String(decoding: $0, as: UTF8.self) } ?? ""
        }
        return Outcome(status: status >> 8, output: content(".out"), errors: content(".err"))
    }

    private func bus(_ simulator: Simulator) -> String { "DBUS_SYSTEM_BUS_ADDRESS=\(simulator.address)" }

    // Slow: the simulated BlueZ of the demo has real times: two seconds for the end of each link.
    @Test("the trace of heart-rate has each value that it has shown, in order, and what it has asked for")
    func heartRate() async throws {
        let shown = try await demo(
            ["heart-rate", "--simulated", "--json", "--count", "3"], environment: ["BLUEZKIT_TRACE=\(place.path)"])
        #expect(shown.status == 0 && shown.errors.isEmpty, "\(shown)")
        let measured = shown.lines.filter { $0.contains(#""event":"measurement""#) }
            .compactMap { $0.firstMatch(of: /"heartRate":(\d+)/).flatMap { Int($0.1) } }
        let trace = try await demo(["trace", place.path])
        #expect(trace.status == 0 && trace.errors.isEmpty, "\(trace)")
        // Flags, then beats in one byte.
        let traced = trace.lines.compactMap { line in
            line.firstMatch(of: /<- didUpdateValueFor Simulated Heart 2A37 \[\w\w (\w\w)/).flatMap {
                Int($0.1, radix: 16)
            }
        }
        // Of a program that was stopped for a while, more may have come before it ended the link.
        #expect(measured.count == 3 && traced.prefix(3) == measured[...], "\(trace.output)")
        #expect(trace.lines.allSatisfy { !$0.contains("[") || $0.count <= 80 }, "\(trace.output)")
        #expect(
            trace.output.contains(" BlueZ 5.66"), "it is asked for with the first request, and answers when it does")
        var rest = trace.lines[...]
        for part in [
            " bluez-demo begins: process ", " a central manager: on unix:path=",
            "<- centralManagerDidUpdateState: poweredOn, hci0", "-> scanForPeripherals: 180D",
            "<- didDiscover Simulated Heart: ", "-> stopScan", "-> connect Simulated Heart",
            "<- didConnect Simulated Heart", "-> discoverServices Simulated Heart: ",
            "<- didDiscoverServices Simulated Heart: ", "-> setNotifyValue Simulated Heart 2A37: true",
            "<- didUpdateNotificationStateFor Simulated Heart 2A37: notifying",
            "-> cancelPeripheralConnection Simulated Heart", " ... ",
            "<- didDisconnectPeripheral Simulated Heart: the app has cancelled", "Summary: ",
            "  1 disconnect: the app has cancelled", "  slowest answers:",
        ] {
            let index = try #require(rest.firstIndex { $0.contains(part) }, "\(part) in \(trace.output)")
            rest = rest[(index + 1)...]
        }
        let json = try await demo(["trace", place.path, "--json"])
        #expect(json.status == 0)
        for line in json.lines {
            #expect(try JSONSerialization.jsonObject(with: Data(line.utf8)) is [String: Any], "\(line)")
        }
        #expect(json.lines.last?.hasPrefix(#"{"event":"traceSummary""#) == true)
        try await filters(of: json.lines.count)
    }

    private func filters(of all: Int) async throws {
        let device = try await demo(["trace", place.path, "--json", "--device", "F0:F1:F2:00:00:01"])
        #expect(device.lines.dropLast().allSatisfy { $0.contains("F0F1F2000001") } && device.lines.count < all)
        let late = try await demo(["trace", place.path, "--json", "--from", "2", "--to", "100"])
        #expect(late.lines.count > 1 && late.lines.count < all)
        let none = try await demo(["trace", place.path, "--manager", "2"])
        #expect(none.status == 1 && none.errors.contains("there is nothing to show"), "\(none)")
    }

    @Test("a program that is killed leaves a trace that can be read, up to its last callback")
    func killed() async throws {
        let simulator = try await Simulator()
        simulator.add(VirtualPeripheral.heartRateSensor())
        let output = open("/dev/null", O_WRONLY | O_CLOEXEC)
        defer { close(output) }
        for beats in [1, 2] {
            let process = try spawnChild(
                ["/usr/bin/env", bus(simulator), "BLUEZKIT_TRACE=\(place.path)", Self.program, "heart-rate", "--json"],
                output: output)
            do {
                try await eventually("the sensor is subscribed to", within: 4 * world_deadline) {
                    let processes = place.text.components(separatedBy: "\"began\":")
                    return processes.count == beats + 1 && processes[beats].contains("\"notifying\":")
                }
                killAndWait(process)
            } catch {
                killAndWait(process)
                throw error
            }
        }
        let trace = try await demo(["trace", place.path])
        #expect(trace.status == 0 && trace.errors.isEmpty, "\(trace)")
        #expect(trace.lines.count { $0.contains("bluez-demo begins") } == 2, "\(trace.output)")
        #expect(trace.output.contains("2 processes, 2 managers"))
    }

    @Test("a trace that cannot be written is one complaint, and the program does its work")
    func notWritable() async throws {
        let outcome = try await demo(
            ["scan", "--simulated"], environment: ["BLUEZKIT_TRACE=/nonexistent/trace"], until: "Simulated Heart")
        #expect(outcome.status == 0 && outcome.output.contains("Simulated Heart"), "\(outcome)")
        #expect(
            outcome.errors == "bluez-demo: BLUEZKIT_TRACE: there is no trace: /nonexistent/trace cannot be opened: "
                + "No such file or directory\n")
    }

    @Test("a program with the privileges of another user writes no trace where its environment says")
    func privileged() async throws {
        let launcher = ["/usr/bin/env", "LD_PRELOAD=\(Probe.directory)/libPrivilegedEnvironment.so"]
        let words = ["scan", "--simulated"]
        let trace = ["BLUEZKIT_TRACE=\(place.path)"]
        let privileged = try await demo(words, environment: trace, launcher: launcher, until: "Simulated Heart")
        #expect(privileged.status == 0 && privileged.output.contains("Simulated Heart"), "\(privileged)")
        #expect(access(place.path, F_OK) != 0)
        #expect(try await demo(words, environment: trace, until: "Simulated Heart").status == 0)
        #expect(access(place.path, F_OK) == 0 && place.mode == 0o600)
    }

    @Test("damaged lines are errors with their numbers, at most twenty, and the others are shown")
    func damaged() async throws {
        try TraceFile(place.path, .init()).write(.released, of: 1)
        let good = place.data
        try (good + Data(String(repeating: "{}\n", count: 30).utf8) + good).write(to: URL(fileURLWithPath: place.path))
        let outcome = try await demo(["trace", place.path])
        #expect(outcome.status == 1)
        let errors = outcome.errors.split(separator: "\n")
        #expect(errors.first == "bluez-demo: line 3: it has no \"wall\"" && errors.count == 21, "\(errors)")
        #expect(errors.last == "bluez-demo: 10 more lines cannot be read")
        #expect(outcome.lines.count { $0.contains("the manager is released") } == 2)
        #expect(outcome.output.contains("Summary: 4 lines"), "\(outcome.output)")
    }

    @Test("a file that is not there, a directory, and an empty file are errors")
    func noTrace() async throws {
        let missing = try await demo(["trace", "/nonexistent"])
        #expect(missing.status == 1)
        #expect(missing.errors == "bluez-demo: '/nonexistent' cannot be read: No such file or directory\n")
        let folder = try await demo(["trace", place.directory.path])
        #expect(folder.status == 1 && folder.errors.contains("is not a regular file"), "\(folder)")
        let pipe = place.directory.path + "/pipe"
        #expect(mkfifo(pipe, 0o600) == 0)
        let waiting = try await demo(["trace", pipe])
        #expect(waiting.status == 1 && waiting.errors.contains("is not a regular file"), "\(waiting)")
        _ = FileManager.default.createFile(atPath: place.path, contents: Data())
        let empty = try await demo(["trace", place.path])
        #expect(empty.status == 1 && empty.errors == "bluez-demo: there is nothing to show in '\(place.path)'\n")
    }
}
