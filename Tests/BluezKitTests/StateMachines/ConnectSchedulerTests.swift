import Testing

@testable import BluezKit

@Suite struct ConnectSchedulerTests {
    typealias Scheduler = ConnectScheduler<Int>
    private let timing = BlueZTiming.Connect()

    @Test("a sole waiting device is attempted at once, without a scan and without a time limit")
    func alone() {
        var turns = Scheduler()
        #expect(turns.request(1, isHeard: false) == [.start(1)])
        #expect(turns.end(1) == [])
        #expect(turns.request(1, isHeard: false) == [.start(1)])
    }

    @Test("while the app scans, the scheduler first listens for a device that was not heard, then attempts it briefly")
    func whileScanning() {
        var turns = Scheduler()
        #expect(turns.scan(true) == [])
        #expect(turns.request(1, isHeard: false) == [.startTimer(timing.listening), .look(true)])
        #expect(turns.timerFired() == [.start(1), .startTimer(timing.unheardAttempt), .look(false)])
        #expect(turns.timerFired() == [.callOff(1)])
        #expect(turns.end(1) == [])
        #expect(turns.request(1, isHeard: true) == [.start(1), .startTimer(timing.heardAttempt)])
    }

    @Test(
        "one attempt at a time, in order of the requests; heard devices go first, after an unheard one has had its time"
    )
    func order() {
        var turns = Scheduler()
        #expect(turns.request(1, isHeard: false) == [.start(1)])
        #expect(turns.request(2, isHeard: false) == [.startTimer(timing.unheardAttempt), .look(true)])
        #expect(turns.request(3, isHeard: false) == [])
        #expect(turns.hear(3) == [])
        #expect(turns.request(4, isHeard: true) == [])
        #expect(turns.timerFired() == [.callOff(1)])
        #expect(turns.end(1) == [.start(3), .startTimer(timing.heardAttempt)])
        #expect(turns.request(1, isHeard: false) == [])
        #expect(turns.end(3) == [.stopTimer, .start(4), .startTimer(timing.heardAttempt)])
        #expect(turns.end(4) == [.startTimer(timing.listening)])
        #expect(turns.timerFired() == [.start(2), .startTimer(timing.unheardAttempt)])
        #expect(turns.timerFired() == [.callOff(2)])
        #expect(turns.timerFired() == [])
        #expect(turns.end(2) == [.start(1), .look(false)])
    }

    @Test("among a hundred the five in range connect in turn, and each of the others is tried once in a while")
    func fair() {
        var turns = Scheduler()
        var started: [Int] = []
        func note(_ actions: [Scheduler.Action]) {
            for case .start(let id) in actions { started.append(id) }
        }
        for id in 0..<100 { note(turns.request(id, isHeard: false)) }
        #expect(started == [0])
        for id in [7, 13, 50, 88, 99] { note(turns.hear(id)) }
        for _ in 0..<6 {
            guard let running = turns.running else { break }
            note(turns.end(running))
            if running == 0 { note(turns.request(running, isHeard: false)) }
        }
        #expect(Array(started.prefix(6)) == [0, 7, 13, 50, 88, 99])
        started = []
        for _ in 0..<95 {
            note(turns.timerFired())  // the time to listen is over
            note(turns.timerFired())  // the turn is over
            if let running = turns.running {
                note(turns.end(running))
                note(turns.request(running, isHeard: false))
            }
        }
        #expect(Set(started).count == 95 && started.count == 95)
    }

    /// Every sequence of five events among three devices.
    @Test("every interleaving: one attempt at a time, no device is forgotten, none is started without a request")
    func everyInterleaving() {
        enum Event { case ask(Int, Bool), hear(Int), end(Int), scan(Bool), timer }
        let alphabet: [Event] =
            [.ask(0, true), .scan(true), .scan(false), .timer]
            + (0..<3).flatMap { [Event.ask($0, false), .hear($0), .end($0)] }
        struct State {
            var turns = Scheduler()
            var waiting: Set<Int> = []
            var running: Int?
            var hasTimer = false
        }
        var frontier = [State()]
        for depth in 0..<5 {
            var next: [State] = []
            for state in frontier {
                for event in alphabet {
                    var state = state
                    let actions: [Scheduler.Action]
                    switch event {
                    case .ask(let id, let isHeard):
                        if state.running != id { state.waiting.insert(id) }
                        actions = state.turns.request(id, isHeard: isHeard)
                    case .hear(let id): actions = state.turns.hear(id)
                    case .end(let id):
                        state.waiting.remove(id)
                        if state.running == id { state.running = nil }
                        actions = state.turns.end(id)
                    case .scan(let scans): actions = state.turns.scan(scans)
                    case .timer:
                        guard state.hasTimer else { continue }
                        state.hasTimer = false
                        actions = state.turns.timerFired()
                    }
                    for action in actions {
                        switch action {
                        case .start(let id):
                            #expect(state.running == nil && state.waiting.contains(id))
                            state.waiting.remove(id)
                            state.running = id
                        case .callOff(let id): #expect(state.running == id)
                        case .look: break
                        case .startTimer: state.hasTimer = true
                        case .stopTimer: state.hasTimer = false
                        }
                    }
                    #expect(state.turns.running == state.running && state.turns.waiting == state.waiting.count)
                    // Every waiting device gets a turn: when the attempt ends, or when the timer fires.
                    #expect(state.waiting.isEmpty || state.running != nil || state.hasTimer)
                    if depth < 4 { next.append(state) }
                }
            }
            frontier = next
        }
    }
}
