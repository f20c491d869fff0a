import Foundation
import Testing

/// Restoration of the peripheral role, with real processes and a real SIGKILL: rows R-16 and R-19 to R-23 of the
/// contract.
extension Scenarios {
    @Suite struct PeripheralRestorationScenarios {
        static let services =
            Probe.isAsync
            ? "0101[0112(0)];0100[0110(0),0111(0)]"
            : "0101[0112:2:1=30313132(0)];0100+0101[0110:2:1=30313130(0),0111:26:3/2901=Level(0)]"
        static let central = "426C7A4B-0100-8000-8000-F0F1F2000004"

        struct Stage {
            let world: any World
            let directory: TemporaryDirectory

            init() async throws {
                world = try await Worlds.make()
                directory = try TemporaryDirectory()
            }

            func launch(with launcher: [String] = [], _ arguments: String...) throws -> Probe {
                try launch(with: launcher, arguments)
            }

            func launch(with launcher: [String] = [], _ arguments: [String]) throws -> Probe {
                try Probe(world, ["--publish", "app", "--state-dir", directory.path] + arguments, launcher: launcher)
            }

            /// An app with its services in BlueZ's table, and on air.
            func launchPublishing(_ arguments: [String] = []) async throws -> Probe {
                let probe = try launch(arguments)
                try await probe.next("state poweredOn")
                probe.send("publish")
                try await probe.next("added 0101 error=none")
                try await probe.next("added 0100 error=none")
                probe.send("advertise Kit")
                try await probe.next("advertising error=none")
                return probe
            }

            /// Waits until the app advertises again, and connects: its services are then available.
            func awaitService(name: String = "Kit") async throws {
                let deadline = ContinuousClock.now + .seconds(world_deadline)
                var heard = ""
                repeat {
                    guard ContinuousClock.now < deadline else {
                        throw RigWorld.Refused(description: "no device advertises as \(name): \(heard)")
                    }
                    heard = (try? await world.control("central advertisement \(world.adapterAddress)")) ?? ""
                } while !heard.contains("name=\(name)")
                try await world.connect()
            }

            func countOfServices() async throws -> Int {
                try await world.control("central services").split(separator: " ")
                    .count { $0.hasPrefix("primary:\(sinkUUID(0x100).line)@") }
            }
        }

        @Test(
            "R-19 RS-4 RS-8 RS-14 services and advertisement return, complete; a write arrives for the restored object")
        func servicesReturn() async throws {
            let stage = try await Stage()
            try await stage.launchPublishing().kill()
            let again = try stage.launch()
            try await again.next("restored", "name=Kit uuids=0100 advertising=true \(Self.services)")
            try await again.next("state poweredOn", "advertising=true")
            try await stage.awaitService()
            _ = try await stage.world.control("central write \(sinkUUID(0x111).line) 0a0b")
            try await again.next("wrote 0111 0a0b same=true")
            #expect(try await stage.world.control("central read \(sinkUUID(0x111).line)") == "72656164")
            #expect(try await stage.countOfServices() == 1)
            #expect(!again.callbacks.contains("added") && !again.callbacks.contains("advertising"))
            #expect(again.callbacks.prefix(2) == ["restored", "state"])
        }

        // A central that knows the services from before need not find them again: each restart of the app would
        // otherwise move them to handles of which it knows nothing until it has handled Service Changed.
        @Test("R-19 restored services are at the handles where they were; a central that knows these subscribes again")
        func handlesReturn() async throws {
            let stage = try await Stage()
            let probe = try await stage.launchPublishing()
            try await stage.awaitService()
            let before = try await stage.world.control("central services")
            try await stage.world.control("central subscribe \(sinkUUID(0x111).line)")
            try await probe.next("subscribed 0111")
            try await probe.kill()
            let again = try stage.launch()
            try await again.next("state poweredOn")
            try await eventually("the services are back where they were") {
                try await stage.world.control("central discover") == before
            }
            try await stage.world.control("central subscribe \(sinkUUID(0x111).line)")
            try await again.next("subscribed 0111")
        }

        @Test("R-19 L2-1 RS-4 a published channel returns with its PSM after a kill, and a central opens it again")
        func channelReturns() async throws {
            let stage = try await Stage()
            let probe = try await stage.launchPublishing()
            probe.send("channel")
            let published = try await probe.next("published psm=")
            #expect(published.contains("error=none"))
            let psm = try #require(UInt16(published.split(separator: "psm=")[1].split(separator: " ")[0]))
            try await stage.world.connect()
            try await stage.world.openChannel(psm)
            try await probe.next("channel psm=\(psm)")
            try await probe.kill()
            let again = try stage.launch()
            try await again.next("restoredchannels \(psm)")
            try await again.next("published psm=\(psm) error=none")
            try await stage.awaitService()
            try await stage.world.openChannel(psm)
            try await again.next("channel psm=\(psm)")
            try await stage.world.resetChannels()
        }

