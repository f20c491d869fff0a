import BluezDBus

/// One `Connect`, until it is answered: by BlueZ, or in its place where it never does.
final class ConnectAttempt {
    /// Whether another process had made an attempt, or a link, before.
    let hasExistingLease: Bool
    private(set) var isAnswered = false
    /// What BlueZ was asked.
    let call = OperationCall()

    init(hasExistingLease: Bool) { self.hasExistingLease = hasExistingLease }

    /// - Returns: Whether this is the first answer.
    func answer() -> Bool {
        defer { isAnswered = true }
        return !isAnswered
    }

    /// Whether the lease ends with the attempt, which has failed: the next link is another program's then. But BlueZ
    /// may still be at the attempt that it gave no answer to, or at that of a process that has died.
    /// - Parameter isWanted: Whether the attempt was not called off; BlueZ's answer to that ends the lease.
    func endsLease(after error: BusError, isWanted: Bool) -> Bool {
        ConnectFailure.classify(name: error.name, message: error.message) == .inProgress
            ? !hasExistingLease : isWanted && error != .timedOut
    }
}
