import BluezKitSimulator
import Testing

@testable import BluezDBus

@Suite("BluezDBus: signals that come together")
struct TurnPacingTests {
    private static let millisecond: UInt64 = 1_000_000
    /// Between signals of which 5,000 come in a second.
    private static let interval: UInt64 = 200_000
    private var pacing = TurnPacing()
    private var time: UInt64 = 1_000_000_000

    /// The pause after `count` signals, of which the last has come `elapsed` after the turn before.
    private mutating func pause(_ count: Int, after elapsed: UInt64) -> UInt64 {
        time += elapsed
        pacing.beginTurn()
        pacing.receive(count)
        return pacing.endTurn(at: time, hasOpenCalls: false)
    }

    /// Until pauses are possible.
    private mutating func flow() {
        for _ in 1...125 { _ = pause(1, after: Self.interval) }
    }

    @Test("a flow runs for 20 ms before the first pause, so that what a daemon was held up with finds room in a socket")
    mutating func steadiness() {
        #expect(pause(1, after: 0) == 0)
        for _ in 1...99 { #expect(pause(1, after: Self.interval) == 0) }
        #expect(pause(1, after: Self.interval) > 0)
        #expect(pause(1, after: 21 * Self.millisecond) == 0)
        for _ in 1...19 { #expect(pause(10, after: Self.millisecond) == 0) }
        #expect(pause(10, after: Self.millisecond) > 0)
    }

    @Test("the first signal, and those that come slowly, are followed by no pause")
    mutating func slow() {
        #expect(pause(1, after: 0) == 0)
        for _ in 1...200 { #expect(pause(1, after: 250_001) == 0) }
        #expect(pause(3, after: 3 * 250_001) == 0)
    }

    @Test("at 4,000 signals a second and more no pause is longer than half a millisecond")
    mutating func steady() {
        flow()
        #expect(pause(1, after: 250_000) == 500_000)
        for _ in 1...5 { #expect(pause(2, after: 500_000) == 500_000) }
        #expect(pause(1, after: 100_000) == 500_000)
    }

    @Test("the faster they come, the shorter is the pause: for 16 of them")
    mutating func fast() {
        flow()
        #expect(pause(10, after: 100_000) == 160_000)
        #expect(pause(100, after: 100_000) == 16_000)
        #expect(pause(1, after: 0) == 0)
    }

    // dbus-broker does: 4,000 signals a second were the most then, and the bus ended the connection.
    @Test(
        "a bus that hands over sixteen signals at a time is not slowed down: each pause is half as long as the one before"
    )
    mutating func handedOver() {
        flow()
        var last = pause(4, after: 4 * Self.interval)
        #expect(last == pacing.longest)
        for _ in 1...10 {
            let next = pause(16, after: last + 50_000)
            #expect(next <= last / 2)
            last = next
        }
        #expect(last < 5000)
        #expect(pause(4, after: 4 * Self.interval) == pacing.longest)
    }

    @Test("a pause ends with the flow of signals: none follows a turn without a signal")
    mutating func ends() {
        flow()
        #expect(pause(1, after: Self.interval) > 0)
        #expect(pause(0, after: Self.interval) == 0)
        #expect(pause(1, after: 100 * Self.millisecond) == 0)
    }

    @Test("no answer is delayed: to a call of the last 100 ms, to one made in a pause, or one of ours")
    mutating func answers() {
        /// Whether a pause follows a signal that comes fast after the last turn.
        func pauses(hasOpenCalls: Bool, _ body: (inout TurnPacing) -> Void = { _ in }) -> Bool {
            time += Self.interval
            pacing.beginTurn()
            pacing.receive(1)
            body(&pacing)
            return pacing.endTurn(at: time, hasOpenCalls: hasOpenCalls) > 0
        }
        flow()
        #expect(pauses(hasOpenCalls: false))
        #expect(!pauses(hasOpenCalls: false) { $0.keepGoing() })
        #expect(pauses(hasOpenCalls: true), "no call was made for a long time")
        var endsPause = pacing.call(at: time)
        #expect(endsPause)
        endsPause = pacing.call(at: time)
        #expect(!endsPause, "it has ended")
        for _ in 1...500 { #expect(!pauses(hasOpenCalls: true)) }
        #expect(pauses(hasOpenCalls: true))
        endsPause = pacing.call(at: time)
        #expect(endsPause && pauses(hasOpenCalls: false), "it was answered")
    }

    @Test("signals that come fast are received together, and a call ends the wait for more")
    func call() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        client.sync { connection in
            connection.addMatch(MatchRule(sender: server.name, interface: "a.b"))
            connection.loop.pacing.longest = 3_600_000_000_000
            connection.loop.pacing.enough = 1_000_000
            connection.loop.pacing.steadiness = 0
        }
        try await client.settle()
        var received: [String] { client.signals.all.map(\.member).filter { ["One", "Two", "Three"].contains($0) } }
        for _ in 1...3 {
            try server.emit("/", "a.b", "One", [])
            try await client.signals.next("One") { $0.member == "One" ? true : nil }
            // It pauses for hours now.
            for member in ["Two", "Three"] { try server.emit("/", "a.b", member, []) }
            try await server.settle()
            #expect(received == ["One"])
            try await client.settle()
            #expect(received == ["One", "Two", "Three"])
            client.signals.forget()
        }
    }
}
