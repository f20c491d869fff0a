import BluezKitSimulator
import Foundation
import Testing

/// What a keeper does for a peripheral that has died.
extension Scenarios {
    @Suite(.serialized, .enabled(if: !isHosted, "it has keepers of its own")) struct PublishingKeeperScenarios {
        private typealias Peripheral = PeripheralRestorationScenarios

        /// A world, a directory for the state, and a keeper.
        private struct Stage {
            let stage: Peripheral.Stage
            let keeper: KeeperProcess

            init() async throws {
                stage = try await Peripheral.Stage()
                keeper = try await KeeperProcess()
            }

            var world: any World { stage.world }
            private var options: [String] { ["--keeper", keeper.socket] }

            func launch(_ more: [String] = []) throws -> Probe { try stage.launch(options + more) }
            func launchPublishing(_ more: [String] = []) async throws -> Probe {
                try await stage.launchPublishing(options + more)
            }

            func central(_ command: String) async throws -> String { try await world.control("central \(command)") }

            func awaitNotification(_ value: String) async throws {
                _ = try await world.nextEvent("notification \(value)") {
                    $0 == "central notified \(sinkUUID(0x111).line) \(value)"
                }
            }
        }

        private static let dynamic = sinkUUID(0x111).line
        private static let fixed = sinkUUID(0x110).line

        // Slow: in the rig, a central subscribes, and an app starts twice.
        @Test("R-20 R-23 killed while a central is subscribed: it stays so, and reads, and hears of the next process")
        func subscriberStays() async throws {
            let stage = try await Stage()
            let probe = try await stage.launchPublishing()
            try await stage.stage.awaitService()
            _ = try await stage.central("subscribe \(Self.dynamic)")
            try await probe.next("subscribed 0111 \(Peripheral.central)")
            probe.send("update 01")
            try await probe.next("updated true")
            try await probe.kill()
            #expect(try await stage.central("read \(Self.fixed)") == "30313130", "the app is not asked")
            #expect(try await stage.stage.countOfServices() == 1)
            let again = try stage.launch()
            if Probe.isAsync {
                try await again.next("restored", "name=Kit")
            } else {
                try await again.next("restored", "name=Kit uuids=0100 advertising=true", "0111:26:3/2901=Level(1)")
            }
            try await again.next("state poweredOn")
            async let notified: Void = stage.awaitNotification("0102")
            again.send("update 0102")
            try await again.next("updated true")
            try await notified
            _ = try await stage.central("write \(Self.dynamic) 0a0b")
            try await again.next("wrote 0111 0a0b same=true")
            #expect(!again.callbacks.contains("added") && !again.callbacks.contains("advertising"))
            again.send("release")
            try await again.next("end release")
        }

        // The keeper published it forever: only central managers ended that a new version of an app does not make.
        // Slow: in the rig, two apps start.
        @Test("R-15 RS-6 a peripheral manager that is not created again: the keeper ends it after the claim period")
        func unclaimed() async throws {
            let stage = try await Stage()
            let probe = try await stage.launchPublishing()
            try await stage.stage.awaitService()
            try await probe.kill()
            let central = try Probe(
                stage.world,
                [
                    "--restore", "app", "--state-dir", stage.stage.directory.path, "--keeper", stage.keeper.socket,
                    "--claim", "0.2",
                ])
            try await central.next("state poweredOn")
            try await eventually("it is withdrawn") {
                // The central discovers again, or finds no advertisement.
                guard (try? await stage.world.connect()) != nil else { return true }
                return try await stage.stage.countOfServices() == 0
            }
            // An advertisement that begins as a link ends may not be on the air (Docs/BLUEZ-REPORTS.md).
            _ = try? await stage.world.control("central disconnect")
            // Claimed after all.
            let late = try stage.launch()
            try await late.next("restored", "name=Kit")
            try await stage.stage.awaitService()
            late.send("release")
            try await late.next("end release")
        }

        // Slow: an app starts for each time that it is killed.
        @Test("R-20 killed again and again directly after an update: the central stays subscribed, and gets each")
        func updates() async throws {
            let stage = try await Stage()
            var probe = try await stage.launchPublishing()
            try await stage.stage.awaitService()
            _ = try await stage.central("subscribe \(Self.dynamic)")
            try await probe.next("subscribed 0111 \(Peripheral.central)")
            for round in 0..<(Worlds.kills ?? 3) {
                let text = String(round, radix: 16)
                let value = String(repeating: "0", count: 4 - text.count) + text
                async let notified: Void = stage.awaitNotification(value)
                probe.send("update \(value)")
                try await probe.next("updated true")
                try await probe.kill()
                try await notified
                probe = try stage.launch()
                try await probe.next("state poweredOn")
                #expect(!probe.callbacks.contains("subscribed") && !probe.callbacks.contains("unsubscribed"))
            }
            probe.send("release")
            try await probe.next("end release")
        }

        @Test("RS-5 RS-15 a central writes and subscribes while the app is dead: the app is started, and answers")
        func startsApp() async throws {
            let stage = try await Stage()
            let starts = stage.stage.directory.path + "/starts"
            let probe = try await stage.launchPublishing(["--started", starts])
            try await stage.stage.awaitService()
            try await probe.kill()
            _ = try await stage.central("subscribe \(Self.dynamic)")
            try await eventually("the app is started") { (try? String(contentsOfFile: starts, encoding: .utf8)) == "x" }
            // BlueZ waits 5 s for the answer, which a slow machine may need to start the app; the keeper does so too.
            (stage.world as? SimulatedWorld)?.simulator.timing.applicationTimeout = .seconds(60)
            async let refusal = stage.world.refusal("central write \(Self.dynamic) 0c")
            let again = try stage.launch()
            let isLate = await refusal != nil
            try await again.nextOfEach(
                ["subscribed 0111 \(Peripheral.central) same=true"] + (isLate ? [] : ["wrote 0111 0c same=true"]))
            async let notified: Void = stage.awaitNotification("07")
            again.send("update 07")
            try await notified
            #expect(again.callbacks.filter { $0 == "subscribed" }.count == 1)
            #expect(try String(contentsOfFile: starts, encoding: .utf8) == "x", "once for both")
            again.send("release")
            try await again.next("end release")
        }

        // Slow: in the rig, an app publishes three times, and a central looks what is there.
        @Test("RS-16 what the app withdraws has ended, also if it exits in the next line; a release ends everything")
        func withdraws() async throws {
            let stage = try await Stage()
            let probe = try await stage.launchPublishing()
            try await stage.stage.awaitService()
            probe.send("stopadvertise\nunpublish\nquit")
            try await probe.waitForEnd()  // before that it has the file
            try await eventually("the services have gone") { try await !stage.central("discover").contains("0100") }
            let again = try stage.launch()
            try await again.next("state poweredOn", "advertising=false")
            #expect(!again.callbacks.contains("restored"))
            again.send("publish")
            try await again.next("added 0100 error=none")
            again.send("release")
            try await eventually("the services have gone") { try await !stage.central("discover").contains("0100") }
        }

        // Slow: in the rig, a central opens two channels.
        @Test(
            "L2-1 R-19 a channel stays published, the one that a central has opened ends, and another one can be opened"
        )
        func channel() async throws {
            let stage = try await Stage()
            let probe = try await stage.launchPublishing()
            probe.send("channel")
            let published = try await probe.next("published psm=")
            let psm = try #require(UInt16(published.split(separator: "psm=")[1].split(separator: " ")[0]))
            try await stage.world.connect()
            try await stage.world.openChannel(psm)
            try await probe.next("channel psm=\(psm)")
            try await probe.kill()
            let again = try stage.launch()
            try await again.next("restoredchannels \(psm)")
            try await again.next("published psm=\(psm) error=none")
            try await stage.world.openChannel(psm)
            try await again.next("channel psm=\(psm)")
            try await stage.world.resetChannels()
            again.send("release")
            try await again.next("end release")
        }

        @Test("R-19 a version of the app that protects more: what the keeper has left open is withdrawn")
        func revised() async throws {
            let stage = try await Stage()
            let probe = try await stage.launchPublishing()
            probe.send("channel")
            let published = try await probe.next("published psm=")
            let psm = try #require(UInt16(published.split(separator: "psm=")[1].split(separator: " ")[0]))
            try await stage.stage.awaitService()
            try await probe.kill()
            let again = try stage.launch(["--revised"])
            try await again.next("restored")
            try await again.next("added 0100 error=none")
            try await eventually("the service is published once") {
                _ = try await stage.central("discover")
                return try await stage.stage.countOfServices() == 1
            }
            let refusal = await stage.world.refusal("central write \(Self.dynamic) 0a")
            #expect(["0x05", "0x0f"].contains { refusal?.contains("att \($0)") == true }, "\(refusal ?? "written")")
            #expect(await stage.world.refusal("central channel \(psm)") != nil)
            #expect(!again.callbacks.contains("published") && !again.callbacks.contains("wrote"))
            again.send("release")
            try await again.next("end release")
        }

        // Slow: in the rig, bluetoothd restarts, and a central finds what is published again.
        @Test(
            "D10 R-19 bluetoothd is killed and restarted while the app is dead: the app is started, and all is there once",
            Probe.onlyCallbacks(endsWithReset), arguments: [true, false])
        func daemonRestart(hears: Bool) async throws {
            let stage = try await Stage()
            let starts = stage.stage.directory.path + "/starts"
            let probe = try await stage.launchPublishing(["--started", starts])
            if hears {
                try await stage.world.control("bluetoothd kill")
                try await probe.next("state resetting")
                try await probe.kill()
            } else {
                try await probe.kill()
                try await stage.world.control("bluetoothd kill")
            }
            try await stage.world.control("bluetoothd start")
            try await eventually("the app is started") { access(starts, F_OK) == 0 }
            let again = try stage.launch()
            try await again.next("restored", "name=Kit")
            try await again.next("state poweredOn")
            try await stage.stage.awaitService()
            #expect(try await stage.stage.countOfServices() == 1)
            _ = try await stage.central("write \(Self.dynamic) 0a0b")
            try await again.next("wrote 0111 0a0b same=true")
            again.send("release")
            try await again.next("end release")
        }

        // Slow: in the rig, bluetoothd starts again, and a central looks what is there.
        @Test(
            "D10 an app that does not resume after a reset: of what was published before one, nothing is there",
            Probe.onlyCallbacks(endsWithReset))
        func daemonRestartWithoutResuming() async throws {
            let stage = try await Stage()
            try await stage.launchPublishing(["--resume", "no"]).kill()
            try await stage.world.control("bluetoothd kill")
            try await stage.world.control("bluetoothd start")
            let again = try stage.launch(["--resume", "no"])
            try await again.next("state resetting")
            try await again.next("state poweredOn", "advertising=false")
            again.send("publish")
            try await again.next("added 0100 error=none")
            again.send("advertise Kit")
            try await again.next("advertising error=none")
            try await stage.stage.awaitService()
            #expect(try await stage.stage.countOfServices() == 1)
            again.send("release")
            try await again.next("end release")
        }

        @Test(
            "D10 the keeper is killed: everything is published again with another one",
            Probe.onlyCallbacks(endsWithReset))
        func keeperDies() async throws {
            let stage = try await Stage()
            let probe = try await stage.launchPublishing()
            stage.keeper.kill()
            try await probe.next("state resetting")
            try await probe.next("state poweredOn", "advertising=true")
            try await stage.stage.awaitService()
            _ = try await stage.central("write \(Self.dynamic) 0a0b")
            try await probe.next("wrote 0111 0a0b same=true")
            probe.send("release")
            try await probe.next("end release")
        }
    }
}
