import BluezDBus
import Foundation
import Testing

@testable import CoreBluetoothAsync

/// The state machines of CoreBluetoothAsync in every order of events up to a length, and in long random ones: each task
/// that waits is resumed once, never twice, and none is forgotten.
@Suite struct AsyncModelTests {
    /// Which tasks wait, and which have been resumed.
    struct Ledger {
        private(set) var waiting: Set<UInt64> = []
        private var last: UInt64 = 0

        mutating func add() -> UInt64 {
            last += 1
            waiting.insert(last)
            return last
        }

        /// - Returns: Whether that task was waiting.
        mutating func resume(_ task: UInt64) -> Bool { waiting.remove(task) != nil }
    }

    /// Calls `body` with each sequence of numbers below `count`, of this length, and then with random ones of 400.
    /// Where tests are not optimized: with those that are one shorter, and a tenth of the random ones.
    private func explore(_ count: Int, length: Int, random: Int = 2000, _ body: ([Int]) throws -> Void) rethrows {
        let length = isDebugBuild ? length - 1 : length
        var sequence = [Int](repeating: 0, count: length)
        while true {
            try body(sequence)
            guard let index = sequence.lastIndex(where: { $0 < count - 1 }) else { break }
            sequence[index] += 1
            for later in sequence.indices where later > index { sequence[later] = 0 }
        }
        var generator = SeededRandom(state: 7)
        for _ in 0..<thorough(random) {
            try body((0..<400).map { _ in Int.random(in: 0..<count, using: &generator) })
        }
    }

    struct Broken: Error, CustomStringConvertible { let description: String }

    // MARK: Connections

    @Test("AR-2 a connect takes the options before it only for a connection that there is, or is being made")
    func startsOver() {
        var machine = ConnectionMachine()
        #expect(machine.startsOver && !machine.isPursued)
        _ = machine.connect(1)
        #expect(!machine.startsOver && machine.isPursued)
        _ = machine.didConnect()
        #expect(!machine.startsOver && machine.isPursued)
        _ = machine.didEnd(isReconnecting: true)
        #expect(!machine.startsOver && machine.isPursued)
        // The first one that connects after a cancel starts over; those after it join it.
        _ = machine.disconnect(2)
        #expect(machine.startsOver && !machine.isPursued)
        _ = machine.connect(3)
        #expect(!machine.startsOver && !machine.isPursued)
        #expect(machine.didEnd() == [.resume(2, .success), .connect])
        #expect(!machine.startsOver && machine.isPursued)
        _ = machine.reset()
        machine.restore(isConnected: true)
        #expect(!machine.startsOver && machine.isPursued)
    }

    @Test("R-8 AR-7 the last task that is cancelled calls off an attempt that the system makes")
    func callsOffReconnection() {
        var machine = ConnectionMachine()
        machine.restore(isConnected: false)
        #expect(machine.connect(1) == [] && machine.connect(2) == [])
        #expect(machine.cancel(1) == [.resume(1, .cancelled)] && machine.isPursued)
        #expect(machine.cancel(2) == [.cancelConnection, .resume(2, .cancelled)] && !machine.isPursued)
        // One that connects now starts over when that has ended.
        #expect(machine.connect(3) == [] && machine.didEnd() == [.connect])
    }

    // Its end was taken for that of the new attempt: connect threw, and the peripheral was connected.
    @Test("CN-2 DL-7 a peripheral that is retrieved while it is being disconnected is connected after that")
    func restoresEnding() {
        var machine = ConnectionMachine()
        machine.restoreEnding()
        #expect(machine.connect(1) == [] && machine.startsOver == false)
        #expect(machine.didEnd() == [.connect])
        #expect(machine.didConnect() == [.resume(1, .success)])
    }