        // A restored service kept the permissions of the version that had published it, also where a later version of
        // the app protects it, so that an unpaired central's writes reached the app. What differs is withdrawn now
        // before it is published, and so is what the app withdraws in `willRestoreState`.
        @Test("R-19 a version of the app that protects more: no central sees what the earlier one has left open")
        func revised() async throws {
            let stage = try await Stage()
            let probe = try await stage.launchPublishing()
            probe.send("channel")
            let psm = try #require(
                UInt16(try await probe.next("published psm=").split(separator: "psm=")[1].split(separator: " ")[0]))
            try await probe.kill()
            let again = try stage.launch("--revised")
            try await again.next("restoredchannels \(psm)")
            try await again.next("state poweredOn", "advertising=false")
            try await again.next("added 0100 error=none")
            if !Probe.isAsync { again.send("log") }
            if !Probe.isAsync {
                try await again.next(
                    "report", "0101-5D3B-4C6F-9A5E-000000000000: published again", "not published again")
            }
            again.send("advertise New")
            try await again.next("advertising error=none")
            try await stage.awaitService(name: "New")
            #expect(try await stage.countOfServices() == 1)
            #expect(try await stage.world.control("central read \(sinkUUID(0x112).line)") == "30313132")
            let refusal = await stage.world.refusal("central write \(sinkUUID(0x111).line) 0a")
            #expect(
                ["0x05", "0x0f"].contains { refusal?.contains("att \($0)") == true }, "\(refusal ?? "written")")
            #expect(await stage.world.refusal("central channel \(psm)") != nil)
            #expect(!again.callbacks.contains("wrote") && !again.callbacks.contains("published"))
            try await again.kill()
            try await stage.launch("--revised").next("restored", Probe.isAsync ? "0111" : "0111:26:9")
        }

        @Test("R-23 PB-3 a fixed value is answered without the app, and is still present in the restored object")
        func fixedValue() async throws {
            let stage = try await Stage()
            try await stage.launchPublishing().kill()
            let again = try stage.launch()
            try await again.next("restored", Probe.isAsync ? "0110" : "0110:2:1=30313130")
            try await stage.awaitService()
            #expect(try await stage.world.control("central read \(sinkUUID(0x110).line)") == "30313130")
            #expect(try await stage.world.control("central read \(sinkUUID(0x112).line)") == "30313132")
            #expect(!again.callbacks.contains("read"))
        }

        // Slow: in the rig, two programs publish one after the other, and a central finds and connects to each.
        @Test("BlueZ ends a subscription with the process; the report says so, and subscribing again works")
        func subscriber() async throws {
            let stage = try await Stage()
            let probe = try await stage.launchPublishing()
            try await stage.awaitService()
            _ = try await stage.world.control("central subscribe \(sinkUUID(0x111).line)")
            try await probe.next("subscribed 0111 \(Self.central)")
            try await probe.kill()
            let again = try stage.launch()
            try await again.next("restored", Self.services)
            if !Probe.isAsync {  // it has no report
                again.send("log")
                try await again.next("report", "central \(Self.central): no longer subscribed")
            }
            try await stage.awaitService()
            _ = try await stage.world.control("central subscribe \(sinkUUID(0x111).line)")
            try await again.next("subscribed 0111 \(Self.central) same=true")
            async let notified = stage.world.nextEvent("notification") {
                $0 == "central notified \(sinkUUID(0x111).line) 0102"
            }
            again.send("update 0102")
            try await again.next("updated true")
            _ = try await notified
        }

        @Test(
            "R-21 RS-13 AD-4 starting the restored advertisement reports that it has already started, and it continues")
        func startingAgain() async throws {
            let stage = try await Stage()
            try await stage.launchPublishing().kill()
            let again = try stage.launch()
            try await again.next("state poweredOn", "advertising=true")
            again.send("advertise Other")
            try await again.next("advertising error=9")
            try await stage.awaitService()
            try await again.kill()
            try await stage.launch().next("restored", "name=Kit")
        }

        @Test(
            "R-22 PB-6 adding a restored service again is a programming error, and stops the process with the reason",
            Probe.onlyCallbacks("what was restored has another type than what is added"))
        func addingAgain() async throws {
            let stage = try await Stage()
            try await stage.launchPublishing().kill()
            // Swift's backtrace takes longer than the deadline on a slow machine.
            let again = try stage.launch(with: ["/usr/bin/env", "SWIFT_BACKTRACE=enable=no"])
            try await again.next("state poweredOn")
            again.send("again")
            #expect(try await again.waitForEnd() != 0)
            let third = try stage.launch()
            try await third.next("restored", Self.services)
            try await stage.awaitService()
            #expect(try await stage.countOfServices() == 1)
        }

        @Test("R-16 RS-2 managers of both roles with one identifier: each gets its own")
        func bothRoles() async throws {
            let stage = try await Stage()
            let publishing = try await stage.launchPublishing()
            let arguments = ["--restore", "app", "--state-dir", stage.directory.path]
            let scanning = try Probe(stage.world, arguments)
            try await scanning.next("state poweredOn")
            #expect(scanning.callbacks == ["state"])
            scanning.send("scan 180D")
            try await scanning.next("end scan")
            try await scanning.kill()
            try await publishing.kill()
            try await stage.launch().next("restored", "name=Kit", Self.services)
            try await Probe(stage.world, arguments).next("restored", "scanning=true services=180D")
        }

        @Test(
            "RS-16 R-17 R-18 withdrawn services and a released manager leave no state",
            arguments: [false, true])
        func finished(_ isReleased: Bool) async throws {
            let stage = try await Stage()
            let probe = try await stage.launchPublishing()
            if isReleased {
                probe.send("channel")
                try await probe.next("published", "error=none")
                probe.send("release")
                try await probe.next("end release")
            } else {
                probe.send("unpublish")
                probe.send("stopadvertise")
                try await probe.next("end stopadvertise")
            }
            try await probe.kill()
            let again = try stage.launch()
            try await again.next("state poweredOn", "advertising=false -")
            #expect(again.callbacks == ["state"])
        }

        // MARK: What happens to Bluetooth itself

        // Slow: in the rig, bluetoothd restarts in both cases, and a central finds what is published again.
        @Test(
            "D10 bluetoothd exits while the app is running: services and advertisement come back on their own",
            Probe.onlyCallbacks(endsWithReset),
            arguments: ["kill", "stop"])
        func daemonRestart(_ how: String) async throws {
            let stage = try await Stage()
            let probe = try await stage.launchPublishing()
            try await stage.world.control("bluetoothd \(how)")
            try await probe.next("state resetting", "advertising=true")
            try await stage.world.control("bluetoothd start")
            try await probe.next("state poweredOn", "advertising=true")
            try await stage.awaitService()
            _ = try await stage.world.control("central write \(sinkUUID(0x111).line) 0c")
            try await probe.next("wrote 0111 0c same=true")
            #expect(try await stage.countOfServices() == 1)
            #expect(probe.callbacks.count { $0 == "added" } == 2 && probe.callbacks.count { $0 == "advertising" } == 1)
        }

        @Test(
            "D10 the adapter is replugged while the app is running: services and advertisement come back",
            Probe.onlyCallbacks(endsWithReset))
        func replug() async throws {
            let stage = try await Stage()
            let probe = try await stage.launchPublishing()
            try await stage.world.control("rig unplug")
            try await probe.next("state resetting", "advertising=true")
            try await stage.world.control("rig plug")
            try await probe.next("state poweredOn", "advertising=true")
            try await stage.awaitService()
            #expect(try await stage.countOfServices() == 1)
        }

        // Slow: in the rig, bluetoothd restarts, and two programs start one after the other.
        @Test("bluetoothd is killed and restarted while the app is not running: everything returns")
        func daemonRestartWhileDead() async throws {
            let stage = try await Stage()
            try await stage.launchPublishing().kill()
            try await stage.world.control("bluetoothd kill")
            try await stage.world.control("bluetoothd start")
            try await stage.launch().next("restored", "name=Kit", Self.services)
        }

        @Test("RS-17 ST-3 switched off: advertising ends, services stay; the same after a relaunch")
        func switchedOff() async throws {
            let stage = try await Stage()
            let probe = try await stage.launchPublishing()
            try await stage.world.control("rig power off")
            try await probe.next("state poweredOff", "advertising=false \(Self.services)")
            try await stage.world.control("rig power on")
            try await probe.next("state poweredOn", "advertising=false \(Self.services)")
            try await probe.kill()
            let again = try stage.launch()
            try await again.next("restored", "name=- uuids=- advertising=false \(Self.services)")
            try await again.next("state poweredOn", "advertising=false")
            again.send("advertise Kit")
            try await again.next("advertising error=none")
            try await stage.awaitService()
            #expect(try await stage.countOfServices() == 1)
        }
    }
}
