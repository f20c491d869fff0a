import BluezKit
import BluezKitSimulator
import Foundation
import Testing

/// D10: a keeper is killed at any of its system calls, while its app connects and subscribes, is dead, and comes back.
/// That is never worse than no keeper: the app, or its next process, has its link again, and what it ends has ended.
@Suite(.serialized) struct KeeperKilledAnywhereTests {
    private static let heart = Scenarios.RestorationScenarios.heart
    private static let steps = [
        ("scan all", "discovered \(heart)"), ("connect \(heart)", "connected"), ("stopscan", "end stopscan"),
        ("discover \(heart) 180D", "services"), ("characteristics \(heart) 180D", "characteristics"),
        ("subscribe \(heart) 2A37", "notifying"),
    ]

    // Slow: 12 runs of a keeper, and of two processes of its app.
    @Test("D10 RS-15 a keeper killed at any system call: its app has its link again, and can end it")
    func killedAnywhere() async throws {
        let total = try await run(killedAt: .max) ?? 0
        try #require(total >= 400)
        let wanted = min(ProcessInfo.processInfo.environment["BLUEZKIT_KILL_POINTS"].flatMap(Int.init) ?? 12, total)
        for index in 0..<wanted {
            _ = try await run(killedAt: 1 + index * total / wanted)
            if wanted > 100, index % 50 == 49 { print("killed at \(index + 1) of \(wanted) points") }
        }
        print("\(wanted) points over \(total) system calls of a keeper")
    }

    /// - Returns: The number of system calls, if it was killed at none.
    private func run(killedAt point: Int) async throws -> Int? {
        let (world, directory) = (try await SimulatedWorld(), try TemporaryDirectory())
        let keeper = try await KeeperProcess(killedAt: point)
        let options = ["--restore", "app", "--state-dir", directory.path, "--keeper", keeper.socket]
        var probe = try Probe(world, options)
        try await probe.next("state poweredOn")
        var isSubscribed = true
        for (command, awaited) in Self.steps where isSubscribed {
            probe.send(command)
            isSubscribed = try await probe.nextOrEnd(awaited, "state resetting")?.hasPrefix(awaited) ?? false
        }
        // A connect that comes after the reset is refused, as with Bluetooth switched off.
        let story = probe.all.prefix { !$0.hasPrefix("state resetting") }
        let hasConnected = story.contains("begin connect \(Self.heart)")
        if isSubscribed {
            try await probe.kill()
            for number in 80..<84 { world.heart.notify("2A37", [6, UInt8(number)]) }
            probe = try Probe(world, options)
            let first = try await probe.nextOrEnd("restored", "state poweredOn")
            #expect(first?.contains(Self.heart) == true, "killed at \(point): \(first ?? "it has ended")")
        }
        if hasConnected {
            try await eventually("killed at \(point): the app is connected, as it says: \(probe.all.suffix(3))") {
                try await probe.now().contains("\(Self.heart):connected") && world.heart.isConnected
            }
            let values = probe.all.filter { $0.hasPrefix("value 2A37 06") }
            #expect(values == Array(Set(values)).sorted(), "killed at \(point): in order, and none twice")
            // Refused until the state is back, if the keeper is killed meanwhile.
            try await eventually("killed at \(point): the link has ended; \(probe.all.suffix(5))") {
                if try await probe.now().contains("\(Self.heart):connected") { probe.send("cancel \(Self.heart)") }
                return !world.heart.isConnected
            }
        }
        let calls = point == .max ? try await keeper.calls() : nil
        try await probe.kill()
        return calls
    }
}
