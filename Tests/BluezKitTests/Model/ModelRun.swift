import BluezKitSimulator
import Foundation

/// Many random sequences, some of them at a time: each spends most of its life waiting.
final class ModelRun: @unchecked Sendable {  // holds: what changes is under `lock`
    struct Failure {
        let seed: UInt64
        let violations: [String]
        /// What happened, line by line: it may not happen again.
        let story: [String]

        /// Distinguishes faults: the first violation without its numbers and lists.
        var kind: String { Self.kind(violations) }
        static func kind(_ violations: [String]) -> String {
            (violations.first ?? "").replacing(/\[[^\]]+\]/, with: "[some]").filter { !$0.isNumber }
        }
    }

    private let lock = NSLock()
    private var seeds: Range<UInt64>
    private let limit: Int
    private let omitted: Set<Script.Verb>
    private var found: [Failure] = []
    private var count = 0
    private let start = ContinuousClock.now
    private var told = ContinuousClock.now
    private var playing: [UInt64: Story] = [:]
    /// No sequence takes as long, on whatever machine: each step has its own limit.
    private static let limitOfOne = Duration.seconds(200)

    /// - Parameters:
    ///   - limit: How many failures are enough.
    ///   - omitted: What no script does.
    init(seeds: Range<UInt64>, limit: Int, omitting omitted: Set<Script.Verb> = []) {
        (self.seeds, self.limit, self.omitted) = (seeds, limit, omitted)
    }

    private func script(_ seed: UInt64) -> Script {
        Script(Script(seed: seed).steps.filter { !omitted.contains($0.verb) })
    }

    var failures: [Failure] { lock.withLock { found } }

    /// One failure of each kind, the shortest.
    var kinds: [Failure] {
        Dictionary(grouping: failures, by: \.kind).values
            .compactMap { $0.min { Script(seed: $0.seed).steps.count < Script(seed: $1.seed).steps.count } }
            .sorted { $0.seed < $1.seed }
    }

    func play(in worlds: Int) async {
        let watchdog = DispatchSource.makeTimerSource()
        watchdog.schedule(deadline: .now() + 10, repeating: 10)
        watchdog.setEventHandler { [weak self] in self?.endIfStuck() }
        watchdog.activate()
        defer { watchdog.cancel() }
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<worlds {
                group.addTask { [self] in
                    var bus = try? PrivateBus()
                    while let present = bus, let seed = next() {
                        let story = begin(seed)
                        let violations = await Self.play(
                            script(seed), on: present, deadline: .seconds(20), trace: { story.add($0) })
                        note(seed, violations, story)
                        // A session that has leaked would be the next one's.
                        if !violations.isEmpty { bus = try? PrivateBus() }
                    }
                }
            }
        }
        lock.withLock { tell(summary) }
    }

    private static func play(
        _ script: Script, on bus: PrivateBus, deadline: Duration, trace: (@Sendable (String) -> Void)? = nil
    ) async -> [String] {
        do {
            return try await ModelWorld(on: bus, deadline: deadline, trace: trace).play(script)
        } catch {
            return ["the simulator does not start: \(error)"]
        }
    }

    private func next() -> UInt64? {
        lock.withLock {
            guard let seed = seeds.first, found.count < limit else { return nil }
            seeds = seed + 1..<seeds.upperBound
            return seed
        }
    }

    private func begin(_ seed: UInt64) -> Story {
        let story = Story()
        lock.withLock { playing[seed] = story }
        return story
    }

    /// A task that waits for what never comes cannot be ended; without this the whole run would wait for it, and
    /// nothing would tell which sequence it is.
    private func endIfStuck() {
        lock.withLock {
            let stuck = playing.filter { $0.value.start + Self.limitOfOne < .now }
            guard !stuck.isEmpty else { return }
            for (seed, story) in stuck { tell("model: seed \(seed) never ends:\n\(story.text)") }
            exit(1)
        }
    }

    private func note(_ seed: UInt64, _ violations: [String], _ story: Story) {
        lock.withLock {
            count += 1
            playing[seed] = nil
            if let first = violations.first {
                found.append(Failure(seed: seed, violations: violations, story: story.all))
                tell("model: seed \(seed): \(first.prefix(300))\n\(story.text)")
            }
            guard ContinuousClock.now > told + .seconds(30) else { return }
            told = .now
            tell(summary)
        }
    }

    /// Under the lock.
    private var summary: String {
        let seconds = (ContinuousClock.now - start) / .seconds(1)
        let perSecond = (Double(count) / max(seconds, 1)).rounded()
        return "model: \(count) sequences, \(found.count) failed; \(perSecond) a second"
    }

    /// The shortest script that fails likewise, once in four times at least.
    func shrink(_ failure: Failure) async -> Script {
        await script(failure.seed).shrunk { candidate in
            await withTaskGroup(of: Bool.self) { group in
                for _ in 0..<4 {
                    group.addTask {
                        guard let bus = try? PrivateBus() else { return false }
                        return Failure.kind(await Self.play(candidate, on: bus, deadline: .seconds(3))) == failure.kind
                    }
                }
                return await group.contains(true)
            }
        }
    }
}

/// What happened in one sequence. It may not happen again: what a failure was can be read here.
private final class Story: @unchecked Sendable {  // holds: what changes is under `lock`
    private let lock = NSLock()
    let start = ContinuousClock.now
    private var lines: [String] = []

    func add(_ text: String) {
        let milliseconds = Int((ContinuousClock.now - start) / .milliseconds(1))
        lock.withLock { lines.append("    \(milliseconds) ms  \(text)") }
    }

    var all: [String] { lock.withLock { lines } }
    var text: String { all.joined(separator: "\n") }
}

/// A line that is printed immediately, also to a pipe.
func tell(_ text: String) { FileHandle.standardOutput.write(Data((text + "\n").utf8)) }
