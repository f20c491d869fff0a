import BluezKitSimulator
import BluezKit
import Foundation
import Testing

/// D11: an app is killed at any of its system calls while it connects, subscribes, scans and cancels, or publishes and
/// advertises. What is restored is what it had requested before the interrupted call, or after it, and BlueZ is made to
/// do that and nothing else.
@Suite(.serialized) struct KillAnywhereTests {
    private static let heart = Scenarios.RestorationScenarios.heart

    /// What an app does, one call for each step, and what of it is to be preserved.
    private struct Script: Sendable {
        struct Step: Sendable {
            let command: String
            let change: @Sendable (inout Set<String>) -> Void
            /// Shows that the work is done.
            let awaited: String

            init(_ command: String, awaiting awaited: String, _ change: @escaping @Sendable (inout Set<String>) -> Void)
            {
                (self.command, self.change, self.awaited) = (command, change, awaited)
            }
        }

        let arguments: [String]
        var isCentral: Bool { arguments.contains("--restore") }
        let steps: [Step]
        /// Each intent, and the words by which the line `restored …` shows it.
        let signs: [(intent: String, words: String)]

        func intents(in line: String) -> Set<String> { Set(signs.filter { line.contains($0.words) }.map(\.intent)) }
    }

    private static let central = Script(
        arguments: ["--restore", "app"],
        steps: [
            .init("scan all", awaiting: "discovered \(heart)") { $0.insert("scan") },
            .init("connect \(heart)", awaiting: "connected") { $0.insert("connect") },
            .init("stopscan", awaiting: "end stopscan") { $0.remove("scan") },
            .init("discover \(heart) 180D", awaiting: "services") { _ in },
            .init("characteristics \(heart) 180D", awaiting: "characteristics") { _ in },
            .init("subscribe \(heart) 2A37", awaiting: "notifying") { $0.insert("subscribe") },
            .init("scan 180D", awaiting: "end scan") { $0.formUnion(["scan", "filter"]) },
            .init("unsubscribe \(heart) 2A37", awaiting: "notifying") { $0.remove("subscribe") },
            .init("subscribe \(heart) 2A37", awaiting: "notifying") { $0.insert("subscribe") },
            .init("stopscan", awaiting: "end stopscan") { $0.subtract(["scan", "filter"]) },
            .init("cancel \(heart)", awaiting: "disconnected") { $0.subtract(["connect", "subscribe"]) },
            .init("scan all", awaiting: "end scan") { $0.insert("scan") },
            .init("stopscan", awaiting: "end stopscan") { $0.remove("scan") },
            .init("quit", awaiting: "never") { _ in },
        ],
        signs: [
            ("scan", "scanning=true"), ("filter", "services=180D"), ("connect", heart), ("subscribe", "2A37*"),
        ])

    private static let peripheral = Script(
        arguments: ["--publish", "app"],
        steps: [
            .init("add 0", awaiting: "added") { $0.insert("0101") },
            .init("advertise Kit", awaiting: "advertising") { $0.insert("Kit") },
            .init("add 1", awaiting: "added") { $0.insert("0100") },
            .init("stopadvertise", awaiting: "end stopadvertise") { $0.remove("Kit") },
            .init("advertise Other", awaiting: "advertising") { $0.insert("Other") },
            .init("unpublish", awaiting: "end unpublish") { $0.subtract(["0100", "0101"]) },
            .init("stopadvertise", awaiting: "end stopadvertise") { $0.remove("Other") },
            .init("quit", awaiting: "never") { _ in },
        ],
        signs: [("0101", "0101[0112"), ("0100", "0100+0101[0110"), ("Kit", "name=Kit"), ("Other", "name=Other")])

    // Slow: 20 runs of an app and 20 relaunches, each in a world of its own.
    @Test("D11 RS-16 a central killed at any system call: the intents before or after the interrupted call come back")
    func killCentralAnywhere() async throws { try await killAnywhere(Self.central, atLeast: 400) }

