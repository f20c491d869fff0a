import Testing

@testable import BluezKit

@Suite struct ChannelStreamStateTests {
    private func opened() -> ChannelStreamState {
        var state = ChannelStreamState()
        state.open()
        #expect(state.takeEvent() == .opened)
        return state
    }

    @Test("L2-4 O-41 a stream is not open at first, reports its opening once, and is opened only once")
    func opening() {
        var state = ChannelStreamState()
        #expect(state.status == .notOpen && !state.awaitsReadiness && state.takeEvent() == nil)
        state.open()
        state.open()
        #expect(state.status == .open)
        #expect(state.takeEvent() == .opened)
        #expect(state.takeEvent() == nil)
    }

    @Test("L2-5 readiness is reported once, and again after the app has used the stream")
    func readiness() {
        var state = opened()
        #expect(state.awaitsReadiness)
        state.ready()
        #expect(!state.awaitsReadiness && state.hasEvent)
        #expect(state.takeEvent() == .ready)
        state.ready()
        #expect(!state.hasEvent && !state.awaitsReadiness && state.takeEvent() == nil)
        state.used()
        #expect(state.awaitsReadiness)
        state.ready()
        #expect(state.takeEvent() == .ready)
    }

    @Test("L2-11 readiness that has gone before it was reported is awaited again, not reported")
    func staleReadiness() {
        var state = opened()
        state.ready()
        state.notReady()
        #expect(state.takeEvent() == nil && state.awaitsReadiness)
    }

    /// Everything that can happen to a stream.
    private enum Step: CaseIterable { case open, ready, notReady, used, end, close, take }

    @Test(
        "L2-6 O-42 in every order of events: one opening before all, at most one end after it, nothing after either end or close"
    )
    func everyOrder() {
        var sequences: [[Step]] = [[]]
        for _ in 0..<6 { sequences = sequences.flatMap { sequence in Step.allCases.map { sequence + [$0] } } }
        for sequence in sequences {
            var state = ChannelStreamState()
            var events: [ChannelStreamState.Event] = []
            for step in sequence + [.take, .take, .take] {
                switch step {
                case .open: state.open()
                case .ready: state.ready()
                case .notReady: state.notReady()
                case .used: state.used()
                case .end: state.end()
                case .close: state.close()
                case .take: if let event = state.takeEvent() { events.append(event) }
                }
            }
            let isRight =
                events.count { $0 == .opened } <= 1 && events.count { $0 == .ended } <= 1
                && (events.isEmpty || events[0] == .opened) && (events.dropLast().allSatisfy { $0 != .ended })
            #expect(isRight, "\(sequence): \(events)")
            if !isRight { return }
        }
    }
}
