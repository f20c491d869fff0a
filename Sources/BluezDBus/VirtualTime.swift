package import Dispatch
import Foundation
import Synchronization

/// Time that passes only where a test lets it pass, for everything that uses one bus in this process: a simulator, and
/// the library that talks to it. Queues have it (``Dispatch/DispatchQueue/virtualTime``), and who waits there waits for
/// it.
///
/// What waits for the kernel, as for room in a socket, waits in real time.
package final class VirtualTime: Sendable {
    private struct Timer {
        let deadline: UInt64
        /// Of two with one deadline the first that was set fires first.
        let number: Int
        let queue: DispatchQueue?
        /// Whether nothing follows from it, unless it sends a message.
        let isRoutine: Bool
        let body: @Sendable () -> Void

        func isBefore(_ other: Timer) -> Bool { (deadline, number) < (other.deadline, other.number) }
    }

    private struct Participant {
        weak var connection: Connection?
    }

    private struct State {
        var now = DispatchTime.now().uptimeNanoseconds
        /// In the order in which they fire.
        var timers: [Timer] = []
        var count = 0
        var participants: [Participant] = []
        var random = UInt64(0x9E37_79B9_7F4A_7C15)
    }

    private let state = Mutex(State())
    /// Grows with everything that something may follow from.
    private let activity = Atomic(0)
    /// What is under way in this process, such as events that an app has yet to be told.
    private let pending = Atomic(0)

    package init() {}

    // MARK: Buses

    private struct Reference {
        weak var time: VirtualTime?
    }
    private static let times = Mutex<[BusAddress: Reference]>([:])

    /// From now on who connects to this bus has this time.
    package func govern(_ address: BusAddress) {
        Self.times.withLock { times in
            times = times.filter { $0.value.time != nil }
            times[address.endpoint] = Reference(time: self)
        }
    }

    /// The time on a bus; nil: real time.
    package static func on(_ address: BusAddress) -> VirtualTime? { times.withLock { $0[address.endpoint]?.time } }

    func join(_ connection: Connection) {
        state.withLock { state in
            state.participants.removeAll { $0.connection == nil }
            state.participants.append(Participant(connection: connection))
        }
    }

    // MARK: Timers

    package var now: DispatchTime { DispatchTime(uptimeNanoseconds: state.withLock { $0.now }) }

    /// - Parameters:
    ///   - queue: Where `body` runs; nil: anywhere.
    ///   - isRoutine: Nothing follows from it, unless it sends a message.
    /// - Returns: A number for ``cancel(_:)``.
    @discardableResult
    package func schedule(
        at deadline: DispatchTime, on queue: DispatchQueue?, isRoutine: Bool = false,
        _ body: @escaping @Sendable () -> Void
    ) -> Int {
        activity.add(1, ordering: .sequentiallyConsistent)
        return state.withLock { state in
            state.count += 1
            let timer = Timer(
                deadline: max(deadline.uptimeNanoseconds, state.now), number: state.count, queue: queue,
                isRoutine: isRoutine, body: body)
            var (low, high) = (0, state.timers.count)
            while low < high {
                let middle = (low + high) / 2
                if state.timers[middle].isBefore(timer) { low = middle + 1 } else { high = middle }
            }
            state.timers.insert(timer, at: low)
            return state.count
        }
    }

    package func cancel(_ number: Int) {
        // Outside the lock: what the body holds may end with it.
        let cancelled = state.withLock { state in
            state.timers.firstIndex { $0.number == number }.map { state.timers.remove(at: $0) }
        }
        withExtendedLifetime(cancelled) {}
    }

    /// When the next timer is due. Nil: there is none.
    package var next: DispatchTime? {
        state.withLock { state in state.timers.first.map { DispatchTime(uptimeNanoseconds: $0.deadline) } }
    }

    /// Lets time pass until the next timer is due, runs it, and waits for everything that follows.
    /// - Returns: False if none is due until `end`. Nothing has happened then.
    package func step(until end: DispatchTime) async -> Bool {
        let timer = state.withLock { state -> Timer? in
            guard let first = state.timers.first, first.deadline <= end.uptimeNanoseconds else { return nil }
            state.now = first.deadline
            return state.timers.removeFirst()
        }
        guard let timer else { return false }
        let before = activity.load(ordering: .sequentiallyConsistent)
        if let queue = timer.queue {
            queue.sync(execute: timer.body)
        } else {
            timer.body()
        }
        // Those of a routine timer are one more: itself, set again.
        let followers = activity.load(ordering: .sequentiallyConsistent) - before - 1
        let isQuiet = followers <= 0 && pending.load(ordering: .sequentiallyConsistent) == 0
        if !timer.isRoutine || !isQuiet { await settle() }
        return true
    }

    /// Moves to this time, at which no timer is due yet.
    package func pass(to time: DispatchTime) {
        state.withLock { $0.now = max($0.now, time.uptimeNanoseconds) }
    }

    /// A number from 0 up to 1: the same ones in each run.
    package func fraction() -> Double {
        state.withLock { state in
            // SplitMix64
            state.random &+= 0x9E37_79B9_7F4A_7C15
            var mixed = state.random
            mixed = (mixed ^ mixed >> 30) &* 0xBF58_476D_1CE4_E5B9
            mixed = (mixed ^ mixed >> 27) &* 0x94D0_49BB_1331_11EB
            return Double((mixed ^ mixed >> 31) >> 11) / 0x1p53
        }
    }

    // MARK: What follows

    /// Something has happened from which more may follow.
    package func note(_ count: Int = 1) { activity.add(count, ordering: .sequentiallyConsistent) }

    /// Something is under way, until ``ended(_:)``.
    package func began(_ count: Int = 1) { pending.add(count, ordering: .sequentiallyConsistent) }

    package func ended(_ count: Int = 1) {
        note(count)
        pending.subtract(count, ordering: .sequentiallyConsistent)
    }

    /// Returns when nothing follows any more from what has happened: every message has reached its receiver, every
    /// event the app, and all threads of this process wait. Gives up after ten seconds of real time, with a message.
    package func settle() async {
        let limit = ContinuousClock.now + .seconds(10)
        var (seen, quietRounds) = (activity.load(ordering: .sequentiallyConsistent), 0)
        // In the first quiet round a message may still have been on its way from one connection to another one, whose
        // echo was faster.
        while quietRounds < 2 {
            await echo(state.withLock { $0.participants.compactMap(\.connection) })
            while pending.load(ordering: .sequentiallyConsistent) > 0, .now < limit {
                usleep(20)
                await Task.yield()
            }
            if quietRounds == 1 { threadsWait(until: limit) }
            let now = activity.load(ordering: .sequentiallyConsistent)
            (seen, quietRounds) = (now, now == seen ? quietRounds + 1 : 0)
            guard .now < limit else { return Self.reportUnrest() }
        }
    }

    /// The bus handles what one sends in that order: when it answers, it has passed on everything sent before, and what
    /// it had passed on to this connection has arrived.
    private func echo(_ connections: [Connection]) async {
        guard !connections.isEmpty else { return }
        let missing = Countdown(connections.count)
        await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
            for connection in connections {
                connection.queue.async { connection.echo { if missing.isLast() { continuation.resume() } } }
            }
        }
    }

    private final class Countdown: Sendable {
        private let count: Atomic<Int>
        init(_ count: Int) { self.count = Atomic(count) }
        func isLast() -> Bool { count.subtract(1, ordering: .acquiringAndReleasing).newValue == 0 }
    }

    /// Waits until all other threads of this process wait: what runs in them, as a task of the app, may lead to more.
    /// Tests that run beside this one never wait all at a time, so it ends when the others have used the processor for
    /// 20 ms. That is not time that passes: on a busy machine a thread may have to wait for the processor.
    private func threadsWait(until limit: ContinuousClock.Instant) {
        let start = Self.usedByOthers
        while Self.otherThreadsRun(), Self.usedByOthers - start < 20_000_000, .now < limit { usleep(50) }
    }

    /// The processor time of the other threads, in nanoseconds.
    private static var usedByOthers: Int64 {
        func used(_ clock: clockid_t) -> Int64 {
            var time = timespec()
            clock_gettime(clock, &time)
            return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
        }
        return used(CLOCK_PROCESS_CPUTIME_ID) - used(CLOCK_THREAD_CPUTIME_ID)
    }

    private static func otherThreadsRun() -> Bool {
        var link = [CChar](repeating: 0, count: 64)  // PID/task/TID
        let length = max(0, readlink("/proc/thread-self", &link, link.count))
        let own = link.prefix(length).map(UInt8.init(bitPattern:)).split(separator: UInt8(ascii: "/")).last ?? []
        guard let threads = opendir("/proc/self/task") else { return false }
        defer { closedir(threads) }
        while let entry = readdir(threads) {
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
            if name.first != UInt8(ascii: "."), name != Array(own), state(of: name) == UInt8(ascii: "R") { return true }
        }
        return false
    }

    /// `R`: it runs, or could; see proc_pid_stat(5).
    private static func state(of thread: [UInt8]) -> UInt8? {
        let file = open("/proc/self/task/\(String(decoding: thread, as: UTF8.self))/stat", O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var text = [UInt8](repeating: 0, count: 64)
        let length = read(file, &text, text.count)
        guard length > 0, let end = text.prefix(length).lastIndex(of: UInt8(ascii: ")")), end + 2 < length else {
            return nil
        }
        return text[end + 2]
    }

    private static func reportUnrest() {
        let text = "BluezKitSimulator: after 10 s the app is still busy with what happened last; time continues\n"
        FileHandle.standardError.write(Data(text.utf8))
    }
}