    @Test("O-11 CN-3 CN-7 tasks that connect and disconnect are resumed exactly once, in every order of events")
    func connections() throws {
        try explore(10, length: 5, random: 2000) { events in
            var machine = ConnectionMachine()
            var tasks = Ledger()
            // What CoreBluetooth was last asked for, and has to answer.
            var isAskedToConnect = false
            var isAskedToCancel = false
            var isLinked = false

            func perform(_ actions: [ConnectionMachine.Action]) throws {
                // Who catches the error that is the end finds the state that goes with it.
                let before = actions.prefix { $0 != .cancelConnection }
                let isTooLate = before.contains {
                    switch $0 {
                    case .resume(_, .failure), .resume(_, .cancelled), .linkEnded: true
                    case .resume(_, .success), .connect, .cancelConnection: false
                    }
                }
                guard before.count == actions.count || !isTooLate else {
                    throw Broken(description: "cancelled too late: \(events)")
                }
                for action in actions {
                    switch action {
                    case .connect:
                        guard !isAskedToConnect, !isAskedToCancel, !isLinked else {
                            throw Broken(description: "connect \(events)")
                        }
                        isAskedToConnect = true
                    case .cancelConnection:
                        guard isAskedToConnect || isLinked, !isAskedToCancel else {
                            throw Broken(description: "cancel \(events)")
                        }
                        isAskedToCancel = true
                    case .resume(let task, _):
                        guard tasks.resume(task) else { throw Broken(description: "resumed twice: \(events)") }
                    case .linkEnded:
                        guard isLinked else { throw Broken(description: "no link has ended: \(events)") }
                    }
                }
            }
            func end() {
                (isAskedToConnect, isAskedToCancel, isLinked) = (false, false, false)
            }
            for event in events {
                switch event {
                case 0: try perform(machine.connect(tasks.add()))
                case 1: try perform(machine.disconnect(tasks.add()))
                case 2: if let task = tasks.waiting.min() { try perform(machine.cancel(task)) }
                case 3: if let task = tasks.waiting.max() { try perform(machine.cancel(task)) }
                case 4:  // also after a cancel, which it has crossed
                    if isAskedToConnect {
                        (isAskedToConnect, isLinked) = (false, true)
                        try perform(machine.didConnect())
                    }
                case 5:
                    if isAskedToConnect, !isAskedToCancel {
                        end()
                        try perform(machine.didEnd())
                    }
                case 6, 7:
                    if isLinked || isAskedToCancel {
                        let isReconnecting = event == 7 && !isAskedToCancel
                        let actions = machine.didEnd(isReconnecting: isReconnecting)
                        if isReconnecting {
                            try perform(actions)
                            (isAskedToConnect, isLinked) = (true, false)
                        } else {
                            let wasLinked = isLinked
                            (isAskedToConnect, isAskedToCancel) = (false, false)
                            isLinked = false
                            if wasLinked, actions.contains(.linkEnded) { isLinked = true }
                            try perform(actions.filter { $0 == .linkEnded })
                            isLinked = false
                            try perform(actions.filter { $0 != .linkEnded })
                        }
                    }
                case 8: if let task = tasks.waiting.randomElement() { try perform(machine.cancel(task)) }
                default:
                    try perform(machine.reset())
                    end()
                    guard tasks.waiting.isEmpty, machine.isIdle else {
                        throw Broken(description: "forgotten: \(events)")
                    }
                }
                // A task waits for something that will be answered.
                guard tasks.waiting.isEmpty || isAskedToConnect || isAskedToCancel else {
                    throw Broken(description: "waits for nothing: \(events)")
                }
            }
            try perform(machine.reset())
            guard tasks.waiting.isEmpty else { throw Broken(description: "forgotten: \(events)") }
        }
    }

    // MARK: Requests

    @Test("RW-1 requests are made one at a time, in order, and each is resumed exactly once, in every order of events")
    func requests() throws {
        try explore(8, length: 6, random: 400) { events in
            var queue = RequestQueue<Void>()
            var tasks = Ledger()
            var hasRoom = true
            var made: [UInt64] = []
            var unanswered: UInt64?

            func perform(_ actions: [RequestQueue<Void>.Action]) throws {
                var work = actions
                while !work.isEmpty {
                    switch work.removeFirst() {
                    case .make(let request):
                        guard hasRoom else { break }
                        guard unanswered == nil, tasks.waiting.contains(request.number), made.last ?? 0 < request.number
                        else {
                            throw Broken(description: "made \(request.number): \(events)")
                        }
                        made.append(request.number)
                        unanswered = request.number
                        queue.didMake()
                    case .resume(let request, _):
                        guard tasks.resume(request.number) else {
                            throw Broken(description: "resumed twice: \(events)")
                        }
                    }
                }
            }
            for event in events {
                switch event {
                case 0: try perform(queue.add(tasks.add(), ()))
                case 1, 2:
                    guard let task = event == 1 ? tasks.waiting.min() : tasks.waiting.max() else { break }
                    let wasMade = made.contains(task)
                    try perform(queue.cancel(task))
                    // Its answer still comes, or it is never made.
                    guard (queue.made?.number == task) == wasMade else {
                        throw Broken(description: "cancelled: \(events)")
                    }
                case 3:
                    if unanswered != nil {
                        unanswered = nil
                        try perform(queue.didAnswer())
                    }
                case 4:
                    if let task = tasks.waiting.min() {
                        if unanswered == task { unanswered = nil }
                        try perform(queue.fail(task))
                    }
                case 5: hasRoom = false
                case 6:
                    hasRoom = true
                    try perform(queue.retry())
                default:
                    unanswered = nil
                    try perform(queue.end())
                    guard tasks.waiting.isEmpty else { throw Broken(description: "forgotten: \(events)") }
                }
                guard queue.made?.number == unanswered else { throw Broken(description: "another request: \(events)") }
                guard tasks.waiting.isEmpty || unanswered != nil || !hasRoom else {
                    throw Broken(description: "waits for nothing: \(events)")
                }
            }
            try perform(queue.end())
            guard tasks.waiting.isEmpty else { throw Broken(description: "forgotten: \(events)") }
        }
    }

