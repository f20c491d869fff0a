/// When a manager's app hears what was restored: when BlueZ has told of each preserved peripheral, when that has taken too
/// long, or when Bluetooth is not on. Nothing is reported before. Pure.
struct RestorationStateMachine<ID: Hashable> {
    enum Event: Equatable {
        /// The state of Bluetooth is known for the first time, or is another one.
        case stateChanged(isOn: Bool)
        /// BlueZ is asked about this peripheral; everything has been asked.
        case asks(ID), allAsked
        /// BlueZ has answered, or has refused to.
        case answered(ID)
        case timerFired
    }

    enum Action: Equatable {
        /// The adapter is known; then, ask about each preserved peripheral.
        case prepare, ask
        /// For ``BlueZTiming/Link/restoration``.
        case startTimer
        /// Tell the app, and resume. What has not been answered is treated as a peripheral that may come.
        case finish
    }

    private enum Phase { case waiting, asking, awaiting, done }

    private var phase = Phase.waiting
    private var unanswered: Set<ID> = []

    var isDone: Bool { phase == .done }

    mutating func handle(_ event: Event) -> [Action] {
        if case .answered(let id) = event { unanswered.remove(id) }
        switch (phase, event) {
        case (.done, _): return []
        case (.waiting, .stateChanged(isOn: true)):
            phase = .asking
            return [.prepare, .ask]
        // BlueZ cannot be asked.
        case (.waiting, .stateChanged(isOn: false)): return [.prepare] + finish()
        // What was asked does not matter any longer.
        case (_, .stateChanged): return finish()
        case (.asking, .asks(let id)):
            unanswered.insert(id)
            return []
        case (.asking, .allAsked):
            phase = .awaiting
            return unanswered.isEmpty ? finish() : [.startTimer]
        case (.awaiting, .answered): return unanswered.isEmpty ? finish() : []
        case (.awaiting, .timerFired): return finish()
        default: return []
        }
    }

    private mutating func finish() -> [Action] {
        phase = .done
        return [.finish]
    }
}
