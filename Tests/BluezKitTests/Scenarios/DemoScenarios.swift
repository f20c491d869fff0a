import BluezKit
import BluezKitSimulator
import Foundation
import Testing

/// The programs of the demo at both ends, each on an adapter of its own. In the simulator and in the rig.
extension Scenarios {
    @Suite struct DemoScenarios {
        /// The words that run the demo in a world.
        private func demo(_ world: any World, _ words: [String]) -> [String] {
            let program = URL(fileURLWithPath: Probe.path).deletingLastPathComponent().path + "/bluez-demo"
            let bus = world.managerOptions[BluezManagerOptionBusAddressKey] as? String
            return ["/usr/bin/env"] + (bus.map { ["DBUS_SYSTEM_BUS_ADDRESS=\($0)"] } ?? []) + [program] + words
        }

        private func worldWithTwoAdapters() async throws -> any World {
            let world = try await Worlds.make()
            try await world.control("rig adapters 2")
            // The other sensor of this world is found as well.
            try await world.control("heart advertise off")
            try await forgetPeripheral(world)
            return world
        }

        private static let peripheral = "00:B1:5E:00:00:01"

        /// What is published at hci0 is new to hci1. BlueZ does not look at what a device advertises once it has seen
        /// its table, which was another one then.
        private func forgetPeripheral(_ world: any World) async throws {
            try await world.forget(Self.peripheral, on: "hci1")
            try world.removeStoredTable(of: Self.peripheral)
        }

        // Slow: in the rig, two programs find each other for each card, and BlueZ ends their link two to three seconds
        // after it was asked to.
        @Test(
            "a card arrives byte for byte, of any size",
            arguments: Worlds.isRig ? [0, 21, 512, 20_000] : [0, 1, 19, 20, 21, 512, 513, 100_000])
        func exchangesCards(_ size: Int) async throws {
            let world = try await worldWithTwoAdapters()
            let folder = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
            try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
            defer { try? FileManager.default.removeItem(at: folder) }
            let (sent, received) = (folder.appendingPathComponent("a.vcf"), folder.appendingPathComponent("b.vcf"))
            let card = Data((0..<size).map { _ in UInt8.random(in: 0 ... .max) })
            try card.write(to: sent)
            let share = demo(world, ["card", "share", sent.path, "--count", "1", "--adapter", "hci0", "--json"])
            let receive = demo(
                world,
                ["card", "receive", "--output", received.path, "--min-rssi", "-127", "--adapter", "hci1", "--json"]
                    + ["--timeout", String(4 * world_deadline)])
            async let sharing = run(share)
            try #require(try await run(receive) == 0)
            #expect(try Data(contentsOf: received) == card)
            #expect(try await sharing == 0)
        }

        private struct Transfer {
            let folder: TemporaryDirectory
            let sent: String
            let received: String
            let content: Data
            let send: [String]
            let receive: [String]
        }

        private func transfer(_ world: any World, _ size: Int, via way: String) throws -> Transfer {
            let folder = try TemporaryDirectory()
            let (sent, received) = (folder.path + "/a", folder.path + "/b")
            let random = try #require(FileHandle(forReadingAtPath: "/dev/urandom"))
            let content = try random.read(upToCount: size) ?? Data()  // nil: none were asked for
            try content.write(to: URL(fileURLWithPath: sent))
            // The peripheral is hci0.
            let (sender, receiver) = way == "notify" ? ("hci0", "hci1") : ("hci1", "hci0")
            let options = ["--via", way, "--json", "--timeout", String(4 * world_deadline), "--adapter"]
            return Transfer(
                folder: folder, sent: sent, received: received, content: content,
                send: demo(world, ["transfer", "send", sent] + options + [sender]),
                receive: demo(world, ["transfer", "receive", received] + options + [receiver]))
        }

        // A test for each way, as each takes long in the rig, and others can run beside it there.
        // Slow: a link ends for BlueZ two to three seconds after it was asked to, three times.
        @Test("a file is transferred by writes, byte for byte")
        func transfersByWrites() async throws { try await transfers("write") }

        // Slow: as above.
        @Test("a file is transferred by writes without response, byte for byte")
        func transfersByCommands() async throws { try await transfers("write-without-response") }

        // Slow: as above.
        @Test("a file is transferred by notifications, byte for byte")
        func transfersByNotifications() async throws { try await transfers("notify") }

