import BluezDBus
import BluezKitSimulator
import Foundation
import Testing

@testable import BluezKit

// The owner of a link was determined by a file alone: if none could be created, the link had no owner and was never
// ended, links of other programs were cut with the state of an exited process, files were never removed, and the bus
// queue waited for a lock.
@Suite struct SharedLinkTests {
    private let heart = Scenarios.RestorationScenarios.heart
    private let sink = Scenarios.RestorationScenarios.sink
    private static let heartPath = "/org/bluez/hci0/dev_F0_F1_F2_00_00_01"

    private struct Stage {
        let world: SimulatedWorld
        let directory: TemporaryDirectory
        var runtime: String { directory.path + "/run" }

        init() async throws {
            (world, directory) = (try await SimulatedWorld(), try TemporaryDirectory())
            try FileManager.default.createDirectory(atPath: runtime, withIntermediateDirectories: false)
        }

        func launch(_ arguments: [String] = []) async throws -> Probe {
            let probe = try Probe(
                world, ["--state-dir", directory.path] + arguments,
                launcher: ["/usr/bin/env", "XDG_RUNTIME_DIR=\(runtime)"])
            try await probe.next("state poweredOn")
            return probe
        }

        /// Without a scan: beside one, a device that BlueZ does not report again is attempted only after 8 s.
        func connect(_ probe: Probe, _ identifier: String) async throws {
            probe.send("connect \(identifier)")
            try await probe.next("connected \(identifier)")
        }
    }

    // BlueZ asks the agent that was registered first, not that of the program that has made the link, and it refuses: a
    // read that needs pairing was then not answered for 30 s.
    @Test("CN-14 a program that only ends the link of a dead process is no pairing agent")
    func endsWithoutAgent() async throws {
        let stage = try await Stage()
        let probe = try await stage.launch()
        try await stage.connect(probe, heart)
        let agents = stage.world.simulator.calls("RegisterAgent").count
        try await probe.kill()
        let again = try await stage.launch()
        _ = try #require(await stage.world.simulator.waitForCalls("Disconnect"))
        again.send("scan 180D")
        try await again.next("end scan")
        #expect(stage.world.simulator.calls("RegisterAgent").count == agents)
    }

    // Of such a device only the address was known, so that no scan for a service found it while its link was being
    // ended. The controller does not repeat a report, so that it was not found for 15 s after that, either.
    @Test("SC-12 a peripheral that advertises in the link of a dead process is found by a scan for its service")
    func advertisesInOrphanedLink() async throws {
        let stage = try await Stage()
        let simulator = stage.world.simulator
        let probe = try await stage.launch()
        try await stage.connect(probe, heart)
        try await probe.kill()
        simulator.inject(SimulatorFault("Disconnect", .ignore))
        let again = try await stage.launch()
        _ = await simulator.waitForCalls("Disconnect")
        let scans = simulator.calls("StartDiscovery").count
        again.send("scan 180D")
        _ = await simulator.waitForCalls("StartDiscovery", count: scans + 1)
        try await again.next("end scan")
        try await stage.world.control("heart once -60")
        try await again.next("discovered \(heart)")
    }

    @Test(
        "CN-7 CN-15 the directory is removed while the app runs, as on logout: its links still end",
        arguments: ["", "/bluezkit"])
    func directoryGone(_ part: String) async throws {
        let stage = try await Stage()
        let probe = try await stage.launch()
        try await stage.connect(probe, sink)
        try FileManager.default.removeItem(atPath: stage.runtime + part)
        try await stage.connect(probe, heart)
        #expect(FileManager.default.fileExists(atPath: stage.runtime + "/bluezkit") == !part.isEmpty)
        probe.send("cancel \(heart)")
        try await probe.next("disconnected \(heart)")
        try await stage.world.awaitConnections("heart", 0)
        // An attempt as well.
        stage.world.heart.vanish()
        let calls = stage.world.simulator.calls("Connect").count
        probe.send("connect \(heart)")
        _ = await stage.world.simulator.waitForCalls("Connect", count: calls + 1)
        let ends = stage.world.simulator.calls("Disconnect").count
        probe.send("cancel \(heart)")
        try await probe.next("disconnected \(heart)")
        _ = await stage.world.simulator.waitForCalls("Disconnect", count: ends + 1)
        stage.world.heart.comeBack()
        try await stage.connect(probe, heart)
        probe.send("releasemanager")
        try await stage.world.awaitConnections("heart", 0)
        try await stage.world.awaitConnections("sink", 0)
    }

