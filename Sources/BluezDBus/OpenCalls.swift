import Dispatch

/// The calls of one connection that the bus waits with it for: until they are answered, however late. Confined to the
/// connection's queue.
struct OpenCalls {
    struct Call {
        let start: DispatchTime
        let deadline: DispatchTime
        /// When it becomes slow; nil: it already has.
        var slow: DispatchTime?
        /// Nil: the deadline has passed.
        var completion: Connection.Completion?
    }

    private var calls: [UInt32: Call] = [:]
    private var deadlines: DeadlineTimer
    /// How long a call may take before it counts as slow, and what is called then.
    var slow = Duration.seconds(10)
    var onSlow: (() -> Void)?

    /// Nil: real time.
    let time: VirtualTime?
    /// Questions whose answers only mean that they have come (``Connection/echo(_:)``), by their serial numbers.
    private var echoes: [UInt32: () -> Void] = [:]

    init(on queue: DispatchQueue) {
        deadlines = DeadlineTimer(queue: queue)
        time = queue.virtualTime
    }

    /// Called when a call may be due: see ``due(hasInput:)``.
    var onDue: (() -> Void)? {
        get { deadlines.onDue }
        set { deadlines.onDue = newValue }
    }

    var isEmpty: Bool { calls.isEmpty }
    var count: Int { calls.count }
    /// How many have passed their deadlines.
    var overdue: Int { calls.values.count { $0.completion == nil } }

    /// How many are that old, or older.
    func count(for period: Duration) -> Int {
        let now = DispatchQueue.now
        return calls.values.count { $0.start.later(by: period) <= now }
    }

    mutating func add(
        _ serial: UInt32, at now: DispatchTime, for deadline: Duration, _ completion: @escaping Connection.Completion
    ) {
        let (due, slow) = (now.later(by: deadline), now.later(by: slow))
        calls[serial] = Call(start: now, deadline: due, slow: slow < due ? slow : nil, completion: completion)
        deadlines.mustFire(by: min(due, slow))
    }

    mutating func addEcho(_ serial: UInt32, _ body: @escaping () -> Void) { echoes[serial] = body }

    mutating func removeEcho(_ serial: UInt32) -> (() -> Void)? {
        echoes.isEmpty ? nil : echoes.removeValue(forKey: serial)
    }

    mutating func removeEchoes() -> [() -> Void] {
        defer { echoes = [:] }
        return Array(echoes.values)
    }

    /// It is answered.
    mutating func remove(_ serial: UInt32) -> Call? { calls.removeValue(forKey: serial) }

    /// - Returns: What waits for answers, in the order of the calls.
    mutating func removeAll() -> [Connection.Completion] {
        defer { calls = [:] }
        for body in removeEchoes() { body() }
        return calls.sorted { $0.key < $1.key }.compactMap(\.value.completion)
    }

    func stop() { deadlines.stop() }

    // MARK: Deadlines

    /// The calls that are overdue since now, in the order of their deadlines, and whether others are slow since now. To
    /// be followed by ``fail(_:)`` for each, and ``schedule()``.
    /// - Parameter hasInput: An answer that has arrived is in time, however late this process looks: it may have been
    ///   stopped, or the machine.
    /// - Returns: Nil: later.
    mutating func due(hasInput: Bool) -> (overdue: [UInt32], hasSlow: Bool)? {
        deadlines.hasFired()
        if deadlines.putOff(if: hasInput) { return nil }
        let now = DispatchQueue.now
        let waiting = calls.filter { $0.value.completion != nil }
        let slow = waiting.filter { $0.value.slow.map { $0 <= now } ?? false }.keys
        for serial in slow { calls[serial]?.slow = nil }
        let overdue = waiting.filter { $0.value.deadline <= now }
            .sorted { ($0.value.deadline, $0.key) < ($1.value.deadline, $1.key) }
        return (overdue.map(\.key), !slow.isEmpty)
    }

    /// The call stays until it is answered.
    /// - Returns: What has waited for it; nil: nothing does any more.
    mutating func fail(_ serial: UInt32) -> Connection.Completion? {
        defer { calls[serial]?.completion = nil }
        return calls[serial]?.completion
    }

    /// The next deadline.
    mutating func schedule() {
        let moments = calls.values.compactMap { $0.completion == nil ? nil : $0.slow ?? $0.deadline }
        if let next = moments.min() { deadlines.mustFire(by: next) }
    }
}
