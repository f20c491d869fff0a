import BluezKitSimulator
import BluezDBus
import Foundation
import Testing

@testable import BluezKit

/// Links and attempts that a process leaves in BlueZ: orphaned ones are ended by the next process with BluezKit, of any
/// app, because on Apple's systems they end with the process. With real processes, in both worlds.
extension Scenarios {
    @Suite struct AbandonedLinkScenarios {
        private typealias Stage = RestorationScenarios.Stage
        private let heart = RestorationScenarios.heart
        private let sink = RestorationScenarios.sink

        enum End: String, CaseIterable { case killed, exits }

        // `Disconnect` was sent after the call had returned, and if the process exited first, nothing recorded the
        // link: it stayed up forever, and the peripheral was no longer found. Now the lease exists until BlueZ has
        // answered.
        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to, two in each of four cases.
        @Test(
            "CN-7 D11 an app cancels and exits immediately: the next one finds the peripheral again",
            arguments: End.allCases, ["app", nil])
        func cancelled(_ end: End, identifier: String?) async throws {
            let stage = try await Stage()
            let probe = try await stage.launchFresh(identifier)
            try await stage.connect(probe, heart)
            try await stage.world.letBlueZDiscover(.heart)
            try await leave(stage, probe, by: "cancel \(heart)", end)
            try await findsAgain(stage, identifier)
        }

        // What a cancel asks of BlueZ was sent by another thread, and `exit` in the next line was often first: a tool
        // that runs once a day left its sensor unreachable for a day. Now it is sent before the call returns, or by
        // `exit`.
        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to, five times.
        @Test(
            "CN-7 an app cancels, or releases the peripheral, and exits in the next line: the link ends, time after time",
            .enabled(if: !isHosted, "the keeper ends with the app"))
        func exitsAtOnce() async throws {
            let stage = try await Stage()
            for command in ["cancel", "release", "cancel", "release", "cancel"] {
                let probe = try await stage.launchFresh(nil)
                try await stage.connect(probe, heart)
                // BlueZ 5.66 crashes if the link is lost while it discovers.
                probe.send("discover \(heart) 180D")
                try await probe.next("services")
                probe.send("\(command) \(heart) exit")
                try await probe.waitForEnd()
                try await stage.world.awaitConnections("heart", 0)
            }
        }

        @Test(
            "CN-7 an app cancels an attempt and exits in the next line: no link is made, time after time",
            .enabled(if: !isHosted, "the keeper ends with the app"))
        func exitsWhileAttempting() async throws {
            let stage = try await Stage()
            let simulator = (stage.world as? SimulatedWorld)?.simulator
            for _ in 0..<3 {
                let probe = try await stage.launchFresh(nil)
                // BlueZ attempts to reach only what it has seen.
                probe.send("scan 180D")
                try await probe.next("discovered \(heart)")
                try await stage.world.control("heart vanish")
                probe.send("stopscan")
                let attempts = simulator?.calls("Connect").count ?? 0
                probe.send("connect \(heart)")
                _ = await simulator?.waitForCalls("Connect", count: attempts + 1)
                if Worlds.isRig { try await stage.world.control("rig scans F0:F1:F2:00:00:01") }
                probe.send("cancel \(heart) exit")
                try await probe.waitForEnd()
                try await stage.world.heartReturns()
                // An attempt would make its link from the first one, and a peripheral that is connected sends no more.
                for _ in 0..<3 { _ = try await stage.world.advertisement(of: "F0:F1:F2:00:00:01") }
                try await stage.world.awaitConnections("heart", 0)
            }
        }