    @Test("DL-7 RS-6 unclaimed state: a running program that uses the same link keeps it")
    func claimsLeaveOthersAlone() async throws {
        let stage = try await Stage()
        let dead = try await stage.launch(["--restore", "dead"])
        let living = try await stage.launch()
        try await stage.connect(dead, heart)
        try await stage.connect(living, heart)
        try await dead.kill()
        let other = try await stage.launch(["--restore", "other", "--claim", "0.2"])
        try await other.next("log warning", "no manager has claimed the preserved state of \"dead\"")
        // What it does next is done after that.
        try await stage.connect(other, sink)
        #expect(!living.callbacks.contains("disconnected"))
        #expect(stage.world.heart.isConnected && stage.world.simulator.calls("Disconnect").isEmpty)
    }

    @Test("RS-6 unclaimed state: a link and an attempt that no other program holds end")
    func claimsEndWhatIsLeft() async throws {
        let stage = try await Stage()
        let dead = try await stage.launch(["--restore", "dead"])
        try await stage.connect(dead, heart)
        try await dead.kill()
        let other = try await stage.launch(["--restore", "other", "--claim", "0.2"])
        try await stage.world.awaitConnections("heart", 0)
        #expect(try await stage.connect(other, heart) == ())
    }

    @Test("CN-2 another program is ending the link: a new connect is not completed by that link, and gets the next one")
    func connectsWhileOtherEnds() async throws {
        let stage = try await Stage()
        let first = try await stage.launch()
        let second = try await stage.launch()
        try await stage.connect(first, heart)
        stage.world.simulator.inject(SimulatorFault("Disconnect", .delay(.milliseconds(500))))
        first.send("cancel \(heart)")
        _ = await stage.world.simulator.waitForCalls("Disconnect")
        second.send("scan all")
        second.send("connect \(heart)")
        try await second.next("connected \(heart)")
        second.send("discover \(heart) 180D")
        try await second.next("services", "180D")
        #expect(!second.callbacks.contains("disconnected"))
        withExtendedLifetime(first) {}
    }

