import Testing

@testable import BluezKit

@Suite struct BlueZTimingTests {
    private let timing = BlueZTiming()

    /// Events that fail an attempt, from an idle machine on.
    private func pauses(_ count: Int) -> [Duration] {
        var machine = LinkStateMachine()
        _ = machine.handle(.want(true))
        return (0..<count).map { _ in
            _ = machine.handle(.deviceRead(connected: false))
            _ = machine.handle(.slot)
            let actions = machine.handle(.connectReply(.transient))
            _ = machine.handle(.timerFired)
            guard case .startBackOff(let delay)? = actions.first else { return .zero }
            return delay
        }
    }

    @Test("calls that BlueZ was too busy for are repeated for 6.4 s in all")
    func busyRetries() {
        let all = (0..<timing.daemon.busyRetries).reduce(Duration.zero) { $0 + timing.daemon.busyRetry * (1 << $1) }
        #expect(all > .milliseconds(6300) && all <= .milliseconds(6400))
    }

    @Test("an adapter that is away has 20 s in all, which is longer than a slow machine needs for bluetoothd")
    func grace() {
        #expect(timing.adapter.grace + timing.adapter.longGrace == .seconds(20))
        #expect(timing.adapter.longGrace > .seconds(10))
    }

    @Test("the pauses between connections to the bus are doubled until they are the longest")
    func reconnect() {
        var delays = [timing.daemon.reconnect]
        while let last = delays.last, last < timing.daemon.longestReconnect {
            delays.append(min(last * 2, timing.daemon.longestReconnect))
        }
        #expect(delays.count == 6 && delays[4] * 2 == timing.daemon.longestReconnect)
    }

    @Test("the kernel has ended the links of an earlier bluetoothd, after 2 s, before links are asked for")
    func staleLinks() { #expect(timing.adapter.staleLinks > .seconds(2)) }

    @Test("a device that is heard once in a scan cycle of 10 s stays in range")
    func inRange() { #expect(timing.connect.inRange > .seconds(10)) }

    @Test(
        "the end of a link is held back longer than BlueZ needs to say that Bluetooth is off, and much less than a grace"
    )
    func heldLoss() {
        #expect(timing.link.heldLoss > .milliseconds(50) && timing.link.heldLoss < timing.adapter.grace / 10)
    }

    @Test("the pauses between two looks at a socket are doubled from the shortest to the longest")
    func drain() {
        var delay = timing.gatt.drain.shortest
        while delay < timing.gatt.drain.longest { delay *= 2 }
        #expect(delay == timing.gatt.drain.longest && timing.gatt.drain.shortest > .zero)
    }

    @Test("a link that BlueZ has reported and does not show has 5 s, and is asked about before")
    func settling() {
        #expect(timing.link.settling + timing.link.settled == .seconds(5) && timing.link.settling < timing.link.settled)
    }

    @Test("CN-2 the pauses between attempts are doubled from 0.25 s to 8 s, and stay there")
    func backOff() {
        let milliseconds = [250, 500, 1000, 2000, 4000, 8000, 8000, 8000]
        #expect(pauses(8) == milliseconds.map { .milliseconds($0) })
    }

    @Test("a turn to connect is shorter than BlueZ's own attempt of 40 s, and shortest for a device that was not heard")
    func turns() {
        #expect(
            timing.connect.unheardAttempt < timing.connect.heardAttempt && timing.connect.heardAttempt < .seconds(40))
        #expect(timing.connect.unheardAttempt < timing.connect.listening, "listening has more of the time than trying")
        #expect(timing.connect.discoveryPause < timing.connect.heardAttempt)
    }

    @Test("a silent scan is noticed later than a device that is in range is heard again")
    func silentScan() { #expect(timing.scan.silence > timing.connect.inRange) }

    @Test("a scan that hears nothing from its beginning is noticed long before one that falls silent")
    func firstSilence() { #expect(timing.scan.firstSilence * 10 < timing.scan.silence) }

    @Test("room for updates is reported when half of the window is free")
    func updateWindow() {
        var window = UpdateWindow()
        for _ in 0...UpdateWindow.limit { _ = window.admit() }
        var count = 1
        while !window.release(), count < UpdateWindow.limit { count += 1 }
        #expect(count == UpdateWindow.limit / 2)
    }
}
