import BluezKitSimulator
import Foundation
import Glibc
import Testing

@testable import bluez_demo

/// Each command as a program of its own, with simulated devices. The optimized ring runs them optimized.
@Suite struct CommandTests {
    private let folder: TemporaryDirectory
    private static let card = "BEGIN:VCARD\nFN:Ada\nEND:VCARD\n"
    static let trace = #"""
        {"wall":1,"clock":1,"process":7,"manager":1,"message":{"centralRequest":{"_0":{"request":{"endScan":{}}}}}}

        """#

    init() throws {
        folder = try TemporaryDirectory()
        try Self.card.write(toFile: folder.path + "/a.vcf", atomically: true, encoding: .utf8)
        try Self.trace.write(toFile: folder.path + "/trace", atomically: true, encoding: .utf8)
    }

    private static let program = URL(fileURLWithPath: Probe.path).deletingLastPathComponent().path + "/bluez-demo"

    private struct Outcome {
        let status: Int32
        let output: String
        let errors: String
    }

    /// Runs the demo until it ends.
    /// - Parameters:
    ///   - redirection: What a shell does with its output, such as `>/dev/full`.
    ///   - limit: What the shell limits before, such as `ulimit -f 4`.
    private func demo(
        _ words: [String], bus: String? = nil, environment: [String] = [], redirection: String = "", limit: String = ":"
    ) async throws -> Outcome {
        let name = folder.path + "/" + UUID().uuidString
        // The status of the demo, not of what reads its output.
        let script =
            "\(limit); { \"$0\" \"$@\" 2>\(name).err; echo $? >\(name).status; } \(redirection.isEmpty ? ">\(name).out" : redirection)"
        _ = try await run(
            [
                "/usr/bin/env", "DBUS_SYSTEM_BUS_ADDRESS=\(bus ?? "unix:path=/nowhere")",
            ] + environment + ["/bin/sh", "-c", script, Self.program] + words,
            within: 6 * world_deadline)
        func content(_ suffix: String) -> String {
            FileManager.default.contents(atPath: name + suffix).map { String(decoding: $0, as: UTF8.self) } ?? ""
        }
        let status = Int32(content(".status").trimmingCharacters(in: .whitespacesAndNewlines))
        return Outcome(status: try #require(status), output: content(".out"), errors: content(".err"))
    }

    /// Starts the demo.
    /// - Returns: What it has said so far: its output and its errors, in a file of this name.
    private func start(
        _ words: [String], _ name: String, bus: String = "unix:path=/nowhere", environment: [String] = []
    ) throws -> (process: pid_t, said: () -> String) {
        let path = folder.path + "/" + name
        let file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o644)
        defer { close(file) }
        let process = try spawnChild(
            ["/usr/bin/env", "DBUS_SYSTEM_BUS_ADDRESS=\(bus)"] + environment
                + ["/bin/sh", "-c", "exec \"$0\" \"$@\" 2>&1", Self.program] + words, output: file)
        return (process, { (try? String(contentsOfFile: path, encoding: .utf8)) ?? "" })
    }

    /// What follows the name of a command, and what a person and a program read of it.
    private static let work: [String: (words: [String], text: String, json: String)] = [
        "scan": (["--simulated", "--duration", "4"], "Simulated Heart\tHeart Rate, Battery", #""event":"discovered""#),
        "heart-rate": (["--simulated", "--count", "2"], " bpm   RR ", #""event":"measurement""#),
        "inspect": (["--simulated", "F0:F1:F2:00:00:01"], "Body Sensor Location", #""event":"characteristic""#),
        "record": (
            ["F0:F1:F2:00:00:01", "--simulated", "--seconds", "1", "--values", "-o", "FOLDER/r.json"], "Recorded ",
            #""event":"recorded""#
        ),
        "state": (["--directory", "FOLDER"], "Nothing is preserved.", ""),
        "peripheral heart-rate": (
            ["--simulated", "--duration", "6"], "A central has subscribed", #""event":"subscribed""#
        ),
        "card share": (["FOLDER/a.vcf", "--simulated", "--count", "1"], "Sharing Ada", #""event":"sent""#),
        "card receive": (["--simulated"], "BEGIN:VCARD", #""event":"received""#),
        "notifications": (["--simulated", "--count", "1"], "Ada Lovelace", #""event":"notification""#),
        "ladder": (["--simulated"], "L2CAP", #""event":"rung""#),
        "trace": (["FOLDER/trace"], "0.000  1 -> stopScan", #""name":"stopScan""#),
        "doctor": ([], "Bluetooth is usable. Next: bluez-demo scan", #""event":"verdict","usable":true"#),
        "simulate": (["--list"], "two-adapters: ", #""event":"scenario""#),
    ]
    private static let names = CommandSpec.all.map(\.name)

    // Slow: twelve programs in turn, whose simulated BlueZ has real times: two seconds for the end of each link.
    @Test("each command does its work, for people and for programs", arguments: names)
    func works(_ name: String) async throws {
        guard let work = Self.work[name] else {
            // With two programs.
            #expect(name.hasPrefix("transfer "))
            return
        }
        let simulator = try await Simulator()
        let words =
            name.split(separator: " ").map(String.init)
            + work.words.map { $0.replacingOccurrences(of: "FOLDER", with: folder.path) }
        async let forPeople = demo(words, bus: simulator.address)
        async let forPrograms = demo(words + ["--json"], bus: simulator.address)
        for (outcome, expected) in [(try await forPeople, work.text), (try await forPrograms, work.json)] {
            #expect(outcome.status == 0, "\(outcome)")
            #expect(outcome.errors.isEmpty, "\(outcome)")
            #expect(expected.isEmpty || outcome.output.contains(expected), "\(outcome)")
        }
    }

    @Test("a file is transferred on the bus of two adapters, for people and for programs", arguments: [false, true])
    func transfers(isJSON: Bool) async throws {
        let simulator = try await Simulator(adapterAddresses: ["00:B1:5E:00:00:01", "00:B1:5E:00:00:02"])
        let options = ["--timeout", String(4 * world_deadline)] + (isJSON ? ["--json"] : [])
        async let receiving = demo(
            ["transfer", "receive", folder.path + "/b", "--adapter", "hci0"] + options, bus: simulator.address)
        let sending = try await demo(
            ["transfer", "send", folder.path + "/a.vcf", "--adapter", "hci1"] + options, bus: simulator.address)
        for outcome in [sending, try await receiving] {
            #expect(outcome.status == 0, "\(outcome)")
            #expect(
                outcome.output.contains(isJSON ? #""event":"transferred""# : "The SHA-256 is the same at both ends"))
        }
        #expect(try String(contentsOfFile: folder.path + "/b", encoding: .utf8) == Self.card)
    }

    // A central that opened the channel and said nothing kept every sender away.
    @Test("a central that opens the channel and says nothing loses its turn to a sender")
    func silentChannel() async throws {
        let simulator = try await Simulator(adapterAddresses: ["00:B1:5E:00:00:01", "00:B1:5E:00:00:02"])
        let limit = ["--via", "l2cap", "--timeout", String(4 * world_deadline)]
        // A central may be silent for a second, not ten.
        async let receiving = demo(
            ["transfer", "receive", folder.path + "/b", "--adapter", "hci0"] + limit, bus: simulator.address,
            environment: ["BLUEZ_DEMO_SILENCE=1"])
        let hog = simulator.central()
        var psm: [UInt8] = []
        try await eventually("the channel is published", within: 4 * world_deadline) {
            do {
                _ = try await hog.connect(to: "00:B1:5E:00:00:01")
                psm = try await hog.read("abdd3056-28fa-441d-a470-55a75a52553a")
                return true
            } catch { return false }
        }
        let channel = try await hog.openChannel(UInt16(psm[0]) | UInt16(psm[1]) << 8)
        let sending = try await demo(
            ["transfer", "send", folder.path + "/a.vcf", "--adapter", "hci1"] + limit, bus: simulator.address)
        #expect(sending.status == 0, "\(sending)")
        #expect(try await receiving.status == 0)
        #expect(try String(contentsOfFile: folder.path + "/b", encoding: .utf8) == Self.card)
        withExtendedLifetime(channel) {}
    }

    // The sender said "Sent", and ended with success.
    @Test("a refused card does not count as sent", arguments: [false, true])
    func refusedCard(isJSON: Bool) async throws {
        let simulator = try await Simulator(adapterAddresses: ["00:B1:5E:00:00:01", "00:B1:5E:00:00:02"])
        let json = isJSON ? ["--json"] : []
        async let sharing = demo(
            ["card", "share", folder.path + "/a.vcf", "--count", "1", "--adapter", "hci0"] + json,
            bus: simulator.address)
        let receiving = try await demo(
            ["card", "receive", "--max-size", "10", "--min-rssi", "-127", "--adapter", "hci1"] + json,
            bus: simulator.address)
        let reason = "it has \(Self.card.utf8.count) bytes, more than the 10 that --max-size permits"
        #expect(receiving.status == 1 && receiving.errors.contains(reason), "\(receiving)")
        let shared = try await sharing
        #expect(shared.status == 1 && shared.errors.isEmpty, "\(shared)")
        #expect(shared.output.contains(isJSON ? #""event":"refused""# : "It refused the card: \(reason)"), "\(shared)")
        #expect(!shared.output.contains(isJSON ? #""event":"sent""# : "Sent"), "\(shared)")
    }

    // Slow: three programs in turn, whose simulated BlueZ has real times: two seconds for the end of each link.
    @Test("a card is shared with one machine after the other")
    func sharesTwice() async throws {
        let simulator = try await Simulator(adapterAddresses: ["00:B1:5E:00:00:01", "00:B1:5E:00:00:02"])
        async let sharing = demo(
            ["card", "share", folder.path + "/a.vcf", "--count", "2", "--adapter", "hci0"], bus: simulator.address)
        let receive = ["card", "receive", "--min-rssi", "-127", "--adapter", "hci1"]
        let shown = try await demo(receive, bus: simulator.address)
        #expect(shown.status == 0 && shown.output.contains("Received Ada, 29 bytes."), "\(shown)")
        #expect(shown.output.contains("  FN:Ada\n"), "\(shown)")
        let saved = try await demo(receive + ["--output", folder.path + "/b"], bus: simulator.address)
        #expect(saved.status == 0 && !saved.output.contains("FN:"), "\(saved)")
        #expect(try String(contentsOfFile: folder.path + "/b", encoding: .utf8) == Self.card)
        #expect(try await sharing.status == 0)
    }

    // The sender ended before it had answered, and the receiver looked for it again, without a word of the reason.
    @Test("a receiver that refuses the notifications of a sender says why, and ends")
    func refusedFile() async throws {
        let simulator = try await Simulator(adapterAddresses: ["00:B1:5E:00:00:01", "00:B1:5E:00:00:02"])
        let options = ["--via", "notify", "--timeout", String(4 * world_deadline), "--adapter"]
        async let sending = demo(
            ["transfer", "send", folder.path + "/a.vcf"] + options + ["hci0"], bus: simulator.address)
        let receiving = try await demo(
            ["transfer", "receive", folder.path + "/b", "--max-size", "10"] + options + ["hci1"], bus: simulator.address
        )
        let reason = "it has \(Self.card.utf8.count) bytes, more than the 10 that --max-size permits"
        #expect(receiving.status == 1 && receiving.errors.contains(reason), "\(receiving)")
        let sent = try await sending
        #expect(sent.status == 1 && sent.errors.contains("the other end refuses it: \(reason)"), "\(sent)")
    }

    @Test(
        "output that cannot be written is an error",
        arguments: [
            // Without a duration, in which Bluetooth would have to be on.
            ["scan", "--simulated"], ["state", "--directory", "/"], ["--help"],
            ["simulate", "--list"],
        ])
    func fullDisk(_ words: [String]) async throws {
        let outcome = try await demo(words, redirection: ">/dev/full")
        #expect(outcome.status == 1)
        #expect(outcome.errors == "bluez-demo: the output cannot be written: No space left on device\n")
    }

    // SIGXFSZ ended it without a word; where that is ignored it said twice that "the operation could not be completed".
    @Test("a file that may not become large enough is an error, and the one that was there stays")
    func fileLimit() async throws {
        let recordings = try TemporaryDirectory()
        let recording = recordings.path + "/r.json"
        try "old".write(toFile: recording, atomically: false, encoding: .utf8)
        let simulator = try await Simulator()
        let heart = simulator.add(.rigHeart())
        let limit = "ulimit -f 1"  // 512 bytes, in bash 1,024
        let outcome = try await demo(
            ["record", heart.address, "--seconds", "0.1", "--values", "-o", recording], bus: simulator.address,
            limit: limit)
        #expect(outcome.status == 1)
        #expect(outcome.errors == "bluez-demo: '\(recording)' cannot be written: File too large\n")
        #expect(try String(contentsOfFile: recording, encoding: .utf8) == "old")
        #expect(try FileManager.default.contentsOfDirectory(atPath: recordings.path) == ["r.json"])

        let help = try await demo(["--help"], limit: limit)
        #expect(help.status == 1)
        #expect(help.errors == "bluez-demo: the output cannot be written: File too large\n")
    }

    @Test("a reader that has read enough ends the program, quietly")
    func closedPipe() async throws {
        // Each ends in another callback.
        try await withThrowingTaskGroup(of: Outcome.self) { group in
            for count in 1...5 {
                group.addTask {
                    try await demo(["heart-rate", "--simulated", "--json"], redirection: "| head -\(count) >/dev/null")
                }
            }
            for try await outcome in group { #expect(outcome.status == 0 && outcome.errors.isEmpty, "\(outcome)") }
        }
    }

    @Test("a directory of state that is not there is an error")
    func missingDirectory() async throws {
        let outcome = try await demo(["state", "--directory", "/nonexistent"])
        #expect(outcome.status == 1 && outcome.output.isEmpty)
        #expect(outcome.errors == "bluez-demo: there is no directory '/nonexistent'\n")
    }

    // It looked like a directory in which nothing is preserved.
    @Test("a file in place of a directory of state is an error")
    func fileForDirectory() async throws {
        let outcome = try await demo(["state", "--directory", folder.path + "/a.vcf"])
        #expect(outcome.status == 1 && outcome.output.isEmpty)
        #expect(outcome.errors == "bluez-demo: '\(folder.path)/a.vcf' is not a directory\n")
    }

    @Test("a time limit that ends before Bluetooth was on names the adapter, not what did not come")
    func earlyTimeLimit() async throws {
        let simulator = try await Simulator()
        let outcome = try await demo(
            ["heart-rate", "--adapter", "hci7", "--timeout", "0.5"], bus: simulator.address)
        #expect(outcome.status == 3)
        #expect(
            outcome.errors == "bluez-demo: there is no adapter hci7: choose one of these: hci0 (00:B1:5E:00:00:01)\n")
    }

    @Test("without arguments the commands are listed, as a mistake")
    func noArguments() async throws {
        let outcome = try await demo([])
        #expect(outcome.status == 2 && outcome.output.isEmpty && outcome.errors.contains("usage: bluez-demo COMMAND"))
    }

    @Test("a receiver that is interrupted says where the part is and how to go on; its sender looks for it again")
    func interrupted() async throws {
        let simulator = try await Simulator(adapterAddresses: ["00:B1:5E:00:00:01", "00:B1:5E:00:00:02"])
        let content = Data((0..<2_000_000).map { UInt8(truncatingIfNeeded: $0) })
        try content.write(to: URL(fileURLWithPath: folder.path + "/a"))
        let receive = ["transfer", "receive", folder.path + "/b", "--adapter", "hci0", "--via", "write"]
        var (receiver, saidReceiver) = try start(receive, "receiver", bus: simulator.address)
        let (sender, saidSender) = try start(
            ["transfer", "send", folder.path + "/a", "--adapter", "hci1", "--via", "write"], "sender",
            bus: simulator.address)
        defer { killAndWait(sender) }
        try await eventually("a part of it", within: 4 * world_deadline) {
            (FileManager.default.contents(atPath: folder.path + "/b.part")?.count ?? 0) > 10_000
        }
        kill(receiver, SIGINT)
        #expect(try await waitForEnd(of: receiver, "the receiver") == 130 << 8)
        #expect(saidReceiver().contains("bytes are in \(folder.path)/b.part. To continue: the same command again."))
        try await eventually("the sender looks again", within: 4 * world_deadline) {
            saidSender().contains("Looking again.")
        }
        #expect(!saidSender().contains("bluez-demo: "), "\(saidSender())")
        (receiver, saidReceiver) = try start(receive, "receiver", bus: simulator.address)
        defer { killAndWait(receiver) }
        try await eventually("it continues", within: 4 * world_deadline) {
            saidReceiver().contains(", continuing at ")
        }
    }

    // The sender said "Unlikely error" five times, and that it had failed.
    // Slow: a central may be silent for ten seconds before another one gets its turn.
    @Test("a sender whose receiver is busy says so, and gets its turn")
    func busyReceiver() async throws {
        let simulator = try await Simulator(adapterAddresses: ["00:B1:5E:00:00:01", "00:B1:5E:00:00:02"])
        let options = ["--via", "write", "--timeout", String(4 * world_deadline)]
        async let receiving = demo(
            ["transfer", "receive", folder.path + "/b", "--adapter", "hci0"] + options, bus: simulator.address)
        let hog = simulator.central()
        try await eventually("it has the turn", within: 4 * world_deadline) {
            do {
                _ = try await hog.connect(to: "00:B1:5E:00:00:01")
                // The first value of a session, which is empty.
                try await hog.write([0, 0x80], to: "0e9c0005-6b1a-4c57-8d3f-5a1e2b7c9d40")
                return true
            } catch { return false }
        }
        async let sender = demo(
            ["transfer", "send", folder.path + "/a.vcf", "--adapter", "hci1"] + options, bus: simulator.address)
        // It keeps its turn until the sender, a program that has to start first, has tried.
        try await eventually("the sender has tried", within: 4 * world_deadline) {
            _ = try? await hog.write([0, 0x80], to: "0e9c0005-6b1a-4c57-8d3f-5a1e2b7c9d40")
            return !simulator.calls("WriteValue").isEmpty
        }
        let sending = try await sender
        #expect(sending.status == 0 && sending.errors.isEmpty, "\(sending)")
        #expect(sending.output.contains("On the other machine: bluez-demo transfer receive FILE --via write."))
        #expect(sending.output.contains("The receiver is busy with another sender."), "\(sending)")
        #expect(try await receiving.status == 0)
    }

    // Opening a named pipe waits until there is a writer. The queue that answers Ctrl-C waited with it.
    @Test(
        "a named pipe is refused at once, not waited for",
        arguments: [
            ["card", "share"], ["transfer", "send"], ["card", "receive", "--output"], ["transfer", "receive"],
        ])
    func namedPipe(_ words: [String]) async throws {
        let pipe = folder.path + "/pipe"
        try #require(mkfifo(pipe, 0o600) == 0)
        let outcome = try await demo(words + [pipe])
        #expect(outcome.status == 1)
        #expect(outcome.errors.hasPrefix("bluez-demo: '\(pipe)' is not a regular file"), "\(outcome)")
    }

    // The same of the file that events are appended to. A pipe that is read is as good as a file there.
    @Test("a log that is a named pipe without a reader is an error at once")
    func pipeForLog() async throws {
        let pipe = folder.path + "/pipe"
        try #require(mkfifo(pipe, 0o600) == 0)
        let outcome = try await demo(["heart-rate", "--log", pipe])
        #expect(outcome.status == 1)
        #expect(outcome.errors == "bluez-demo: '\(pipe)' cannot be written: No such device or address\n", "\(outcome)")
    }

    // Without a first state `scan --duration` and others waited without a limit, and the rest was diagnosed
    // after 30 s.
    // Slow: after its time limit the program asks bluetoothd what is wrong, and waits three seconds.
    @Test("a bluetoothd that does not answer is named soon after a time limit, and the exit status says so")
    func silentDaemon() async throws {
        let simulator = try await Simulator()
        simulator.hangDaemon()
        // At once: the diagnosis gives each of them three seconds.
        let commands = [
            ["scan", "--duration"], ["inspect", "F0:F1:F2:00:00:01", "--timeout"],
            ["peripheral", "heart-rate", "--duration"], ["heart-rate", "--timeout"], ["card", "receive", "--timeout"],
            ["notifications", "--timeout"], ["ladder", "--timeout"],
        ]
        try await withThrowingTaskGroup(of: Void.self) { group in
            for words in commands {
                group.addTask {
                    let outcome = try await demo(words + ["0.2"], bus: simulator.address)
                    #expect(outcome.status == 3, "\(words): \(outcome)")
                    #expect(outcome.errors.hasPrefix("bluez-demo: bluetoothd does not answer"), "\(outcome)")
                }
            }
            try await group.waitForAll()
        }
    }

    @Test("a device without services has a line that says so")
    func noServices() async throws {
        let simulator = try await Simulator()
        simulator.add(VirtualPeripheral("F0:00:00:00:00:09", VirtualAdvertisement(localName: "Bare")))
        let outcome = try await demo(["inspect", "F0:00:00:00:00:09"], bus: simulator.address)
        #expect(outcome.status == 0 && outcome.errors.isEmpty, "\(outcome)")
        #expect(outcome.output.contains("It shows no services."), "\(outcome)")
    }

    // They ended with the status of a machine without Bluetooth, and inspect showed nothing of what it had read.
    @Test(
        "Bluetooth that goes off while a device is read is a failure, and what was read is there",
        arguments: [(["inspect"], #""value":"1122""#), (["record", "--values", "--seconds", "0.1"], #""recorded""#)])
    func bluetoothGoesOff(_ words: [String], result: String) async throws {
        let simulator = try await Simulator()
        let device = VirtualPeripheral(
            "F0:00:00:00:00:09", VirtualAdvertisement(localName: "Slow"),
            services: [
                VirtualService(
                    "1815",
                    [
                        VirtualCharacteristic("2A56", .read, value: [0x11, 0x22]),
                        VirtualCharacteristic("2A57", .read, value: [1], delay: .seconds(600)),
                    ])
            ])
        simulator.add(device)
        let file = words[0] == "record" ? ["-o", folder.path + "/r.json"] : []
        async let ending = demo(words + [device.address, "--json"] + file, bus: simulator.address)
        try await eventually("it waits for the second value", within: 4 * world_deadline) {
            simulator.calls("ReadValue").count >= 2
        }
        simulator.setPowered(false)
        let outcome = try await ending
        #expect(outcome.status == 1, "\(outcome)")
        #expect(outcome.errors == "bluez-demo: Bluetooth is no longer available\n")
        #expect(outcome.output.contains(result), "\(outcome)")
    }

    // They said that they wait until it is on again, and ended.
    @Test(
        "a command that ends when Bluetooth goes off does not say that it waits",
        arguments: [
            ["inspect", "F0:00:00:00:00:09"], ["record", "F0:00:00:00:00:09", "-o", "FOLDER/r.json"], ["ladder"],
        ])
    func endsWithBluetooth(_ words: [String]) async throws {
        let simulator = try await Simulator()
        async let ending = demo(
            words.map { $0.replacingOccurrences(of: "FOLDER", with: folder.path) }, bus: simulator.address)
        try await eventually("it looks for the device", within: 4 * world_deadline) { simulator.isDiscovering() }
        simulator.setPowered(false)
        let outcome = try await ending
        #expect(outcome.status == 1, "\(outcome)")
        #expect(outcome.errors == "bluez-demo: Bluetooth is no longer available\n")
        #expect(outcome.output.contains("Looking for ") && !outcome.output.contains("aiting"), "\(outcome)")
    }

    // It waited for three seconds, and BlueZ takes up to 2.75 before it even asks the peer.
    // Slow: the link takes three and a half seconds to end.
    @Test("a command waits until its link has ended, also if the peer takes its time")
    func slowEndOfLink() async throws {
        let simulator = try await Simulator()
        simulator.timing.disconnectDelay = .milliseconds(3500)
        let device = VirtualPeripheral(
            "F0:00:00:00:00:09", VirtualAdvertisement(localName: "Slow"),
            services: [VirtualService("1815", [VirtualCharacteristic("2A56", .read, value: [1])])])
        simulator.add(device)
        let outcome = try await demo(["inspect", device.address, "--json"], bus: simulator.address)
        #expect(outcome.status == 0 && outcome.errors.isEmpty, "\(outcome)")
        #expect(outcome.output.contains(#""event":"disconnected""#), "\(outcome)")
    }

    // Up to nine seconds passed without a word.
    // Slow: the link does not end, which is said after three seconds.
    @Test("a command that waits for the end of its link says so, and how to exit at once")
    func saysThatItWaits() async throws {
        let simulator = try await Simulator()
        simulator.timing.disconnectDelay = .seconds(60)
        let sensor = simulator.add(SimulatedHeart.peripheral("F0:F1:F2:00:00:60"))
        sensor.notifyRepeatedly("2A37", every: .milliseconds(200)) { _ in [0, 60] }
        let (process, said) = try start(["heart-rate"], "waiting", bus: simulator.address)
        do {
            try await eventually("it measures", within: 4 * world_deadline) { said().contains("60 bpm") }
            kill(process, SIGINT)
            try await eventually("it says so: \(said())", within: 4 * world_deadline) {
                said().contains("Waiting for the link to end. Ctrl-C exits at once.\n")
            }
        } catch {
            killAndWait(process)
            throw error
        }
        kill(process, SIGINT)
        #expect(try await waitForEnd(of: process, "it") == 130 << 8)
    }

    @Test("a time limit of a sensor says what is wrong, and what to do")
    func noSensor() async throws {
        let simulator = try await Simulator()
        let outcome = try await demo(["heart-rate", "--timeout", "2.5"], bus: simulator.address)
        #expect(outcome.status == 1)
        #expect(
            outcome.errors == "bluez-demo: no measurement for 2.5 s: no sensor was found; is it worn, near, and not "
                + "connected to another device?\n")
    }

    // `--restore` without a place for the state looked as if it had one, until a restart forgot everything.
    @Test("--restore says why nothing can be preserved", arguments: ["heart-rate", "transfer send FOLDER/a.vcf"])
    func unpreserved(_ command: String) async throws {
        let simulator = try await Simulator()
        let words = command.replacingOccurrences(of: "FOLDER", with: folder.path).split(separator: " ").map(String.init)
        let outcome = try await demo(
            words + ["--restore", "--timeout", "2.5"], bus: simulator.address,
            environment: ["BLUEZKIT_STATE_DIR=\(folder.path)/a.vcf"])
        #expect(outcome.status == 1)
        let warning = "Not a directory. Preservation is disabled for this manager\n"
        #expect(outcome.errors.hasPrefix("bluez-demo: cannot open"), "\(outcome)")
        #expect(outcome.errors.contains(warning), "\(outcome)")
    }

    // It was a line of the library's log, as of a fault of the program, and nothing in --json.
    @Test("--restore with an identifier in use says so, with the remedy, to programs as well")
    func identifierInUse() async throws {
        let simulator = try await Simulator()
        let state = ["BLUEZKIT_STATE_DIR=\(folder.path)"]
        let (first, said) = try start(
            ["heart-rate", "--restore", "--json"], "first", bus: simulator.address, environment: state)
        defer { killAndWait(first) }
        try await eventually("the first one runs", within: 4 * world_deadline) { said().contains("poweredOn") }
        let outcome = try await demo(
            ["heart-rate", "--restore", "--json", "--timeout", "0.5"], bus: simulator.address, environment: state)
        let remedy =
            "Preservation is disabled for this manager: end the other one first, or give this one another identifier"
        #expect(outcome.errors.hasPrefix("bluez-demo: another central manager"), "\(outcome)")
        #expect(outcome.errors.contains(remedy + "\n"), "\(outcome)")
        #expect(outcome.output.contains(#"{"event":"error","message":"another central manager"#), "\(outcome)")
    }

    // It went on with whatever was restored, without a word, and `--device` had no effect.
    // Slow: the simulated BlueZ has real times: two seconds for the end of each link.
    @Test("--restore with another --device leaves the sensor of the earlier process, and measures with that device")
    func restoresAnotherDevice() async throws {
        let simulator = try await Simulator()
        let sensors = [("F0:F1:F2:00:00:60", UInt8(60)), ("F0:F1:F2:00:00:61", 120)].map { address, rate in
            let sensor = simulator.add(SimulatedHeart.peripheral(address))
            sensor.notifyRepeatedly("2A37", every: .milliseconds(200)) { _ in [0, rate] }
            return sensor
        }
        let state = ["BLUEZKIT_STATE_DIR=\(folder.path)"]
        let words = ["heart-rate", "--restore", "--json", "--timeout", String(4 * world_deadline), "--device"]
        let (first, said) = try start(words + [sensors[0].address], "first", bus: simulator.address, environment: state)
        do {
            defer { killAndWait(first) }
            try await eventually("it measures", within: 4 * world_deadline) { said().contains(#""heartRate":60"#) }
        }
        let outcome = try await demo(
            words + [sensors[1].address, "--count", "2"], bus: simulator.address, environment: state)
        #expect(outcome.status == 0 && outcome.errors.isEmpty, "\(outcome)")
        #expect(outcome.output.contains(#"{"event":"restored""#) && outcome.output.contains(#""subscriptions":["2A"#))
        #expect(outcome.output.contains(#""heartRate":120"#) && !outcome.output.contains(#""heartRate":60"#))
        try await eventually("the link of the first ends", within: 4 * world_deadline) {
            !sensors[0].isConnected
        }
    }

    // It waited for a device that advertises the service, and the one that was named need not.
    @Test("--restore with a --device scans again if the earlier process scanned for something else")
    func restoresAnotherScan() async throws {
        let simulator = try await Simulator()
        let sensor = SimulatedHeart.peripheral("F0:F1:F2:00:00:60")
        sensor.advertisement = VirtualAdvertisement(localName: "Shy")
        simulator.add(sensor)
        sensor.notifyRepeatedly("2A37", every: .milliseconds(200)) { _ in [0, 60] }
        let state = ["BLUEZKIT_STATE_DIR=\(folder.path)"]
        let words = ["heart-rate", "--restore", "--json", "--timeout", String(4 * world_deadline)]
        let (first, _) = try start(words, "first", bus: simulator.address, environment: state)
        do {
            defer { killAndWait(first) }
            try await eventually("it scans", within: 4 * world_deadline) { simulator.isDiscovering() }
        }
        let outcome = try await demo(
            words + ["--device", sensor.address, "--count", "1"], bus: simulator.address, environment: state)
        #expect(outcome.output.contains(#""scan":{"services":["180D"]}"#), "\(outcome)")
        #expect(outcome.status == 0 && outcome.output.contains(#""heartRate":60"#), "\(outcome)")
    }

    // Only a peer that this process had connected to was left when it was silent.
    @Test("a restored peer that is silent is left, as any other")
    func silentRestoredPeer() async throws {
        let simulator = try await Simulator()
        func uuid(_ number: Int) -> String { "0e9c000\(number)-6b1a-4c57-8d3f-5a1e2b7c9d40" }
        let receiver = VirtualPeripheral(
            "F0:00:00:00:00:09", VirtualAdvertisement(serviceUUIDs: [uuid(3)]),
            services: [
                VirtualService(
                    uuid(3),
                    [
                        VirtualCharacteristic(uuid(5), [.write, .writeWithoutResponse]),
                        VirtualCharacteristic(uuid(6), .notify),
                    ])
            ])
        simulator.add(receiver)
        let state = ["BLUEZKIT_STATE_DIR=\(folder.path)"]
        let words = ["transfer", "send", folder.path + "/a.vcf", "--restore"]
        let (first, _) = try start(words, "first", bus: simulator.address, environment: state)
        do {
            defer { killAndWait(first) }
            try await eventually("it has begun", within: 4 * world_deadline) { !receiver.writes.isEmpty }
        }
        // A second, not thirty. Only here: the first must have its link when it is killed.
        let (second, said) = try start(
            words, "second", bus: simulator.address, environment: state + ["BLUEZ_DEMO_SILENCE=1"])
        defer { killAndWait(second) }
        try await eventually("it is left: \(said())", within: 4 * world_deadline) {
            said().contains("Nothing has moved (the receiver may be busy with another sender) for 1 s.")
        }
        #expect(said().contains("Restored "), "\(said())")
    }

    // With zero it looked without a pause, and left each peer before that was connected.
    @Test("a test may choose how long a peer may be silent, in whole seconds from one on")
    func chosenSilence() {
        #expect(ManagerCommand.silence(30, chosen: "1") == 1)
        for chosen in [nil, "0", "-1", "0.5", "x"] { #expect(ManagerCommand.silence(30, chosen: chosen) == 30) }
    }

    @Test("a bus that the environment names and that is not there has the variable as its remedy")
    func wrongBus() async throws {
        let outcome = try await demo(["doctor"])
        #expect(outcome.status == 3)
        #expect(outcome.output.contains("unset DBUS_SYSTEM_BUS_ADDRESS"), "\(outcome)")
    }

    @Test("the scenario of the examples has what each of them looks for")
    func examplesScenario() async throws {
        let (process, said) = try start(["simulate", "examples", "--json"], "simulate")
        defer { killAndWait(process) }
        try await eventually("it has an address", within: 4 * world_deadline) { said().contains("}\n") }
        let address = said().components(separatedBy: #""address":""#).last?.prefix { $0 != "\"" }
        let (scan, found) = try start(["scan", "--json"], "scan", bus: String(try #require(address)))
        defer { killAndWait(scan) }
        for part in [
            "Simulated Heart", "Simulated Thermometer", "Simulated UART", #""manufacturerData":"4c000215"#,
            #"{"FEAA":"00e7"#, #"{"FEAA":"10ee"#, #"{"FEAA":"2000"#,
        ] {
            try await eventually("\(part): \(found())", within: 4 * world_deadline) { found().contains(part) }
        }
    }

    // Slow: two programs of the demo, of which one connects to the other: BlueZ's two seconds for the end of a link.
    @Test("a capture becomes a recording, which another program replays; several devices in one are listed")
    func recordsCapture() async throws {
        let (capture, recording) = (folder.path + "/a.btsnoop", folder.path + "/pulse.json")
        try Data(CaptureBuilder.session(.uart)).write(to: URL(fileURLWithPath: capture))
        let made = try await demo(["record", "--from", capture, "-o", recording, "--json"])
        #expect(made.status == 0 && made.output.contains(#""notifications":2,"writes":1,"unexplained":0"#), "\(made)")

        let (process, said) = try start(["simulate", recording, "--pace", "2", "--json"], "simulate")
        defer { killAndWait(process) }
        try await eventually("it has an address", within: 4 * world_deadline) { said().contains("}\n") }
        let bus = String(
            try #require(said().components(separatedBy: #""address":""#).last?.prefix { $0 != "\"" }))
        let measured = try await demo(["heart-rate", "--count", "1", "--json"], bus: bus)
        #expect(measured.status == 0 && measured.output.contains(#""heartRate":72"#), "\(measured)")
        let seen = try await demo(["inspect", CaptureBuilder.peerAddress], bus: bus)
        #expect(seen.status == 0 && seen.output.contains("Pulse"), "\(seen)")

        var crowd = CaptureBuilder(.uart)
        for number in UInt8(1)...2 { crowd.advertises([2, 0x0A, 4], from: [number, 0, 0, 0, 0, 0xC0]) }
        try Data(crowd.bytes).write(to: URL(fileURLWithPath: capture))
        let listed = try await demo(["record", "--from", capture, "-o", recording])
        #expect(listed.status == 1 && listed.output.contains("C0:00:00:00:00:02"), "\(listed)")
        #expect(listed.errors.contains("which of these 2 devices?"), "\(listed)")
        let chosen = try await demo(["record", "C0:00:00:00:00:02", "--from", capture, "-o", recording])
        #expect(chosen.status == 0 && chosen.output.contains("1 advertisement, 0 services"), "\(chosen)")
    }

    // Only a write noticed that the reader was gone, and these two have nothing to write after a while.
    @Test(
        "a command that has nothing more to write ends with the reader of its output",
        arguments: [(["simulate"], "head -1 >/dev/null"), (["scan", "--simulated", "--service", "1234"], "true")])
    func readerIsGone(_ words: [String], reader: String) async throws {
        let outcome = try await demo(words, redirection: "| " + reader)
        #expect(outcome.status == 0 && outcome.errors.isEmpty, "\(outcome)")
    }

    // SIGPIPE was ignored only once a command ran.
    @Test(
        "a help or version text that has no reader is not a failure",
        arguments: [["--help"], ["help", "scan"], ["--version"]])
    func unreadHelp(_ words: [String]) async throws {
        var ends: [Int32] = [-1, -1]
        try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0, &ends) == 0)
        close(ends[0])
        let process = try spawnChild([Self.program] + words, output: ends[1])
        close(ends[1])
        #expect(try await waitForEnd(of: process, words.joined(separator: " ")) == 0)
    }

    @Test("a standard output that is closed is named, and nothing else is opened in its place")
    func closedOutput() async throws {
        let outcome = try await demo(["state", "--directory", "/"], redirection: ">&-")
        #expect(outcome.status == 1)
        #expect(outcome.errors == "bluez-demo: standard output is closed; >/dev/null discards what is written to it\n")
    }

    @Test("a temporary directory with too long a path for a socket is one line, with the remedy")
    func longTemporaryDirectory() async throws {
        let long = folder.path + "/" + String(repeating: "x", count: 100)
        try FileManager.default.createDirectory(atPath: long, withIntermediateDirectories: false)
        let outcome = try await demo(["simulate"], environment: ["TMPDIR=\(long)"])
        #expect(outcome.status == 1)
        #expect(outcome.errors.filter { $0 == "\n" }.count == 1, "\(outcome)")
        #expect(outcome.errors.contains("set TMPDIR to a shorter one"), "\(outcome)")
    }
}