        // Slow: as for `cancelled`.
        @Test(
            "CN-15 D11 an app releases the peripheral, or all it has, and exits immediately: the next one finds it again",
            arguments: End.allCases, ["release " + RestorationScenarios.heart, "releasemanager"])
        func released(_ end: End, command: String) async throws {
            let stage = try await Stage()
            let probe = try await stage.launchFresh(nil)
            try await stage.connect(probe, heart)
            try await stage.world.letBlueZDiscover(.heart)
            try await leave(stage, probe, by: command, end)
            try await findsAgain(stage, nil)
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test(
            "CN-7 D11 an app cancels an attempt and exits immediately: no link is made when the peripheral appears",
            arguments: End.allCases, ["app", nil])
        func cancelledAttempt(_ end: End, identifier: String?) async throws {
            let stage = try await Stage()
            let probe = try await stage.launchFresh(identifier)
            try await attempt(stage, probe)
            try await leave(stage, probe, by: "cancel \(heart)", end)
            let again = try await stage.launchFresh(identifier)
            try await awaitLease(false, stage)
            try await stage.world.heartReturns()
            try await findsAgain(stage, identifier, again)
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test(
            "RS-1 an app without a restore identifier is killed: its link ends when another app starts, and so does its attempt"
        )
        func killedWithoutIdentifier() async throws {
            let stage = try await Stage()
            let connected = try await stage.launchFresh(nil)
            try await stage.connect(connected, heart)
            try await stage.world.letBlueZDiscover(.heart)
            try await connected.kill()
            try await findsAgain(stage, "other")
            let attempting = try await stage.launchFresh(nil)
            try await attempt(stage, attempting)
            try await attempting.kill()
            let again = try await stage.launchFresh("other")
            try await awaitLease(false, stage)
            try await stage.world.heartReturns()
            try await findsAgain(stage, "other", again)
        }

        @Test(
            "CN-2 a killed app requests the peripheral again immediately: it gets a link, whichever process was first")
        func wantedAgainAtOnce() async throws {
            let stage = try await Stage()
            let probe = try await stage.launchFresh(nil)
            try await stage.connect(probe, heart)
            try await probe.kill()
            let again = try await stage.launchFresh(nil)
            again.send("connect \(heart)")
            try await again.next("connected \(heart)", within: 2 * world_deadline)
            again.send("discover \(heart) 180D")
            try await again.next("services", "180D")
            #expect(!again.callbacks.contains("disconnected"))
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test(
            "RS-6 a link listed in preserved state waits for its app, and ends if it is not claimed"
        )
        func claimed() async throws {
            let stage = try await Stage()
            try await stage.launchBeating().kill()
            // Another orphaned link shows when the other app has checked.
            let orphaning = try await stage.launchFresh(nil)
            try await stage.connect(orphaning, sink)
            try await stage.world.letBlueZDiscover(.sink)
            try await orphaning.kill()
            let other = try await stage.launchFresh(nil)
            try await stage.world.awaitConnections("sink", 0)
            #expect(try await stage.world.control("heart connections") == "1")
            try await other.kill()
            let again = try stage.launch()
            try await again.next("restored", "\(heart):connected:180D[2A37*")
            try await again.next("state poweredOn")
            try await stage.world.control("heart beat 5")
            try await again.next("value 2A37")
            try await stage.world.control("heart beat 0")
            try await again.kill()
            #expect(
                BluezPreservedState.discard(
                    "app", .central,
                    options: [
                        BluezManagerOptionStateDirectoryKey: stage.directory.path
                    ]))
            try await findsAgain(stage, nil)
        }

        // A restored link was treated as one of ours, regardless of the program that had made it.
        // Slow: in the rig, connecting takes seconds while a scan is running, and BlueZ ends the link two to three
        // seconds after it was asked to.
        @Test("O-43 RS-3 a restored link that a program without BluezKit made: a cancel leaves it alone")
        func foreignLink() async throws {
            let stage = try await Stage()
            let probe = try await stage.launchFresh()
            probe.send("scan all")
            try await probe.next("discovered \(heart)")
            let other = try await Peer.named(stage.world.busAddress)
            try await other.call(foreign("Connect"), deadline: .seconds(60))
            probe.send("connect \(heart)")
            try await probe.next("connected \(heart)")
            // BlueZ 5.66 crashes if a link is lost while it discovers.
            probe.send("discover \(heart) 180D")
            try await probe.next("services")
            try await probe.kill()
            let again = try stage.launch()
            try await again.next("restored", "\(heart):connected")
            try await again.next("state poweredOn")
            again.send("cancel \(heart)")
            try await again.next("disconnected \(heart)")
            #expect(try await stage.world.control("heart connections") == "1")
            try await other.call(foreign("Disconnect"), deadline: .seconds(60))
            try await stage.world.awaitConnections("heart", 0)
        }

        private func foreign(_ member: String) -> MethodCall {
            MethodCall(
                destination: "org.bluez", path: "/org/bluez/hci0/dev_F0_F1_F2_00_00_01", interface: "org.bluez.Device1",
                member: member)
        }

        // MARK: Steps

        /// The app ends as soon as it has carried out `command`.
        private func leave(_ stage: Stage, _ probe: Probe, by command: String, _ end: End) async throws {
            // A fast process sends `Disconnect` before it ends. The simulator then ignores it, so that the link stays
            // in any case, except when the call arrives only after the process has ended.
            let simulator = (stage.world as? SimulatedWorld)?.simulator
            simulator?.inject(SimulatorFault("Disconnect", .ignore))
            defer { simulator?.clearFaults() }
            switch end {
            case .killed:
                probe.send(command)
                try await probe.next("end \(command)")
                // What was released may end a moment later.
                _ = await simulator?.waitForCalls("Disconnect")
                try await probe.kill()
            case .exits:
                probe.send("\(command) exit")
                try await probe.waitForEnd()
            }
        }

        /// The probe attempts to connect to the heart, which is absent.
        private func attempt(_ stage: Stage, _ probe: Probe) async throws {
            probe.send("scan all")
            try await probe.next("discovered \(heart)")
            probe.send("stopscan")
            try await probe.next("end stopscan")
            try await stage.world.control("heart vanish")
            probe.send("connect \(heart)")
            if let simulator = (stage.world as? SimulatedWorld)?.simulator {
                _ = await simulator.waitForCalls("Connect")
            } else {
                try await awaitLease(true, stage)
            }
        }

        /// A new process, or `app`, restores nothing, finds the heart, and can use it.
        private func findsAgain(_ stage: Stage, _ identifier: String?, _ app: Probe? = nil) async throws {
            let again = if let app { app } else { try await stage.launchFresh(identifier) }
            again.send("scan all")
            try await again.next("discovered \(heart)", within: 2 * world_deadline)
            again.send("connect \(heart)")
            try await again.next("connected \(heart)", within: 2 * world_deadline)
            again.send("stopscan")
            // BlueZ 5.66 crashes if the link is lost while it discovers.
            again.send("discover \(heart) 180D")
            try await again.next("services")
            #expect(!again.callbacks.contains("restored"))
            again.send("cancel \(heart)")
            try await again.next("disconnected \(heart)")
            try await stage.world.awaitConnections("heart", 0)
            try await again.kill()
        }

        /// Waits until there is a lease of the heart, held or not, or none.
        private func awaitLease(_ isThere: Bool, _ stage: Stage) async throws {
            let bus = try #require(try await Peer.named(stage.world.busAddress).sync(\.serverGUID))
            let directory = try #require(LinkLease.directory)
            var names: [String] = []
            try await eventually("a lease is \(isThere ? "" : "no longer ")there: \(names)") {
                names = try FileManager.default.contentsOfDirectory(atPath: directory)
                return isThere
                    == names.contains { $0.hasPrefix(bus) && $0.hasSuffix("dev_F0_F1_F2_00_00_01") }
            }
        }
    }
}
