import BluezKitSimulator
import CoreBluetooth
import BluezDBus
import Foundation
import Testing

@testable import BluezKit

/// Random calls of random apps in a random world: the library reports only what the contract allows, and in the end the
/// library, its objects and BlueZ are in the state that the apps requested. `scripts/model` runs it.
@Suite struct ModelTests {
    private static let settings = ProcessInfo.processInfo.environment

    private static func number(_ name: String) -> Int? { settings["BLUEZKIT_MODEL_\(name)"].flatMap { Int($0) } }

    @Test(
        "D2 D3 D7 with any actions of apps and world, callbacks and final state match the model",
        .enabled(if: settings["BLUEZKIT_MODEL_SEQUENCES"] != nil))
    func sequences() async throws {
        BluezKitLog.handler = { _, _ in }
        let count = Self.number("SEQUENCES") ?? 1000
        let first = UInt64(Self.number("SEED") ?? Int.random(in: 0..<1_000_000_000))
        tell("model: \(count) sequences from seed \(first)")
        let omitted = (Self.settings["BLUEZKIT_MODEL_WITHOUT"] ?? "").split(separator: ",").compactMap {
            Script.Verb(rawValue: String($0))
        }
        let run = ModelRun(
            seeds: first..<first + UInt64(count), limit: Self.number("FAILURES") ?? 20, omitting: Set(omitted))
        await run.play(in: Self.number("WORLDS") ?? 64)
        await withTaskGroup(of: Void.self) { group in
            for failure in run.kinds {
                group.addTask {
                    let script = await run.shrink(failure)
                    let cause = "seed \(failure.seed): \(failure.violations[0])\n    scripts/model --replay '\(script)'"
                    Issue.record("\(cause)\n\(failure.story.suffix(40).joined(separator: "\n"))")
                }
            }
        }
        let failed = run.failures.count
        #expect(failed == 0)
    }

    @Test(
        "a single sequence of the model is replayed with a full log",
        .enabled(if: settings["BLUEZKIT_MODEL_REPLAY"] != nil))
    func replay() async throws {
        let line = Self.settings["BLUEZKIT_MODEL_REPLAY"] ?? ""
        let script = try #require(UInt64(line).map { Script(seed: $0) } ?? Script(line: line))
        tell("\(script)")
        let start = ContinuousClock.now
        let trace: @Sendable (String) -> Void = { text in
            let milliseconds = Int((ContinuousClock.now - start) / .milliseconds(1))
            tell("\(milliseconds) ms  \(text)")
        }
        BluezKitLog.handler = { level, text in trace("    log: \(level): \(text)") }
        let bus = try PrivateBus()
        let violations = try await ModelWorld(on: bus, deadline: .seconds(5), trace: trace).play(script)
        #expect(violations == [])
    }

    // MARK: The model itself

    @Test("a script is parsed back from its line, and is the same for the same seed")
    func line() {
        for seed in 0..<300 as Range<UInt64> {
            let script = Script(seed: seed)
            #expect(Script(line: "\(script)") == script)
            #expect(Script(seed: seed) == script)
            #expect(script.steps.count > 3)
        }
        #expect(Script(line: "connect 0") == nil)
        #expect(Script(line: "make 0; fly 1") == nil)
    }

    @Test("irrelevant steps are removed from a failing sequence")
    func shrinking() async {
        let script =
            Script(line: "make 0; get 0 0; connect 0 0; pause 3; cancel 0 0; end 0; settle; scan 0") ?? Script([])
        let shortest = await script.shrunk { candidate in
            let verbs = candidate.steps.map(\.verb)
            guard let connect = verbs.firstIndex(of: .connect) else { return false }
            return verbs[connect...].contains(.cancel)
        }
        #expect("\(shortest)" == "connect 0 0; cancel 0 0")
    }

    @Test("random sequences contain every verb and habit, and no app stays busy forever")
    func variety() {
        let scripts = (0..<3000 as Range<UInt64>).map { Script(seed: $0) }
        let verbs = Set(scripts.flatMap(\.steps).map(\.verb))
        #expect(Script.Verb.allCases.filter { !verbs.contains($0) } == [])
        let habits = Set(scripts.flatMap(\.steps).filter { $0.verb == .habit }.map { $0.numbers[1] })
        #expect(habits.count == Script.Habit.allCases.count)
    }

    @Test("O-11 the required state of an object follows from the calls and callbacks")
    func states() {
        var checker = ContractChecker()
        func expect(_ states: Set<CBPeripheralState>, line: Int = #line) {
            #expect(checker.states(of: "p") == states, "line \(line)")
        }
        func check(_ event: ContractChecker.Event, _ state: CBPeripheralState? = nil) {
            #expect(checker.check(event, ContractChecker.View(peripheralState: state)) == [])
        }
        check(.state(.poweredOn))
        expect([.disconnected])
        checker.note(.connect("p", reconnects: false))
        expect([.connecting])
        check(.connected("p"), .connected)
        expect([.connected])
        checker.note(.cancel("p", 1))
        checker.note(.cancelled("p", 1))
        expect([.disconnecting])
        // An immediate connect is not undone by the end of the previous link.
        checker.note(.connect("p", reconnects: false))
        expect([.connecting])
        check(.disconnected("p", isReconnecting: false, hasError: false), .connecting)
        expect([.connecting])
        check(.state(.poweredOff))
        expect([.disconnected])
    }

    @Test("CN-11 IV-1 an answer about an attribute of an earlier link is refused")
    func staleAttributes() {
        var checker = ContractChecker()
        _ = checker.check(.state(.poweredOn))
        checker.note(.connect("p", reconnects: false))
        _ = checker.check(.connected("p"), ContractChecker.View(peripheralState: .connected))
        checker.note(.request("p", .read("c"), service: "s"))
        let view = ContractChecker.View(peripheralState: .connected, isValid: false)
        #expect(checker.check(.value("p", "c", hasError: false), view).first?.contains("CN-11") == true)
    }

    @Test("unrequested work of BlueZ is detected, at the end and after the last manager")
    func unwantedWork() async throws {
        for line in ["make 0; settle", ""] {
            let bus = try PrivateBus()
            let world = try await ModelWorld(on: bus, deadline: .milliseconds(300))
            let other = try await Peer.named(bus.busAddress)
            try await other.call("org.bluez", "/org/bluez/hci0", "org.bluez.Adapter1", "StartDiscovery")
            let violations = await world.play(Script(line: line) ?? Script([]))
            #expect(violations.first?.contains("BlueZ has links [], attempts [], discovering") == true)
        }
    }

    @Test("a request that BlueZ does not fulfil is detected")
    func unfulfilledWish() async throws {
        let bus = try PrivateBus()
        let world = try await ModelWorld(on: bus, deadline: .milliseconds(300))
        world.simulator.inject(SimulatorFault("Connect", times: nil, .ignore))
        // Each waits for Bluetooth, and not for long.
        let settles = [Script.Step](repeating: .init(.settle), count: 10)
        let violations = await world.play(
            Script([.init(.make, 0)] + settles + [.init(.get, 0, 0), .init(.connect, 0, 0)]))
        #expect(violations.first?.contains("never: app 0: peripheral 0 is connecting") == true)
    }
}