    // Slow: likewise.
    @Test(
        "D11 RS-16 a peripheral killed at any system call: the intents before or after the interrupted call come back")
    func killPeripheralAnywhere() async throws { try await killAnywhere(Self.peripheral, atLeast: 200) }

    /// How many system calls a run makes depends on how much arrives at a time: `fewest` only shows that they are
    /// counted.
    ///
    /// The environment's `BLUEZKIT_KILL_POINTS` says how many of the system calls are tried; they are spread evenly.
    private func killAnywhere(_ script: Script, atLeast fewest: Int) async throws {
        let total = try await run(script, killedAt: .max).calls ?? 0
        try #require(total >= fewest)
        let wanted = min(ProcessInfo.processInfo.environment["BLUEZKIT_KILL_POINTS"].flatMap(Int.init) ?? 20, total)
        var (interrupted, tried) = (0, 0)
        // A run that waits much spends its system calls on that: then the points between are tried as well.
        for pass in 0..<8 where interrupted <= wanted / 20 {
            for index in 0..<wanted {
                let (begun, calls) = try await run(script, killedAt: 1 + (8 * index + pass) * total / (8 * wanted))
                tried += 1
                if calls == nil, begun { interrupted += 1 }
                if wanted > 100, index % 50 == 49 { print("killed at \(index + 1) of \(wanted) points") }
            }
        }
        print("\(tried) points over \(total) system calls; \(interrupted) of them between begin and end of a call")
        #expect(interrupted > wanted / 20)
    }

    /// Links, discovery and subscriptions become what the app requested, and nothing more: what the process that was
    /// killed had released is not kept.
    private func expectBlueZ(of world: SimulatedWorld, toBe wanted: Set<String>, _ what: String) async throws {
        let expected = [wanted.contains("connect"), wanted.contains("scan"), wanted.contains("subscribe")]
        var now: [Bool] = []
        try await eventually(
            "\(what): connected, discovering, subscribed are \(now), and the app wants \(expected)"
        ) {
            now = [world.heart.isConnected, world.simulator.isDiscovering(), world.heart.isSubscribed(to: "2A37")]
            return now == expected
        }
    }

    /// One run and the relaunch after it.
    /// - Returns: Whether a call of the app was interrupted, and the number of system calls if none was.
    private func run(_ script: Script, killedAt point: Int) async throws -> (begun: Bool, calls: Int?) {
        // Its own: a connect in progress continues without the process that requested it.
        let world = try await SimulatedWorld()
        let directory = try TemporaryDirectory()
        let options = script.arguments + ["--state-dir", directory.path]
        let probe = try Probe(world, options, launcher: [Probe.killer, String(point)])
        try await probe.next("state poweredOn")
        for step in script.steps {
            probe.send(step.command)
            guard try await probe.nextOrEnd(step.awaited) != nil else { break }
        }
        try await probe.waitForEnd()
        let lines = probe.all
        let begun = lines.filter { $0.hasPrefix("begin ") }.count
        let ended = lines.filter { $0.hasPrefix("end ") }.count
        let calls = lines.last { $0.hasPrefix("calls ") }.flatMap { Int($0.dropFirst(6)) }
        var before: Set<String> = []
        for step in script.steps.prefix(ended) { step.change(&before) }
        var after = before
        for step in script.steps.prefix(begun).dropFirst(ended) { step.change(&after) }

        let again = try Probe(world, options)
        let first = try #require(
            try await again.nextOrEnd("restored", "state poweredOn"), "the relaunched app has ended")
        let restored = first.hasPrefix("restored") ? script.intents(in: first) : []
        #expect(
            restored == before || restored == after,
            "killed at \(point): \(lines.suffix(4)); before \(before), after \(after), came \(first)")
        if script.isCentral {
            try await expectBlueZ(of: world, toBe: restored, "killed at \(point): \(lines.suffix(4))")
        }
        try await again.kill()
        return (begun > ended, calls)
    }
}
