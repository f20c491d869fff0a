/// Runs `body`, and cancels it if it takes longer than everything that must come: a time limit by the caller's own means.
func within<Value: Sendable>(
    _ seconds: Double = world_deadline, _ body: @escaping @Sendable () async throws -> Value
) async throws -> Value {
    try await withThrowingTaskGroup(of: Value.self) { group in
        group.addTask { try await body() }
        group.addTask {
            try await Task.sleep(for: .seconds(seconds))
            throw DeadlineExceeded()
        }
        defer { group.cancelAll() }
        return try await group.next()!  // holds: two were added
    }
}

struct DeadlineExceeded: Error {}
