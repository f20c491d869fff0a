import Testing

/// What `body` throws; nil: nothing. The `#expect(throws:)` of Swift 6.0 does not return it.
func thrown(_ body: () async throws -> Void) async -> (any Error)? {
    do { try await body() } catch { return error }
    return nil
}

/// Runs `body` in a task that is cancelled before it begins.
func expectCancelled(
    sourceLocation: SourceLocation = #_sourceLocation, _ body: @escaping @Sendable () async throws -> Void
) async {
    let task = Task {
        withUnsafeCurrentTask { $0?.cancel() }
        try await body()
    }
    let error = await thrown { try await within { try await task.value } }
    #expect(error is CancellationError, "\(String(describing: error))", sourceLocation: sourceLocation)
}
