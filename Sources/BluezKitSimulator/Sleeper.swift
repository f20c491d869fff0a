import Synchronization

/// A task that sleeps. It is woken once, by whichever comes first: its time, or its end.
final class Sleeper: Sendable {
    private enum State {
        case awake
        case asleep(CheckedContinuation<Void, any Error>, timer: Int)
        case ended((any Error)?)
    }
    private let state = Mutex(State.awake)

    /// - Parameter setTimer: Sets the timer that calls ``end(_:)``, and returns its number.
    func begin(_ continuation: CheckedContinuation<Void, any Error>, _ setTimer: () -> Int) {
        let result = state.withLock { state -> Result<Void, any Error>? in
            guard case .ended(let error) = state else {
                state = .asleep(continuation, timer: setTimer())
                return nil
            }
            return error.map { .failure($0) } ?? .success(())
        }
        if let result { continuation.resume(with: result) }
    }

    /// - Parameter error: Why it ends early; nil: its time has come.
    /// - Returns: The timer that is not needed any more.
    @discardableResult
    func end(_ error: (any Error)? = nil) -> Int? {
        let sleeping = state.withLock { state -> (CheckedContinuation<Void, any Error>, Int)? in
            defer { state = .ended(error) }
            guard case .asleep(let continuation, let timer) = state else { return nil }
            return (continuation, timer)
        }
        guard let (continuation, timer) = sleeping else { return nil }
        if let error { continuation.resume(throwing: error) } else { continuation.resume() }
        return timer
    }
}

/// Set once.
final class Flag: Sendable {
    private let value = Atomic(false)
    var isSet: Bool { value.load(ordering: .acquiring) }
    func set() { value.store(true, ordering: .releasing) }
}