    @Test("CN-2 another program ends the link while BlueZ's answer is on its way: it is not reported as connected")
    func connectsWhenOtherHasEnded() async throws {
        let world = try await SimulatedWorld()
        // A session of its own for each, as in programs of their own.
        let (central, other) = (Central(world), Central(world, options: [BluezManagerOptionAdapterKey: "hci0"]))
        try await central.powerOn()
        try await other.powerOn()
        let (ours, others) = (try await central.find("Rig Heart"), try await other.find("Rig Heart"))
        try await other.connect(others)
        let questions = world.simulator.calls("GetAll", path: Self.heartPath).count
        let go = DispatchSemaphore(value: 0)
        central.manager.connect(ours)
        central.manager.session.queue.async { go.wait() }
        _ = try #require(
            await world.simulator.waitForCalls("GetAll", path: Self.heartPath, count: questions + 1))
        try await other.disconnect(others)
        go.signal()
        try await central.next("connection") { if case .connected(ours) = $0 { true } else { nil } }
        try await central.settle(ours)
        #expect(central.count { if case .disconnected(ours, _, _) = $0 { true } else { false } } == 0)
    }

    @Test("CN-7 DL-7 two programs wait for an absent peripheral, and both cancel: the attempt is cancelled")
    func sharedAttempt() async throws {
        let world = try await SimulatedWorld()
        world.simulator.timing.connectTimeout = .seconds(60)  // between two attempts there is none to cancel
        world.simulator.remember(world.sink)
        world.sink.vanish()
        let identifier = DeviceIdentity(address: 0xF0F1_F200_0002, isRandom: true).identifier
        var apps: [(Central, CBPeripheral)] = []
        // A session of its own for each, as in programs of their own.
        for (number, options) in [[:], [BluezManagerOptionAdapterKey: "hci0"]].enumerated() {
            let central = Central(world, options: options)
            try await central.powerOn()
            let sink = try #require(central.manager.retrievePeripherals(withIdentifiers: [identifier]).first)
            central.manager.connect(sink)
            _ = try #require(await world.simulator.waitForCalls("Connect", count: number + 1))
            apps.append((central, sink))
        }
        for (central, sink) in apps { try await central.disconnect(sink) }
        try #require(await world.simulator.waitForCalls("Disconnect") != nil)
        world.sink.comeBack()
        try await world.awaitConnections("sink", 0)
    }

    @Test(
        "CN-7 a dead process's attempt that this one has joined ends with its cancel, although Disconnect is refused at first"
    )
    func joinedAttempt() async throws {
        let stage = try await Stage()
        let simulator = stage.world.simulator
        simulator.timing.connectTimeout = .seconds(60)  // between two attempts there is none to join, or to cancel
        simulator.remember(stage.world.sink)
        stage.world.sink.vanish()
        let (dead, living) = (try await stage.launch(), try await stage.launch())
        dead.send("connect \(sink)")
        _ = await simulator.waitForCalls("Connect")
        try await dead.kill()
        living.send("connect \(sink)")
        // The second of its own: BlueZ has answered the first, so that this one has no call open.
        _ = await simulator.waitForCalls("Connect", count: 3)
        let refusal = SimulatorFault.Effect.fail(name: "org.freedesktop.DBus.Error.LimitsExceeded", message: "")
        simulator.inject(SimulatorFault("Disconnect", times: 3, refusal))
        living.send("cancel \(sink)")
        try await living.next("disconnected \(sink)")
        _ = try #require(await simulator.waitForCalls("Disconnect", count: 4))
        stage.world.sink.comeBack()
        try await stage.connect(living, heart)
        #expect(!stage.world.sink.isConnected)
    }

    // Neither had an answer that would have ended it: the one waited, and the other was told to wait.
    @Test("CN-2 a Connect that BlueZ has lost is called off although another program waits for the same device")
    func lostBesideAnother() async throws {
        let world = try await SimulatedWorld(SimulatorOptions(version: .v5_82), times: .virtual)
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        try await central.connect(heart)
        // The other program's part in the link, which it keeps.
        let (session, directory) = (central.manager.session, try #require(LinkLease.directory))
        let bus = try #require(session.queue.sync { session.bus?.serverGUID })
        let name = try #require(
            try FileManager.default.contentsOfDirectory(atPath: directory).first { $0.hasPrefix(bus) })
        let other = try #require(try LinkLease.share(name, in: directory, for: heart.identifier))
        defer { other.end() }
        world.simulator.inject(SimulatorFault("Connect", .ignore))
        world.heart.disconnect()
        try await central.next("disconnection") { if case .disconnected(heart, _, _) = $0 { true } else { nil } }
        try await central.connect(heart)
        #expect(world.simulator.calls("Disconnect").count == 1)
    }

    @Test("CN-2 a Connect that BlueZ has lost, of a program that has died, is called off by who waits for the device")
    func lostByTheDead() async throws {
        let world = try await SimulatedWorld(SimulatorOptions(version: .v5_82), times: .virtual)
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        let (session, identity) = (central.manager.session, try #require(DeviceIdentity(identifier: heart.identifier)))
        let name = try #require(
            session.queue.sync {
                session.central.store.device(identity).flatMap { session.central.leaseName(of: $0.path) }
            })
        // Its file stays as its process ends.
        _ = try LinkLease.make(name, in: LinkLease.directory, for: heart.identifier)
        let refusal = SimulatorFault.Effect.fail(name: "org.bluez.Error.InProgress", message: "In Progress")
        world.simulator.inject(SimulatorFault("Connect", times: 1000, refusal))
        central.manager.connect(heart)
        _ = await world.simulator.waitForCalls("Disconnect", count: 1)
        world.simulator.clearFaults()
        try await central.next("connection") { if case .connected(heart) = $0 { true } else { nil } }
    }
}
