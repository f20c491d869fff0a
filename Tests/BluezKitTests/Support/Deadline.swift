/// Runs `body`, and cancels it if it takes longer than everything that must come: a time limit by the caller's own
/// means. It does not wait for a body that ignores that.
func within<Value: Sendable>(
    _ seconds: Double = world_deadline, _ body: @escaping @Sendable () async throws -> Value
) async throws -> Value {
    let ended = EventLog<Result<Value, any Error>>()
    let task = Task {
        do { ended.append(.success(try await body())) } catch { ended.append(.failure(error)) }
    }
    return try await withTaskCancellationHandler {
        let result = try? await ended.next("the end", within: seconds) { $0 }
        guard let result else {
            task.cancel()
            throw DeadlineExceeded(description: "not done within \(seconds * Worlds.slowness) s")
        }
        return try result.get()
    } onCancel: {
        task.cancel()
    }
}

/// Waits until something is so: for what no event tells of, as it looks again and again, with pauses of milliseconds.
/// Where one event does, wait for that (``EventLog``).
/// - Throws: What was awaited, if it is not so in time.
func eventually(
    _ what: @autoclosure () -> String, within seconds: Double = world_deadline, _ condition: () async throws -> Bool
) async throws {
    let seconds = seconds * Worlds.slowness
    let deadline = ContinuousClock.now + .seconds(seconds)
    var pause = Duration.milliseconds(2)
    while try await !condition() {
        guard ContinuousClock.now < deadline else {
            throw DeadlineExceeded(description: "not within \(seconds) s: \(what())")
        }
        try await Task.sleep(for: pause)
        // Many tests wait beside each other, and in the rig each look is a question to another program.
        pause = min(pause * 2, .milliseconds(30))
    }
}

struct DeadlineExceeded: Error, CustomStringConvertible { let description: String }
