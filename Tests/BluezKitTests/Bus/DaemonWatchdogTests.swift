import BluezDBus
import BluezKitSimulator
import Testing

@testable import BluezKit

@Suite struct DaemonWatchdogTests {
    /// A connection to a bus on which a test is bluetoothd.
    // holds: what changes is confined to the bus queue, or safe
    private final class Stage: @unchecked Sendable {
        let fake: ScriptedBus
        let bus: BlueZBus
        let watchdog: DaemonWatchdog
        let log = EventLog<String>()

        init(slowCall: Duration = .milliseconds(100)) async throws {
            fake = try await ScriptedBus()
            bus = BlueZBus(address: fake.address)
            watchdog = DaemonWatchdog(bus)
            bus.timing.daemon.slowCall = slowCall
            bus.queue.sync {
                bus.open()
                bus.connection?.watchName(BlueZ.busName) { [log] in log.append($0 == nil ? "gone" : "there") }
            }
            try await wait(for: "there")
        }

        func wait(for text: String) async throws { try await log.next(text) { $0 == text ? true : nil } }

        /// - Parameter count: How many ask, before any answer can come.
        func check(_ count: Int = 1) {
            bus.queue.sync {
                for _ in 0..<count { watchdog.check { [log] in log.append("hangs") } }
            }
        }

        /// The answers to all calls that were made have come, or have failed: those of the watchdog before this one.
        func settle() async throws {
            bus.queue.sync {
                let ping = MethodCall(
                    destination: BlueZ.busName, path: "/", interface: "org.freedesktop.DBus.Peer", member: "Ping")
                bus.connection?.call(ping, deadline: bus.timing.daemon.slowCall) { [log] _ in log.append("settled") }
            }
            try await wait(for: "settled")
        }
    }

    @Test("a daemon that answers does not hang, however often it is asked")
    func answers() async throws {
        let stage = try await Stage(slowCall: .seconds(20))
        for _ in 0..<3 {
            stage.check()
            stage.check()
            try await stage.settle()
        }
        #expect(!stage.log.all.contains("hangs"))
    }

    @Test("a daemon that does not answer hangs: reported once for all who ask meanwhile, and again when asked again")
    func hangs() async throws {
        let stage = try await Stage()
        stage.fake.daemon.queue.suspend()
        for _ in 0..<2 {
            stage.check(3)
            try await stage.wait(for: "hangs")
        }
        try await stage.settle()
        #expect(stage.log.all.filter { $0 == "hangs" }.count == 2)
        // It resumes, and is not called slow because this process is.
        stage.bus.queue.sync { stage.bus.timing.daemon.slowCall = .seconds(20) }
        stage.fake.daemon.queue.resume()
        try await stage.settle()
        stage.check()
        try await stage.settle()
        #expect(stage.log.all.filter { $0 == "hangs" }.count == 2)
    }

    @Test("a connection that has ended meanwhile says nothing, and the next one is asked again")
    func reconnects() async throws {
        let stage = try await Stage()
        stage.fake.daemon.queue.suspend()
        stage.bus.queue.sync {
            // In the same turn as the end, so that the question is not over before.
            stage.watchdog.check { [log = stage.log] in log.append("hangs") }
            stage.bus.reopen()
            stage.watchdog.reset()
            stage.bus.connection?.watchName(BlueZ.busName) { [log = stage.log] _ in log.append("again") }
        }
        try await stage.wait(for: "again")
        try await stage.settle()
        #expect(!stage.log.all.contains("hangs"))
        stage.check()
        try await stage.wait(for: "hangs")
        stage.fake.daemon.queue.resume()
    }

    @Test("without a connection, or without a daemon, there is nothing to ask")
    func nothingToAsk() async throws {
        let detached = BlueZBus(address: BusAddress("unix:path=/nonexistent"))
        let watchdog = DaemonWatchdog(detached)
        let log = EventLog<String>()
        detached.queue.sync { watchdog.check { log.append("hangs") } }
        let stage = try await Stage()
        stage.fake.daemon.queue.suspend()
        stage.bus.queue.sync { stage.bus.connection?.unwatchName(BlueZ.busName) }
        stage.check()
        try await stage.settle()
        stage.fake.daemon.queue.resume()
        #expect(log.all.isEmpty && !stage.log.all.contains("hangs"))
    }
}
