import BluezKit
import Foundation
import Testing

/// CoreBluetooth in programs whose main loop is GLib's: `glib-probe` runs real loops, and checks itself that each
/// callback comes on the right thread, called by GLib, and never within another callback.
@Suite struct GLibTests {
    private let world: SimulatedWorld

    init() async throws { world = try await SimulatedWorld() }

    private func probe(_ words: String...) throws -> Probe { try Probe(world, words, program: Probe.glib) }

    /// Values come from now on; returns when all were sent.
    private func burst(_ count: Int, perSecond: Int = 500) async throws {
        try await world.control("sink burst 0013 \(count) 20 \(perSecond)")
    }

    private func end(_ probe: Probe) async throws {
        try await probe.next("done")
        #expect(try await probe.waitForEnd() == 0)
    }

    @Test("with queue nil the callbacks of a whole session come on the thread of GLib's main loop, in order")
    func scan() async throws {
        let probe = try probe("scan", "300")
        for callback in ["state 5", "found", "connected", "subscribed"] { try await probe.next(callback) }
        try await burst(300)
        try await probe.next(#"order ["glib0", "glib1", "glib2"] ["queue0", "queue1", "queue2"]"#)
        try await probe.next("values 300 in order")
        try await end(probe)
    }

    @Test("a default context that is iterated by hand makes the callbacks")
    func byHand() async throws {
        let probe = try probe("by-hand", "50")
        try await probe.next("subscribed")
        try await burst(50)
        try await probe.next("values 50 in order")
        try await end(probe)
    }

    @Test("timers of the main run loop, blocks of the main queue and tasks of the main actor run in GLib's loop")
    func timers() async throws {
        let probe = try probe("timers")
        try await end(probe)
        let expected = ["repeating", "common", "once", "queue", "after", "task", "other thread", "moved"]
        #expect(Set(probe.all.prefix(8)) == Set(expected))
    }

    @Test("nested loops: callbacks come in GLib's events and in timers, and not in callbacks, where nothing spins")
    func nested() async throws {
        let probe = try probe("nested", "300")
        try await probe.next("nested in GLib: subscribed")
        try await burst(300)
        try await probe.next("nested in a timer: a value")
        try await probe.next("nested in a callback: 10 events, timers 0 blocks")
        try await probe.next("values 300 in order 1 blocks")
        try await end(probe)
    }

    @Test(
        "a loop that work of the main queue runs makes no callbacks, does not spin, and says so if that work is a task",
        arguments: ["queue", "task"])
    func within(_ kind: String) async throws {
        let probe = try probe("within-\(kind)")
        try await probe.next("timer")
        try await probe.next("state 5")
        try await end(probe)
        #expect(probe.all.contains { $0.contains("run by asynchronous code") } == (kind == "task"))
    }

    @Test("a GLib loop that ends and starts again loses nothing")
    func again() async throws {
        let probe = try probe("again", "50")
        for callback in ["state 5", "found", "connected", "subscribed"] { try await probe.next(callback) }
        try await burst(50)
        try await probe.next("values 50 in order")
        try await end(probe)
    }

    @Test("callbacks have the priority that the program gives them, on the main queue and in a context of its own")
    func priority() async throws {
        let probe = try probe("priority")
        try await probe.next(#"priority 200 ["glib", "glib", "glib"] 7"#)
        let line = try await probe.next("priority -100 ")
        #expect(!line.contains("glib") && line.hasSuffix(" 7"))
        try await probe.next(#"contexts [["glib", "stat"], ["stat", "glib"]]"#)
        try await end(probe)
    }

    @Test("a main loop that is blocked gets all that came meanwhile, in order")
    func blocked() async throws {
        // A minute if asked for.
        let seconds = ProcessInfo.processInfo.environment["BLUEZKIT_BLOCKED"] ?? "3"
        let probe = try probe("blocked", seconds)
        try await probe.next("subscribed")
        try await burst(1000)
        try await probe.next("blocked", within: 80)
        try await probe.next("values 1000 in order")
        try await end(probe)
    }

    @Test("a manager that is released in any of its callbacks makes no further one, and the loop continues")
    func release() async throws {
        let probe = try probe("release")
        for callback in ["state 5", "found", "connected", "subscribed", "value"] {
            for kind in ["queue", "context"] {
                if callback == "value" {
                    try await probe.next("subscribed")
                    try await burst(20)
                }
                try await probe.next("released in \(callback) \(kind)")
            }
        }
        try await end(probe)
    }

    // Slow: three seconds until all is quiet, and three in which wake-ups are counted.
    @Test("nothing wakes a program whose link is idle")
    func idle() async throws {
        // No other devices and programs: what they do is read.
        let world = try await SimulatedWorld(.calm)
        let probe = try Probe(world, ["idle"], program: Probe.glib)
        let line = try await probe.next("wake-ups ")
        let numbers = line.split(separator: " ").compactMap { Int($0) }
        // The timer that ends the measurement; and of the whole process threads of libdispatch's pool, which end in
        // time.
        #expect(try #require(numbers.first) <= 2, "\(line)")
        #expect(try #require(numbers.last) <= 20, "\(line)")
        try await end(probe)
    }

    @Test("a context that another thread runs, with nested loops")
    func context() async throws {
        let probe = try probe("context", "100")
        try await probe.next("nested: subscribed")
        try await burst(100)
        try await probe.next("nested in a callback: 10 events")
        try await probe.next("values 100 in order")
        try await end(probe)
    }

    @Test("a context that is iterated by hand, and released before its manager")
    func contextByHand() async throws {
        let probe = try probe("context-by-hand", "50")
        try await probe.next("subscribed")
        try await burst(50)
        try await probe.next("values 50 in order")
        try await end(probe)
    }

    // Waiting callbacks kept the context that they waited in.
    @Test("a context that never ran is freed with its manager, although callbacks wait in it")
    func unused() async throws {
        let probe = try probe("context-unused", "20")
        try await probe.next("freed 20")
        try await end(probe)
    }

    @Test(
        "a default context that another thread runs leaves the main queue alone, says so, and serves its own managers")
    func wrongThread() async throws {
        let probe = try probe("wrong-thread")
        try await probe.next("log", "misuse", "another thread than the main thread")
        try await probe.next("subscribed")
        try await end(probe)
    }
}
