import BluezKit
import Foundation
import Testing

/// D11: an app is killed at any of its system calls while it connects, subscribes, scans and cancels. What comes back is
/// what it had asked for before the call that was interrupted, or after it.
@Suite(.serialized) struct KillAnywhereTests {
    private static let heart = Scenarios.RestorationScenarios.heart

    /// What an app asks for.
    struct Intents: Equatable {
        var isConnecting = false
        var isSubscribed = false
        var scan: String?

        init(isConnecting: Bool = false, isSubscribed: Bool = false, scan: String? = nil) {
            (self.isConnecting, self.isSubscribed, self.scan) = (isConnecting, isSubscribed, scan)
        }

        /// From a line of the probe, `restored … scanning=true services=180D … ID:connected:180D[2A37*,…]`.
        init(restored line: String?) {
            guard let line else { return }
            isConnecting = line.contains(heart)
            isSubscribed = line.contains("2A37*")
            scan = line.contains("scanning=true") ? (line.contains("services=180D") ? "180D" : "all") : nil
        }
    }

    /// A command, what it makes of the intents, and the line that shows that its work is done.
    private static let steps: [(command: String, change: @Sendable (inout Intents) -> Void, awaited: String)] = [
        ("scan all", { $0.scan = "all" }, "discovered \(heart)"),
        ("connect \(heart)", { $0.isConnecting = true }, "connected"),
        ("stopscan", { $0.scan = nil }, "end stopscan"),
        ("discover \(heart) 180D", { _ in }, "services"),
        ("characteristics \(heart) 180D", { _ in }, "characteristics"),
        ("subscribe \(heart) 2A37", { $0.isSubscribed = true }, "notifying"),
        ("scan 180D", { $0.scan = "180D" }, "end scan"),
        ("unsubscribe \(heart) 2A37", { $0.isSubscribed = false }, "notifying"),
        ("subscribe \(heart) 2A37", { $0.isSubscribed = true }, "notifying"),
        ("stopscan", { $0.scan = nil }, "end stopscan"),
        ("cancel \(heart)", { ($0.isConnecting, $0.isSubscribed) = (false, false) }, "disconnected"),
        ("scan all", { $0.scan = "all" }, "end scan"),
        ("stopscan", { $0.scan = nil }, "end stopscan"),
        ("quit", { _ in }, "never"),
    ]

    /// The environment's `BLUEZKIT_KILL_POINTS` says how many of the system calls are tried; they are spread evenly.
    @Test("D11 RS-16 killed at any system call: the intents before or after the interrupted call come back")
    func killAnywhere() async throws {
        let world = try await SimulatedWorld()
        let total = try await run(world, killedAt: .max).calls ?? 0
        try #require(total > 500)
        let wanted = min(ProcessInfo.processInfo.environment["BLUEZKIT_KILL_POINTS"].flatMap(Int.init) ?? 40, total)
        var interrupted = 0
        for index in 0..<wanted {
            let (begun, calls) = try await run(world, killedAt: 1 + index * total / wanted)
            if calls == nil, begun { interrupted += 1 }
            if wanted > 100, index % 50 == 49 { print("killed at \(index + 1) of \(wanted) points") }
        }
        print("\(wanted) points over \(total) system calls; \(interrupted) of them between begin and end of a call")
        #expect(interrupted > wanted / 20)
    }

    /// One run and the relaunch after it.
    /// - Returns: Whether a call of the app was interrupted, and how many system calls there were if none was.
    private func run(_ world: SimulatedWorld, killedAt point: Int) async throws -> (begun: Bool, calls: Int?) {
        let directory = try TemporaryDirectory()
        let options = ["--restore", "app", "--state-dir", directory.path]
        let probe = try Probe(world, options, launcher: [Probe.killer, String(point)])
        try await probe.next("state poweredOn")
        for step in Self.steps {
            probe.send(step.command)
            guard try await probe.nextOrEnd(step.awaited) != nil else { break }
        }
        try await probe.waitForEnd()
        let lines = probe.all
        let begun = lines.filter { $0.hasPrefix("begin ") }.count
        let ended = lines.filter { $0.hasPrefix("end ") }.count
        let calls = lines.last { $0.hasPrefix("calls ") }.flatMap { Int($0.dropFirst(6)) }
        var before = Intents()
        for step in Self.steps.prefix(ended) { step.change(&before) }
        var after = before
        for step in Self.steps.prefix(begun).dropFirst(ended) { step.change(&after) }

        let again = try Probe(world, options)
        let first = try #require(
            try await again.nextOrEnd("restored", "state poweredOn"), "the relaunched app has ended")
        let restored = Intents(restored: first.hasPrefix("restored") ? first : nil)
        #expect(
            restored == before || restored == after,
            "killed at \(point): \(lines.suffix(4)); before \(before), after \(after), came \(first)")
        try await again.kill()
        if try await world.control("heart connections") != "0" { _ = try await world.control("heart disconnect") }
        try await world.awaitConnections("heart", 0)
        return (begun > ended, calls)
    }
}
