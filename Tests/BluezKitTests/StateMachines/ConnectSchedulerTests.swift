import Testing

@testable import BluezKit

@Suite struct ConnectSchedulerTests {
    typealias Scheduler = ConnectScheduler<Int>
    private let timing = BlueZTiming.Connect()

    @Test("a sole waiting device is attempted at once, without a scan and without a time limit")
    func alone() {
        var slots = Scheduler()
        #expect(slots.request(1, isHeard: false) == [.start(1)])
        #expect(slots.end(1) == [])
        #expect(slots.request(1, isHeard: false) == [.start(1)])
    }

    @Test("while the app scans, the scheduler first listens for a device that was not heard, then attempts it briefly")
    func whileScanning() {
        var slots = Scheduler()
        #expect(slots.scan(true) == [])
        #expect(slots.request(1, isHeard: false) == [.startTimer(timing.listening), .look(true)])
        #expect(slots.timerFired() == [.start(1), .startTimer(timing.unheardAttempt), .look(false)])
        #expect(slots.timerFired() == [.callOff(1)])
        #expect(slots.end(1) == [])
        #expect(slots.request(1, isHeard: true) == [.start(1), .startTimer(timing.heardAttempt)])
    }

    @Test(
        "connects are tried one at a time, in order of request; heard devices go first, after an unheard one's time"
    )
    func order() {
        var slots = Scheduler()
        #expect(slots.request(1, isHeard: false) == [.start(1)])
        #expect(slots.request(2, isHeard: false) == [.startTimer(timing.unheardAttempt), .look(true)])
        #expect(slots.request(3, isHeard: false) == [])
        #expect(slots.hear(3) == [])
        #expect(slots.request(4, isHeard: true) == [])
        #expect(slots.timerFired() == [.callOff(1)])
        #expect(slots.end(1) == [.start(3), .startTimer(timing.heardAttempt)])
        #expect(slots.request(1, isHeard: false) == [])
        #expect(slots.end(3) == [.stopTimer, .start(4), .startTimer(timing.heardAttempt)])
        #expect(slots.end(4) == [.startTimer(timing.listening)])
        #expect(slots.timerFired() == [.start(2), .startTimer(timing.unheardAttempt)])
        #expect(slots.timerFired() == [.callOff(2)])
        #expect(slots.timerFired() == [])
        #expect(slots.end(2) == [.start(1), .look(false)])
    }

    @Test("among a hundred the five in range connect in turn, and each of the others is tried once in a while")
    func fair() {
        var slots = Scheduler()
        var started: [Int] = []
        func note(_ actions: [Scheduler.Action]) {
            for case .start(let id) in actions { started.append(id) }
        }
        for id in 0..<100 { note(slots.request(id, isHeard: false)) }
        #expect(started == [0])
        for id in [7, 13, 50, 88, 99] { note(slots.hear(id)) }
        for _ in 0..<6 {
            guard let running = slots.running else { break }
            note(slots.end(running))
            if running == 0 { note(slots.request(running, isHeard: false)) }
        }
        #expect(Array(started.prefix(6)) == [0, 7, 13, 50, 88, 99])
        started = []
        for _ in 0..<95 {
            note(slots.timerFired())  // the time to listen is over
            note(slots.timerFired())  // the slot is over
            if let running = slots.running {
                note(slots.end(running))
                note(slots.request(running, isHeard: false))
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
            var slots = Scheduler()
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
                        actions = state.slots.request(id, isHeard: isHeard)
                    case .hear(let id): actions = state.slots.hear(id)
                    case .end(let id):
                        state.waiting.remove(id)
                        if state.running == id { state.running = nil }
                        actions = state.slots.end(id)
                    case .scan(let scans): actions = state.slots.scan(scans)
                    case .timer:
                        guard state.hasTimer else { continue }
                        state.hasTimer = false
                        actions = state.slots.timerFired()
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
                    #expect(state.slots.running == state.running && state.slots.waiting == state.waiting.count)
                    // Every waiting device gets a slot: when the attempt ends, or when the timer fires.
                    #expect(state.waiting.isEmpty || state.running != nil || state.hasTimer)
                    if depth < 4 { next.append(state) }
                }
            }
            frontier = next
        }
    }
}
