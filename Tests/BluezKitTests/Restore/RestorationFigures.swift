import BluezKitSimulator
import Foundation
import Testing

/// What restoration costs and brings. Not a test of correctness: `BLUEZKIT_FIGURES=ROUNDS` turns it on, and
/// `Benchmarks/restore` runs it with a release build of the app, in the simulator and in the rig.
extension Scenarios {
    @Suite(
        .serialized,
        .enabled(if: ProcessInfo.processInfo.environment["BLUEZKIT_FIGURES"] != nil, "figures, not a test"))
    struct RestorationFigures {
        private let rounds = ProcessInfo.processInfo.environment["BLUEZKIT_FIGURES"].flatMap(Int.init) ?? 30

        @Test("from process start to the first notification: new and restored; values lost by each kill")
        func firstNotification() async throws {
            let stage = try await Self.stage()
            let world = stage.world
            try await world.control("heart beat 20")
            var cold: [Double] = []
            for _ in 0..<min(rounds, 20) {
                let start = ContinuousClock.now
                let probe = try stage.launch(nil, ["--follow", "180D,2A37"])
                try await probe.next("value 2A37")
                cold.append((ContinuousClock.now - start) / .milliseconds(1))
                try await probe.kill()
                try await world.control("heart disconnect")
                try await world.awaitConnections("heart", 0)
            }
            var probe = try stage.launch("app", ["--follow", "180D,2A37"])
            try await probe.next("value 2A37")
            var restored: [Double] = []
            var lost: [Int] = []
            for _ in 0..<rounds {
                try await probe.next("value 2A37")
                try await probe.kill()
                let last = try #require(Self.beat(probe.all.last { $0.hasPrefix("value 2A37") }))
                let start = ContinuousClock.now
                probe = try stage.launch("app", ["--follow", "180D,2A37"])
                let next = try #require(Self.beat(try await probe.next("value 2A37")))
                restored.append((ContinuousClock.now - start) / .milliseconds(1))
                lost.append((next - last - 1 + 100) % 100)
            }
            try await world.control("heart beat 0")
            print(
                """
                figures: world \(Worlds.isRig ? "rig" : "simulator"), beats 20 a second
                figures: start to first notification, cold: median \(Self.median(cold)) ms of \(cold.count)
                figures: start to first notification, restored: median \(Self.median(restored)) ms of \(restored.count)
                figures: values lost by a kill: mean \(Double(lost.reduce(0, +)) / Double(lost.count)), median \
                \(Self.median(lost.map(Double.init))), most \(lost.max() ?? 0), none in \(lost.filter { $0 == 0 }.count) \
                of \(lost.count)
                """)
        }

        @Test("the cost of preserving a change in the app's call, with a connection and a subscription in the file")
        func costOfAnIntent() async throws {
            let stage = try await Self.stage()
            try await stage.world.control("heart beat 2")
            for identifier in ["app", nil] {
                let probe = try stage.launch(identifier, ["--follow", "180D,2A37"])
                try await probe.next("value 2A37")
                probe.send("cost 1000")
                let cost = try await probe.next("cost ").split(separator: " ")[1]
                let size = try identifier.map {
                    try Data(contentsOf: URL(fileURLWithPath: stage.directory.file($0))).count
                }
                print(
                    "figures: a call, \(size.map { "preserved in a file of \($0) bytes" } ?? "not preserved"): \(cost.prefix(6)) us"
                )
                try await probe.kill()
                try await stage.world.control("heart disconnect")
                try await stage.world.awaitConnections("heart", 0)
            }
            try await stage.world.control("heart beat 0")
        }

        /// In the simulator with the times of a real radio.
        private static func stage() async throws -> RestorationScenarios.Stage {
            try await RestorationScenarios.Stage(Worlds.isRig ? nil : SimulatedWorld(timing: .real))
        }

        /// The heart rate, which the sensor counts from 60 to 159.
        private static func beat(_ line: String?) -> Int? {
            guard let hex = line?.split(separator: " ").dropFirst(2).first, hex.count >= 4 else { return nil }
            return Int(hex.dropFirst(2).prefix(2), radix: 16)
        }

        private static func median(_ values: [Double]) -> Double {
            let sorted = values.sorted()
            return sorted.isEmpty ? 0 : (sorted[sorted.count / 2] * 10).rounded() / 10
        }
    }
}
