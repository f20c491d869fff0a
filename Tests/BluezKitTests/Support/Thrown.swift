/// What `body` throws; nil: nothing. The `#expect(throws:)` of Swift 6.0 does not return it.
func thrown(_ body: () async throws -> Void) async -> (any Error)? {
    do { try await body() } catch { return error }
    return nil
}