        // Slow: as above.
        @Test("a file is transferred over a channel, byte for byte")
        func transfersByChannel() async throws { try await transfers("l2cap") }

        private func transfers(_ way: String) async throws {
            let world = try await worldWithTwoAdapters()
            for size in [0, 1, way == "write" ? 5000 : Worlds.isRig ? 20_000 : 200_000] {
                let transfer = try transfer(world, size, via: way)
                async let receiving = run(transfer.receive)
                try #require(try await run(transfer.send) == 0)
                #expect(try await receiving == 0)
                #expect(FileManager.default.contents(atPath: transfer.received) == transfer.content)
                #expect(!FileManager.default.fileExists(atPath: transfer.received + ".part"))
                do { try await forgetPeripheral(world) } catch {
                    // bluetoothd 5.66 has bugs that crash it, when both programs have ended their work. It is not
                    // theirs.
                    guard try await (world as? RigWorld)?.awaitDaemon() == true else { throw error }
                    try await forgetPeripheral(world)
                }
            }
        }

        // One test for each way, as they take long. In the rig each way and each end once: 20 s.
        // Slow: two programs with real times transfer, lose one of them or the link, find each other again and go on;
        // in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test(
            "a transfer by commands continues after kill -9 of either end, and after the loss of its link",
            arguments: Worlds.isRig ? ["send"] : ["send", "receive", "link"])
        func writingGoesOn(_ victim: String) async throws { try await goesOn("write-without-response", victim) }

        // Slow: as above.
        @Test(
            "a transfer by notifications continues after kill -9 of either end, and after the loss of its link",
            arguments: Worlds.isRig ? ["receive"] : ["send", "receive", "link"])
        func notifyingGoesOn(_ victim: String) async throws { try await goesOn("notify", victim) }

        // Slow: as above.
        @Test(
            "a transfer by channel continues after kill -9 of either end, and after the loss of its link",
            arguments: Worlds.isRig ? ["link"] : ["send", "receive", "link"])
        func channelGoesOn(_ victim: String) async throws { try await goesOn("l2cap", victim) }

        /// - Parameters:
        ///   - way: Of a transfer.
        ///   - victim: What ends: a program, or the link.
        private func goesOn(_ way: String, _ victim: String) async throws {
            // The simulator moves 2 MB over a channel in 0.1 s: a test that comes to run late has to begin again.
            for _ in 1..<10 where try await interrupt(way, victim) { return }
            Issue.record("each transfer was at its end before it was stopped")
        }

