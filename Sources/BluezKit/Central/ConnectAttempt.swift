/// One `Connect`, until it is answered: by BlueZ, or in its place where it never does.
final class ConnectAttempt {
    /// Whether another process had made an attempt, or a link, before.
    let hasExistingLease: Bool
    private(set) var isAnswered = false

    init(hasExistingLease: Bool) { self.hasExistingLease = hasExistingLease }

    /// - Returns: Whether this is the first answer.
    func answer() -> Bool {
        defer { isAnswered = true }
        return !isAnswered
    }
}
