/// Which device has the slot to connect. The kernel makes one LE link at a time on an adapter, and an attempt for a
/// device that is away occupies it for 40 s; so attempts are made one after the other, devices that were just heard
/// come first, and the others are listened for instead of tried. Decides; calls nothing.
///
/// A sole waiting device is attempted without a time limit while no app scans: the kernel then listens for it, at no
/// cost.
struct ConnectScheduler<ID: Hashable> {
    enum Action: Equatable {
        /// It has the slot: it may call `Connect`.
        case start(ID)
        /// Its time is over: the attempt is to be cancelled, and requested again.
        case callOff(ID)
        /// Scan, to hear who of those who wait is there; or no longer.
        case look(Bool)
        /// One timer; a new one replaces the old.
        case startTimer(Duration), stopTimer
    }

    private enum Timer: Equatable { case none, window, slot }

    private struct Attempt: Equatable {
        let id: ID
        let isBlind: Bool
        var isCalledOff = false
    }

    private let timing: BlueZTiming.Connect
    private var heard: [ID] = []
    private var unheard: [ID] = []
    private var attempt: Attempt?
    private var timer = Timer.none
    private var isLooking = false
    /// The app scans: an attempt for a device that may be away would keep the radio from it.
    private var isScanning = false

    init(timing: BlueZTiming.Connect = BlueZTiming.Connect()) { self.timing = timing }

    /// Whose attempt runs.
    var running: ID? { attempt?.id }
    var waiting: Int { heard.count + unheard.count }

    /// - Parameter isHeard: Whether an advertisement came recently.
    mutating func request(_ id: ID, isHeard: Bool) -> [Action] {
        guard attempt?.id != id, !heard.contains(id), !unheard.contains(id) else { return isHeard ? hear(id) : [] }
        if isHeard { heard.append(id) } else { unheard.append(id) }
        return decide()
    }

    /// An advertisement has come.
    mutating func hear(_ id: ID) -> [Action] {
        guard let index = unheard.firstIndex(of: id) else { return [] }
        unheard.remove(at: index)
        heard.append(id)
        return decide()
    }

    /// An attempt is over, successful or not; or the device is not wanted any more.
    mutating func end(_ id: ID) -> [Action] {
        if attempt?.id == id {
            attempt = nil
        } else if let index = heard.firstIndex(of: id) {
            heard.remove(at: index)
        } else if let index = unheard.firstIndex(of: id) {
            unheard.remove(at: index)
        } else {
            return []
        }
        return decide()
    }

    mutating func scan(_ scans: Bool) -> [Action] {
        guard scans != isScanning else { return [] }
        isScanning = scans
        return decide()
    }

    mutating func timerFired() -> [Action] {
        let expired = timer
        timer = .none
        switch expired {
        case .slot: return callOff() + decide()
        case .window where attempt == nil && heard.isEmpty && !unheard.isEmpty:
            let id = unheard.removeFirst()
            attempt = Attempt(id: id, isBlind: true)
            return [.start(id)] + decide()
        default: return decide()
        }
    }

    /// No device waits, and no attempt runs.
    mutating func reset() { self = ConnectScheduler(timing: timing) }

    private mutating func callOff() -> [Action] {
        guard let running = attempt, !running.isCalledOff else { return [] }
        attempt?.isCalledOff = true
        return [.callOff(running.id)]
    }

    private mutating func decide() -> [Action] {
        var actions: [Action] = []
        if attempt == nil, let next = heard.first {
            heard.removeFirst()
            attempt = Attempt(id: next, isBlind: false)
            actions += set(.none) + [.start(next)]
        } else if attempt == nil, unheard.count == 1, !isScanning {
            let next = unheard.removeFirst()
            attempt = Attempt(id: next, isBlind: true)
            actions += set(.none) + [.start(next)]
        }
        let isContended = waiting > 0 || isScanning
        if let attempt, isContended, !attempt.isCalledOff {
            // It is not called off before, whichever device is heard: a call that crosses with the new link leaves one
            // that the controller has and the kernel (6.1) knows nothing of, and the device is out of reach then.
            actions += set(.slot, attempt.isBlind ? timing.unheardAttempt : timing.heardAttempt)
        } else if attempt == nil, !unheard.isEmpty {
            actions += set(.window, timing.listening)
        } else {
            actions += set(.none)
        }
        let looks = !unheard.isEmpty
        if looks != isLooking {
            isLooking = looks
            actions.append(.look(looks))
        }
        return actions
    }

    private mutating func set(_ new: Timer, _ delay: Duration = .zero) -> [Action] {
        guard new != timer else { return [] }
        timer = new
        return new == .none ? [.stopTimer] : [.startTimer(delay)]
    }
}