    // MARK: Sequences

    private struct Failed: Error {}

    @Test(
        "a sequence delivers each element once and in order, drops the oldest and counts it, in every order of events")
    func mailboxes() throws {
        try explore(6, length: 6, random: 400) { events in
            var mailbox = Mailbox<Int, Failed, UInt64>(limit: 2)
            var tasks = Ledger()
            var sent = 0
            var dropped = 0
            var received: [Int] = []
            var errors = 0
            var hasFailed = false

            func answer(_ task: UInt64, _ answer: Result<Int?, Failed>) throws {
                guard tasks.resume(task) else { throw Broken(description: "resumed twice: \(events)") }
                switch answer {
                case .success(let element): if let element { received.append(element) }
                case .failure: errors += 1
                }
            }
            for event in events {
                switch event {
                case 0, 1:
                    if !mailbox.isEnded { sent += 1 }
                    let (waiter, hasDropped) = mailbox.send(sent)
                    if hasDropped { dropped += 1 }
                    if let waiter { try answer(waiter, .success(sent)) }
                case 2, 3:
                    let task = tasks.add()
                    if let now = mailbox.next(task) { try answer(task, now) }
                case 4:
                    hasFailed = hasFailed || !mailbox.isEnded
                    for (task, last) in mailbox.finish(throwing: Failed()) { try answer(task, last) }
                default: for task in mailbox.cancel() { try answer(task, .success(nil)) }
                }
                guard received == received.sorted(), Set(received).count == received.count else {
                    throw Broken(description: "order: \(events)")
                }
                guard errors <= (hasFailed ? 1 : 0), received.count + dropped <= sent else {
                    throw Broken(description: "too much: \(events)")
                }
                guard !mailbox.isEnded || tasks.waiting.isEmpty else {
                    throw Broken(description: "forgotten: \(events)")
                }
            }
            for task in mailbox.cancel() { try answer(task, .success(nil)) }
            guard tasks.waiting.isEmpty else { throw Broken(description: "forgotten: \(events)") }
        }
    }

    @Test("an element that comes late gets its place before those that are newer, and the oldest one is dropped")
    func lateElements() {
        var mailbox = Mailbox<Int, Failed, UInt64>(limit: 3)
        var dropped: [Int] = []
        for number in [5, 8, 3, 6, 2, 9] {
            if let oldest = mailbox.insert(number, behind: { $0 < number }).dropped { dropped.append(oldest) }
        }
        #expect(dropped == [3, 2, 5] && mailbox.untaken.compactMap { $0 } == [6, 8, 9])
        // Also where some were taken.
        _ = mailbox.next(1)
        #expect(mailbox.insert(7, behind: { $0 < 7 }).dropped == nil)
        #expect(mailbox.untaken.compactMap { $0 } == [7, 8, 9])
        // First to a consumer that waits.
        for task in UInt64(2)...5 { _ = mailbox.next(task) }
        #expect(mailbox.insert(4, behind: { $0 < 4 }).waiter == 5)
    }

    @Test(
        "a sequence that is not read keeps the newest elements, says how many it dropped, and delivers them after its end"
    )
    func drops() async throws {
        let ends = EventLog<String>()
        var sequence: EventSequence<Int, Never>? = EventSequence { dropped in
            let subscription = EventSubscription<Int, Never>(bufferSize: 3, dropped: dropped) { _, _ in
                ends.append("end")
            }
            for n in 1...10 { subscription.send(n) }
            return subscription
        }
        #expect(sequence?.droppedCount == 7)
        var iterator = sequence?.makeAsyncIterator()
        #expect(await iterator?.next() == 8)
        // A second consumer has a buffer of its own.
        var other = sequence?.makeAsyncIterator()
        #expect(await other?.next() == 8)
        #expect(sequence?.droppedCount == 14)
        other = nil
        _ = try await ends.next("the end of the second") { $0 }
        sequence = nil
        #expect(await iterator?.next() == 9)
        iterator = nil
        _ = try await ends.next("the end of the first") { $0 }
    }
}

private struct SeededRandom: RandomNumberGenerator {
    var state: UInt64
    mutating func next() -> UInt64 {
        state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        return state ^ (state >> 29)
    }
}
