import BluezKitSimulator
import Foundation
import Synchronization
import Testing

/// Many sensors, for as long as it is asked for (scripts/gateway-run), and a broker that is killed twice: each value
/// comes to a subscriber, or is counted as dropped.
@Suite struct GatewayRunTests {
    private static func setting(_ name: String, _ usual: Int) -> Int {
        ProcessInfo.processInfo.environment["BLUEZKIT_GATEWAY_\(name)"].flatMap { Int($0) } ?? usual
    }
    private static let seconds = setting("SECONDS", 3)
    private static let sensors = setting("SENSORS", 20)
    private static let rate = setting("RATE", 10)
    /// What comes in a twentieth of the time: more than in the first absence of the broker, less than in the second.
    private static let queue = setting("QUEUE", max(50, seconds * sensors * rate / 20))

    /// What the subscribers have received.
    private final class Witness: Sendable {
        private struct State {
            /// By sensor: whether the value with this number has come, and the last one.
            var has: [Int: [Bool]] = [:]
            var last: [Int: Int] = [:]
            var unique = 0
            var repeated = 0
            var disordered = 0
            var dropped = 0
        }
        private let state = Mutex(State())

        func handle(_ topic: String, _ payload: String, _ isRetained: Bool) {
            if topic == "gateway/dropped" { state.withLock { $0.dropped = Int(payload) ?? -1 } }
            guard topic.hasSuffix("/value"), !isRetained, let value = (try? GatewayTests.Line(payload))?.value,
                let sensor = Int(value.prefix(2), radix: 16), let number = Int(value.dropFirst(2), radix: 16)
            else { return }
            state.withLock {
                var has = $0.has[sensor] ?? []
                if has.count <= number { has += Array(repeating: false, count: number + 1000 - has.count) }
                if has[number] {
                    $0.repeated += 1
                } else {
                    (has[number], $0.unique) = (true, $0.unique + 1)
                    if number < $0.last[sensor] ?? 0 { $0.disordered += 1 }
                    $0.last[sensor] = number
                }
                $0.has[sensor] = has
            }
        }

        var unique: Int { state.withLock { $0.unique } }
        var repeated: Int { state.withLock { $0.repeated } }
        var disordered: Int { state.withLock { $0.disordered } }
        var dropped: Int { state.withLock { $0.dropped } }
    }

    /// What the gateway costs: memory in KiB, and seconds of processor time.
    private static func cost(_ process: Int32) throws -> (memory: Int, processor: Double) {
        let status = try String(contentsOfFile: "/proc/\(process)/status", encoding: .utf8)
        let line = try #require(status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") })
        let stat = try String(contentsOfFile: "/proc/\(process)/stat", encoding: .utf8)
        let fields = stat.split(separator: ")").last?.split(separator: " ") ?? []
        let ticks = try #require(Double(fields[11])) + #require(Double(fields[12]))
        return (try #require(Int(line.split(separator: " ")[1])), ticks / Double(sysconf(Int32(_SC_CLK_TCK))))
    }

    // Slow: only scripts/gateway-run makes it so; by default it takes about five seconds.
    @Test("each value of many sensors is received or counted as dropped, though the broker is killed twice")
    func run() async throws {
        let simulator = try await Simulator()
        let sensors = (0..<Self.sensors).map { simulator.add(GatewayTests.sensor($0)) }
        let witness = Witness()
        let broker = try Mosquitto()
        try await broker.start()
        var subscriber = try await Subscriber(broker, witness.handle)
        try broker.open()
        let gateway = try GatewayTests.gateway(broker, simulator, ["--queue", "\(Self.queue)"])
        try await until { sensors.allSatisfy { $0.isSubscribed(to: "2A56") } }

        let sending = Task {
            var next = Array(repeating: 0, count: sensors.count)
            let (start, interval) = (ContinuousClock.now, Duration.seconds(1) / Self.rate)
            for turn in 0..<Self.seconds * Self.rate {
                for (index, sensor) in sensors.enumerated() {
                    let number = withUnsafeBytes(of: UInt32(next[index]).bigEndian) { Array($0) }
                    if sensor.notify("2A56", [UInt8(index)] + number) { next[index] += 1 }
                }
                try await Task.sleep(until: start + interval * (turn + 1))
            }
            return next.reduce(0, +)
        }
        func pass(_ part: Double) async throws { try await Task.sleep(for: .seconds(Double(Self.seconds) * part)) }

        try await pass(0.1)
        let before = try Self.cost(gateway.processIdentifier)
        for (absence, rest) in [(1.0 / 40, 0.2), (1.0 / 10, 0.2)] {
            try await pass(rest)
            let clock = ContinuousClock.now
            try await broker.crash()
            try await subscriber.ended()
            let dropped = witness.dropped
            try await pass(absence)
            try await broker.start()
            subscriber = try await Subscriber(broker, witness.handle)
            try broker.open()
            let line = try await gateway.problem { $0.contains("the broker is back") }
            let numbers = line.split { !$0.isNumber }.compactMap { Int($0) }
            print(
                "away for \((ContinuousClock.now - clock).formatted(.units(fractionalPart: .show(length: 1)))): \(line)"
            )
            // The bound is what the values are lost to, and nothing else.
            if numbers[1] > dropped { #expect(numbers[0] == Self.queue) }
        }
        let sent = try await sending.value
        try await until { witness.unique + witness.dropped >= sent }
        let after = try Self.cost(gateway.processIdentifier)
        gateway.stop()
        #expect(await gateway.status() == 0)
        let report = try await gateway.problem { $0.contains(" were published, ") }
        let numbers = report.split { !$0.isNumber }.compactMap { Int($0) }
        print(report)
        print(
            """
            \(sent) values of \(sensors.count) sensors: \(witness.unique) received (and \(witness.repeated) of them \
            again), \(witness.dropped) dropped; queue: \(Self.queue)
            memory: \(before.memory) KiB, at the end \(after.memory) KiB; processor: \
            \(String(format: "%.1f", after.processor)) s in \(Self.seconds) s
            """)
        #expect(witness.unique + witness.dropped == sent && numbers == [witness.unique, witness.dropped])
        #expect(witness.dropped > 0 && witness.disordered == 0)
        // Those that were on their way, and the last value of each, after each absence.
        #expect(witness.repeated <= 2 * (20 + sensors.count))
        // What a full queue needs, and no more however long it takes.
        #expect(after.memory - before.memory < 8192 + Self.queue)
    }
}
