import BluezKitSimulator
import Foundation

/// All events, in order, and a way to wait for the next one: with a deadline, without polling.
final class EventLog<Event>: @unchecked Sendable {  // holds: what changes is under `lock`
    struct Missing: Error, CustomStringConvertible { let description: String }

    private let lock = NSLock()
    private var log: [Event] = []
    private var cursor = 0
    /// Each checks new events, and returns whether it is finished.
    private var waiters: [() -> Bool] = []

    var all: [Event] { lock.withLock { log } }

    func append(_ event: Event) {
        lock.withLock {
            log.append(event)
            waiters.removeAll { $0() }
        }
    }

    /// Discards all events recorded so far.
    func forget() { lock.withLock { (log, cursor) = ([], 0) } }

    /// What `pick` makes of the next event, after those that were taken already, of which it makes something.
    @discardableResult
    func next<T>(
        _ what: String, within seconds: Double = world_deadline, _ pick: @escaping (Event) -> T?
    ) async throws -> T {
        let seconds = seconds * Worlds.slowness
        let found: Box<T> = await withCheckedContinuation { continuation in
            let done = Once()
            lock.withLock {
                let look = { [self] in
                    while !done.isSet, cursor < log.count {
                        let event = log[cursor]
                        cursor += 1
                        guard let found = pick(event) else { continue }
                        if done.set() { continuation.resume(returning: Box(value: found)) }
                    }
                    return done.isSet
                }
                if !look() { waiters.append(look) }
            }
            DispatchQueue.global().asyncAfter(deadline: .now() + seconds) { [weak self] in
                guard done.set() else { return }
                self?.removeEndedWaiters()
                continuation.resume(returning: Box(value: nil))
            }
        }
        guard let value = found.value else {
            let came = all.suffix(8).map { String(describing: $0).prefix(160) }.joined(separator: "; ")
            throw Missing(
                description: "\(what) did not come within \(seconds) s"
                    + (Worlds.isRig ? "" : " (BLUEZKIT_SEED=\(SimulatorOptions.seed))")
                    + ". Came: \(all.count), the last \(came)")
        }
        return value
    }

    /// A waiter holds what the test waits for, and this log. It is not released under the lock.
    private func removeEndedWaiters() {
        let before = lock.withLock {
            defer { waiters.removeAll { $0() } }
            return waiters
        }
        withExtendedLifetime(before) {}
    }

    private struct Box<T>: @unchecked Sendable {  // holds: handed over once
        let value: T?
    }

    private final class Once: @unchecked Sendable {  // holds: under its lock
        private let lock = NSLock()
        private var fired = false
        var isSet: Bool { lock.withLock { fired } }
        func set() -> Bool {
            lock.withLock {
                defer { fired = true }
                return !fired
            }
        }
    }
}
