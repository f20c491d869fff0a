import Testing

@testable import BluezKit

@Suite struct DiscoveryStateMachineTests {
    typealias Filter = DiscoveryStateMachine.Filter
    private let hearts = Filter(services: ["180d"], wantsDuplicates: false)
    private let everything = Filter(services: nil, wantsDuplicates: true)

    @Test("a request sets the filter, then starts")
    func starts() {
        var machine = DiscoveryStateMachine()
        #expect(machine.request(hearts) == [.setFilter(hearts)])
        #expect(machine.replied(.done) == [.start])
        #expect(machine.replied(.done) == [])
        #expect(machine.isRunning)
    }

    @Test("SC-2 an equal request does nothing; a different one changes the filter without stopping")
    func changesFilter() {
        var machine = running(hearts)
        #expect(machine.request(hearts) == [])
        #expect(machine.request(everything) == [.setFilter(everything)])
        #expect(machine.replied(.done) == [])
    }

    @Test("a new scan of a second manager restarts discovery, so that known devices are reported to it")
    func restarts() {
        var machine = running(hearts)
        #expect(machine.request(hearts, afresh: true) == [.stop])
        #expect(machine.replied(.done) == [.setFilter(hearts)])
        #expect(machine.replied(.done) == [.start])
        #expect(machine.replied(.done) == [])
    }

    @Test("calls are made one at a time, and the latest request wins")
    func serialises() {
        var machine = DiscoveryStateMachine()
        #expect(machine.request(hearts) == [.setFilter(hearts)])
        #expect(machine.request(nil) == [])
        #expect(machine.request(everything) == [])
        #expect(machine.replied(.done) == [.start])
        #expect(machine.replied(.done) == [.setFilter(everything)])
    }

    @Test("a discovery that is not wanted any more when its filter is set is not started")
    func calledOff() {
        var machine = DiscoveryStateMachine()
        #expect(machine.request(hearts) == [.setFilter(hearts)])
        #expect(machine.request(nil) == [])
        #expect(machine.replied(.done) == [])
        #expect(!machine.isRunning)
    }

    @Test("a discovery that BlueZ continues without a client is ended, however often BlueZ refuses")
    func strandedAgain() {
        var machine = running(hearts)
        #expect(machine.request(nil) == [.stop])
        #expect(machine.replied(.busy) == [.startTimer(.milliseconds(200))])
        #expect(machine.timerFired() == [.stop])
        #expect(machine.replied(.refused) == [.start])
        #expect(machine.replied(.refused) == [.startTimer(.milliseconds(400))])
        #expect(machine.timerFired() == [.stop])
        #expect(machine.replied(.refused) == [.start])
        #expect(machine.replied(.done) == [.stop])
        #expect(machine.replied(.done) == [])
        #expect(!machine.isRunning)
    }

    @Test("a busy adapter is asked again with increasing delays")
    func retries() {
        var machine = DiscoveryStateMachine()
        _ = machine.request(hearts)
        _ = machine.replied(.done)
        #expect(machine.replied(.busy) == [.startTimer(.milliseconds(200))])
        #expect(machine.timerFired() == [.setFilter(hearts)])
        _ = machine.replied(.done)
        #expect(machine.replied(.busy) == [.startTimer(.milliseconds(400))])
        #expect(machine.request(nil) == [])
        #expect(machine.timerFired() == [])
    }

    @Test("a discovery that BlueZ is too busy to end is ended later; one that is not there has ended")
    func retriesStop() {
        var machine = running(hearts)
        #expect(machine.request(nil) == [.stop])
        #expect(machine.replied(.busy) == [.startTimer(.milliseconds(200))])
        #expect(machine.isRunning && machine.request(everything) == [] && machine.request(nil) == [])
        #expect(machine.timerFired() == [.stop])
        #expect(machine.replied(.busy) == [.startTimer(.milliseconds(400))])
        // What it has reported is reported again, as the app has asked for.
        #expect(machine.request(hearts) == [])
        #expect(machine.timerFired() == [.stop])
        // BlueZ discovers for no client, and would hear nothing if it were only asked to discover.
        #expect(machine.replied(.refused) == [.start])
        #expect(machine.replied(.done) == [.stop])
        #expect(machine.replied(.done) == [.setFilter(hearts)])
        _ = machine.replied(.done)
        _ = machine.replied(.done)
        #expect(machine.request(nil) == [.stop])
        #expect(machine.replied(.refused) == [])
        #expect(!machine.isRunning)
    }

    @Test("a refusal that lasts is reported once, until BlueZ has scanned")
    func reportsRefusal() {
        var machine = DiscoveryStateMachine()
        func refusals(_ count: Int) -> Int {
            (0..<count).count { _ in
                _ = machine.timerFired()
                return machine.replied(.busy).contains(.reportRefusal)
            }
        }
        _ = machine.request(hearts)
        #expect(refusals(4) == 0)
        #expect(refusals(1) == 1)
        #expect(refusals(100) == 0)
        _ = machine.timerFired()
        _ = machine.replied(.done)
        _ = machine.replied(.done)
        #expect(machine.isRunning)
        _ = machine.request(everything)
        #expect(refusals(5) == 1)
    }

    @Test("connecting pauses the scan, which then resumes")
    func pauses() {
        var machine = running(hearts)
        #expect(machine.pause(true) == [.stop])
        #expect(machine.replied(.done) == [])
        #expect(machine.pause(false) == [.setFilter(hearts)])
    }

    @Test("filters are merged: the services of both, or all if one scan is unfiltered")
    func merges() {
        let bikes = Filter(services: ["1816"], wantsDuplicates: true)
        #expect(hearts.merged(with: bikes) == Filter(services: ["180d", "1816"], wantsDuplicates: true))
        #expect(hearts.merged(with: everything) == everything)
    }

    @Test("a start from before a reset that BlueZ carries out after it is stopped, and the requested discovery started")
    func strays() {
        var machine = DiscoveryStateMachine()
        #expect(machine.startedLate() == [.stop])
        #expect(machine.replied(.done) == [])
        #expect(!machine.isRunning)
        // BlueZ refuses another start meanwhile.
        _ = machine.request(hearts)
        #expect(machine.replied(.done) == [.start])
        #expect(machine.startedLate() == [])
        #expect(machine.replied(.busy) == [.startTimer(.milliseconds(200))])
        #expect(machine.timerFired() == [.stop])
        #expect(machine.replied(.done) == [.setFilter(hearts)])
        #expect(machine.replied(.done) == [.start])
    }

    private func running(_ filter: Filter) -> DiscoveryStateMachine {
        var machine = DiscoveryStateMachine()
        _ = machine.request(filter)
        _ = machine.replied(.done)
        _ = machine.replied(.done)
        return machine
    }
}