        /// - Returns: False: it was at its end too soon.
        private func interrupt(_ way: String, _ victim: String) async throws -> Bool {
            let world = try await worldWithTwoAdapters()
            // So much that it is not at its end when the test has seen its third part.
            let size = Worlds.isRig ? 100_000 : victim == "send" ? 2_000_000 : 500_000
            let transfer = try transfer(world, size, via: way)
            var sender = try spawnChild(transfer.send)
            let (output, log) = (Pipe(), EventLog<String>())
            var receiver = try spawnChild(transfer.receive, output: output.fileHandleForWriting.fileDescriptor)
            try output.fileHandleForWriting.close()
            note(output, in: log)
            let part = transfer.received + ".part"
            let killed: pid_t? = ["send": sender, "receive": receiver][victim]
            var tenths = 0
            try await log.next("a part of it", within: 4 * world_deadline) { line -> Bool? in
                if line.contains(#""event":"progress""#) { tenths += 1 }
                guard tenths == 3 else { return nil }
                // A fast one could be ready before it is killed.
                if let killed { kill(killed, SIGSTOP) }
                return true
            }
            if let killed {
                var news = siginfo_t()
                waitid(P_PID, id_t(killed), &news, WSTOPPED | WEXITED | WNOWAIT)
                // It may have stopped with all of it done, and not gone yet.
                guard news.si_code == CLD_STOPPED, FileManager.default.fileExists(atPath: part) else {
                    kill(killed, SIGCONT)
                    #expect(try await waitForEnd(of: sender, "the sender") == 0)
                    #expect(try await waitForEnd(of: receiver, "the receiver") == 0)
                    return false
                }
            }
            switch victim {
            case "send":
                await bluetoothdHandlesCalls()
                kill(sender, SIGKILL)
                _ = try await waitForEnd(of: sender, "the sender")
                sender = try spawnChild(transfer.send)
            case "receive":
                await bluetoothdHandlesCalls()
                kill(receiver, SIGKILL)
                _ = try await waitForEnd(of: receiver, "the receiver")
                #expect(FileManager.default.fileExists(atPath: part))
                receiver = try spawnChild(transfer.receive)
            default: try await world.endLink(Self.peripheral, on: "hci1")
            }
            #expect(try await waitForEnd(of: receiver, "the receiver") == 0)
            // Even if all of it was in BlueZ's buffers when the sender was killed: the receiver waits for the new one.
            #expect(try await waitForEnd(of: sender, "the sender") == 0)
            #expect(FileManager.default.contents(atPath: transfer.received) == transfer.content)
            return true
        }

        /// Notes the lines that a process writes.
        private func note(_ output: Pipe, in log: EventLog<String>) {
            Thread.detachNewThread {
                while case let data = output.fileHandleForReading.availableData, !data.isEmpty {
                    for line in String(decoding: data, as: UTF8.self).split(separator: "\n") {
                        log.append(String(line))
                    }
                }
            }
        }

        // Slow: in the rig, the sink answers one of the reads after five seconds, others end in a failed pairing, and
        // BlueZ ends the link two to three seconds after it was asked to.
        @Test("inspect shows everything, without values that need pairing, and reports those")
        func inspects() async throws {
            let world = try await Worlds.make()
            try await world.control("sink pairing justworks")
            try await world.control("sink forget")
            try await world.forget("F0:F1:F2:00:00:02")
            // The device is known in advance, as after a scan.
            let central = Central(world)
            try await central.powerOn()
            let sink = try await central.find("Rig Sink")
            let file = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
            defer { try? FileManager.default.removeItem(at: file) }
            let command = demo(world, ["inspect", sink.identifier.uuidString, "--json"])
            let status = try await run(["/bin/sh", "-c", "\(command.joined(separator: " ")) > \(file.path)"])
            #expect(status == 0)
            let lines = try String(contentsOf: file, encoding: .utf8).split(separator: "\n")
            func line(_ number: Int, _ event: String = "characteristic") -> Substring? {
                lines.first { $0.contains(sinkUUID(number).uuidString) && $0.contains(#""event":"\#(event)""#) }
            }
            for (number, value) in [(0x10, Data("hello".utf8)), (0x18, Data("described".utf8))] {
                #expect(line(number)?.contains(#""value":"\#(value.hex)""#) == true, "\(lines)")
            }
            #expect(line(0x11)?.contains(#""value":""#) == true, "whatever others have written there: \(lines)")
            #expect(
                line(0x20)?.contains(#""value":"\#(Data("included".utf8).hex)""#) == true, "the last of them: \(lines)")
            #expect(line(0x30, "descriptor")?.contains(#""value":"\#(Data("own".utf8).hex)""#) == true)
            for number in [0x16, 0x17] { #expect(line(number)?.contains(#""error":"Auth"#) == true, "\(lines)") }
            #expect(lines.filter { $0.contains(#""event":"descriptor""#) && $0.contains("error") }.isEmpty)
            #expect(lines.last { $0.contains(#""event":"#) }?.contains(#""event":"disconnected""#) == true)
        }

        @Test("the notifications of a phone are shown, one line of JSON for each, and their actions performed")
        func notifications() async throws {
            let world = try await Worlds.make()
            try await world.forgetPhone()
            try await world.control("phone post 1 4 0 com.apple.MobileSMS Ada||Hello%0A%1B[2J")
            let command = demo(
                world,
                ["notifications", "--json", "--count", "2", "--perform", "negative"]
                    + ["--timeout", String(4 * world_deadline)])
            let (output, log) = (Pipe(), EventLog<String>())
            let reader = try spawnChild(command, output: output.fileHandleForWriting.fileDescriptor)
            try output.fileHandleForWriting.close()
            note(output, in: log)
            func expect(_ parts: String...) async throws {
                try await log.next("\(parts)", within: 4 * world_deadline) { line in
                    parts.allSatisfy(line.contains) ? true : nil
                }
            }
            try await expect(#""event":"advertising""#)
            try await world.control("phone permit off")
            try await world.control("phone find wait")
            try await expect(#""event":"error""#, "does not show its notifications", "Settings > Bluetooth")
            try await world.control("phone permit on")
            // A busy bluetoothd may lose the request that makes it pair, and the link ends (COMPATIBILITY.md): then the
            // phone comes once more.
            func isReady() async throws -> Bool {
                try await log.next("ready, or the end of the link", within: 4 * world_deadline) { line -> Bool? in
                    if line.contains(#""event":"ready""#) { return true }
                    return line.contains(#""event":"disconnected""#) ? false : nil
                }
            }
            if try await !isReady() {
                try #require(Worlds.isRig, "the link has ended")
                try await world.control("phone find wait")
                try #require(try await isReady())
            }
            try await expect(
                #""event":"notification""#, #""uid":1,"kind":"added","category":"social""#, #""preExisting":true"#,
                #""appName":"Messages","title":"Ada","subtitle":null,"message":"Hello\n\u001b[2J""#)
            try await world.control("phone post 2 1 24 com.apple.mobilephone Charles|||Answer|Decline")
            try await expect(#""uid":2,"kind":"added","category":"incomingCall""#, #""negativeAction":"Decline""#)
            try await expect(#""event":"performed""#, #""uid":2,"action":"negative","error":null"#)
            _ = try await world.nextEvent("the action") { $0 == "phone performed 2 negative" }
            #expect(try await waitForEnd(of: reader, "the reader") == 0)
            for number in [1, 2] { try await world.control("phone remove \(number)") }
            try await world.forgetPhone()
        }

        // The link is that of the two machines, and stays: only the service is gone.
        // Slow: in the rig, two programs find each other twice, and BlueZ ends a link two to three seconds after it was
        // asked to.
        @Test("a heart-rate sensor whose program ends is waited for, and measures again")
        func waitsForSensor() async throws {
            let world = try await worldWithTwoAdapters()
            let words = demo(world, ["peripheral", "heart-rate", "--rate", "100", "--adapter", "hci0", "--json"])
            var sensor = try spawnChild(words)
            defer { killAndWait(sensor) }
            let (output, log) = (Pipe(), EventLog<String>())
            let reader = try spawnChild(
                demo(world, ["heart-rate", "--adapter", "hci1", "--json"]),
                output: output.fileHandleForWriting.fileDescriptor)
            defer { killAndWait(reader) }
            try output.fileHandleForWriting.close()
            note(output, in: log)
            /// - Returns: Which of these it is.
            @discardableResult
            func next(_ parts: String...) async throws -> String {
                try await log.next("\(parts)", within: 4 * world_deadline) { line in
                    parts.first(where: line.contains)
                }
            }
            let measurement = #""event":"measurement""#
            let (end, reset) = (#""event":"disconnected""#, #""state":"resetting""#)
            try await next(measurement)
            var hasEnded = false
            for _ in 0..<5 where !hasEnded {
                await bluetoothdHandlesCalls()
                try await (world as? RigWorld)?.awaitDaemon()  // a crash until now does not count
                kill(sensor, SIGKILL)
                _ = try await waitForEnd(of: sensor, "the sensor")
                hasEnded = try await next(end, reset) == end
                if !hasEnded { try await expectCrash(world) }
                sensor = try spawnChild(words)
                try await next(measurement)
            }
            #expect(hasEnded, "bluetoothd has crashed each time")
        }

        /// bluetoothd 5.66 may crash as the reader's `StopNotify` and `Disconnect` meet the services that the other end
        /// withdraws. That is a reset to both programs, and both go on; but the link has not ended as it should.
        private func expectCrash(_ world: any World) async throws {
            let rig = try #require(world as? RigWorld, "the simulator does not crash")
            try await eventually("bluetoothd has crashed") { try await rig.awaitDaemon() }
            let version = try #require(await rig.blueZVersion())
            #expect(version < BlueZVersion(5, 82))
            // It has stored a part of the table with the hash of the whole, which it would take for that.
            try world.removeStoredTable(of: Self.peripheral)
        }

        // Slow: in the rig, two programs find each other, and BlueZ ends their link two to three seconds after it was
        // asked to.
        @Test("a virtual heart-rate sensor is found and its measurements are read")
        func measures() async throws {
            let world = try await worldWithTwoAdapters()
            let sensor = try spawnChild(
                demo(world, ["peripheral", "heart-rate", "--rate", "100", "--adapter", "hci0", "--json"]))
            defer { killAndWait(sensor) }
            let status = try await run(
                demo(
                    world,
                    ["heart-rate", "--count", "3", "--timeout", String(4 * world_deadline), "--adapter", "hci1"]
                        + ["--json"]))
            #expect(status == 0)
            kill(sensor, SIGINT)
            #expect(try await waitForEnd(of: sensor, "the sensor") == 130 << 8)  // Ctrl-C
        }
    }
}
