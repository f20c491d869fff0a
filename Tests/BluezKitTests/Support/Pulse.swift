import Dispatch

/// Wakes a test when something has happened, for a condition that many different events can make true. Where one event
/// does, wait for that (``EventLog``).
final class Pulse: Sendable {
    private struct State {
        var beats = 0
        var last = 0
        var waiting: [Int: CheckedContinuation<Void, Never>] = [:]
    }

    private let state = ProtectedBox(State())

    /// How often something has happened. Look before the condition is checked.
    var beats: Int { state.withLock { $0.beats } }

    func beat() {
        let waiting = state.withLock { state in
            defer { state.waiting = [:] }
            state.beats += 1
            return state.waiting.values
        }
        for continuation in waiting { continuation.resume() }
    }

    /// Returns when something has happened since there were `seen` beats.
    /// - Parameter limit: Returns after that in any case: for the deadline, and for what no event tells of.
    func wait(since seen: Int, atMost limit: Duration) async {
        await withCheckedContinuation { continuation in
            let number = state.withLock { state -> Int? in
                guard state.beats == seen else { return nil }
                state.last += 1
                state.waiting[state.last] = continuation
                return state.last
            }
            guard let number else { return continuation.resume() }
            DispatchQueue.global().asyncAfter(deadline: .now() + .nanoseconds(Int(limit / .nanoseconds(1)))) {
                [state] in
                state.withLock { $0.waiting.removeValue(forKey: number) }?.resume()
            }
        }
    }
}

/// A pause that belongs to what a test shows: that nothing happens in it, or how soon one event follows another. It is
/// not for waiting until something has happened.
func pause(for duration: Duration) async { try? await Task.sleep(for: duration) }
