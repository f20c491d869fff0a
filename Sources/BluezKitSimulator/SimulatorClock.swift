import BluezDBus
import Dispatch
import Glibc

/// The time of a simulator, of the managers on its bus, and of app code that takes a `Clock`.
///
/// By default it is real. A clock that is made with ``init()`` stands still until a test moves it, and then a day
/// takes as long as what happens in it:
///
/// ```swift
/// let clock = SimulatorClock()
/// let simulator = try await Simulator(clock: clock)
/// let heart = simulator.add(.heartRateSensor())
/// heart.notifyRepeatedly("2A37", every: .seconds(60)) { [0, UInt8(60 + $0 % 40)] }
/// // … an app connects and subscribes
/// await clock.advance(by: .seconds(86_400))
/// // It has received 1,440 values.
/// ```
/// Everything that waits on the bus of the simulator then waits for this clock: bluetoothd and the radio
/// (``SimulatorTiming``; where a clock is given the default is ``SimulatorTiming/real``), time on the air, where it is
/// calculated (``LinkModel``), and the library itself, with its pauses between connects and its time limits. What
/// happens between two moments is finished before the clock moves again, and in the same order each time.
///
/// It does not know of other things that an app waits for, such as the network, files, `Task.sleep` or
/// `DispatchQueue.asyncAfter`. Give such code the clock: `try await clock.sleep(for: .seconds(10))`.
///
/// A keeper (`BluezManagerOptionKeeperKey`) is another process, whose time is real.
public final class SimulatorClock: Clock, Sendable {
    /// A moment, in time since the clock was made.
    public struct Instant: InstantProtocol {
        /// Since the clock was made; in real time since the system started.
        public let offset: Duration

        /// The moment that is `duration` later.
        public func advanced(by duration: Duration) -> Instant { Instant(offset: offset + duration) }
        /// How much later `other` is.
        public func duration(to other: Instant) -> Duration { other.offset - offset }
        /// Whether `left` is the earlier one.
        public static func < (left: Instant, right: Instant) -> Bool { left.offset < right.offset }
    }

    /// Why ``run(within:_:)`` has ended a task.
    public enum Failure: Error, Hashable, Sendable, CustomStringConvertible {
        /// The task did not end within that time of this clock.
        case timeLimit(Duration)
        /// The task waits, but for nothing that this clock knows.
        case nothingToWaitFor

        /// The reason in words.
        public var description: String {
            switch self {
            case .timeLimit(let limit): "the task did not end within \(limit)"
            case .nothingToWaitFor:
                "the task waits for something that does not happen: nothing is due on the clock, and nothing happens"
            }
        }
    }

    /// Real time.
    public static let real = SimulatorClock(time: nil)

    let time: VirtualTime?
    private let start: DispatchTime
    private let turn = Turn()

    /// A clock that stands still: see ``advance(by:)`` and ``run(within:_:)``.
    public convenience init() { self.init(time: VirtualTime()) }

    private init(time: VirtualTime?) {
        self.time = time
        start = time?.now ?? DispatchTime(uptimeNanoseconds: 0)
    }

    /// The present moment.
    public var now: Instant {
        let now = time?.now ?? .now()
        return Instant(offset: .nanoseconds(Int64(now.uptimeNanoseconds - start.uptimeNanoseconds)))
    }

    /// A nanosecond.
    public var minimumResolution: Duration { .nanoseconds(1) }

    /// Waits until the clock shows this moment, or the task is cancelled.
    /// - Throws: `CancellationError`
    public func sleep(until deadline: Instant, tolerance: Duration? = nil) async throws {
        guard let time else {
            return try await ContinuousClock().sleep(for: deadline.offset - now.offset, tolerance: tolerance)
        }
        guard deadline > now else { return try Task.checkCancellation() }
        let sleeper = Sleeper()
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
                sleeper.begin(continuation) {
                    time.schedule(at: start.later(by: deadline.offset), on: nil) { sleeper.end() }
                }
            }
        } onCancel: {
            sleeper.end(CancellationError()).map(time.cancel)
        }
    }

    // MARK: Going on

    /// Lets this much time pass, and returns when everything that follows from it has happened: what came in has been
    /// delivered, and nothing is under way any more. In real time it waits.
    public func advance(by duration: Duration) async {
        guard let time else {
            try? await ContinuousClock().sleep(for: duration)
            return
        }
        await turn.take()
        let end = time.now.later(by: duration)
        await time.settle()
        while await time.step(until: end) {}
        time.pass(to: end)
        await turn.pass()
    }

    /// Lets time pass for as long as `body` takes, so that what is awaited there happens:
    ///
    /// ```swift
    /// let beat = try await clock.run { try await pulse.nextValue() }
    /// ```
    /// In real time `body` is run, without a limit.
    /// - Parameters:
    ///   - limit: How long it may take, by this clock. Its task is cancelled after that, and not waited for.
    ///   - body: What is awaited.
    /// - Throws: What `body` throws; or ``Failure``, if it does not end.
    public func run<Value: Sendable>(
        within limit: Duration = .seconds(24 * 3600), _ body: @escaping @Sendable () async throws -> Value
    ) async throws -> Value {
        guard let time else { return try await body() }
        let end = time.now.later(by: limit)
        let isDone = Flag()
        let task = Task {
            defer {
                isDone.set()
                time.note()
            }
            return try await body()
        }
        let failure = await withTaskCancellationHandler {
            await passTime(until: end, limit, isDone)
        } onCancel: {
            task.cancel()
        }
        guard let failure else { return try await task.value }
        task.cancel()
        throw failure
    }

    /// - Returns: Why that makes no sense any more; nil: it is done.
    private func passTime(until end: DispatchTime, _ limit: Duration, _ isDone: Flag) async -> Failure? {
        guard let time else { return nil }
        var idle = ContinuousClock.now
        while true {
            await turn.take()
            await time.settle()
            var steps = false
            if !isDone.isSet { steps = await time.step(until: end) }
            await turn.pass()
            if isDone.isSet { return nil }
            if steps {
                idle = .now
            } else if let next = time.next {
                // One that was set since the step may be due before the end.
                if next > end { return .timeLimit(limit) }
            } else if .now > idle + .seconds(10) {
                return .nothingToWaitFor
            } else {
                // It may wait for something real; also after it was cancelled.
                if Task.isCancelled { usleep(1000) } else { try? await Task.sleep(for: .milliseconds(1)) }
            }
        }
    }
}

/// One task lets time pass at a time.
private actor Turn {
    private var isTaken = false
    private var waiting: [CheckedContinuation<Void, Never>] = []

    func take() async {
        guard isTaken else {
            isTaken = true
            return
        }
        await withCheckedContinuation { waiting.append($0) }
    }

    func pass() {
        guard !waiting.isEmpty else {
            isTaken = false
            return
        }
        waiting.removeFirst().resume()
    }
}
