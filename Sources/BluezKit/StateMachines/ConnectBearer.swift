import BluezDBus

/// How BlueZ is asked to connect by LE. A device that has both LE and classic Bluetooth it connects to as it likes;
/// where it has chosen wrong, the next attempt asks more clearly.
enum ConnectBearer: Equatable {
    /// `Device1.Connect`.
    case any
    /// `Bearer.LE1.Connect`, of BlueZ 5.86 and later.
    case le
    /// `PreferredBearer`, of BlueZ 5.80 and later if started with `-E`.
    case preferred
    /// Nothing has helped; the next wrong choice is final.
    case refused

    /// An attempt has failed.
    /// - Parameter isRandom: Whether the device has a random address, which only LE devices have.
    /// - Returns: What that means for the next attempt.
    mutating func failed(_ error: BusError, isRandom: Bool) -> LinkStateMachine.Failure {
        // Without that interface the error looks as if there were no such device.
        if self == .le, BlueZErrorName.meansUnknownObject(error.name) {
            self = .preferred
            return .transient
        }
        // Up to today's newest version, a `Bearer.LE1.Connect` that was called off stays in progress.
        if self == .le, ConnectFailure.classify(name: error.name, message: error.message) == .inProgress {
            self = .preferred
            return .transient
        }
        guard ConnectFailure.isClassic(name: error.name, message: error.message, isRandom: isRandom) else {
            return ConnectFailure.classify(name: error.name, message: error.message)
        }
        switch self {
        case .any: self = .le
        case .le: self = .preferred
        case .preferred: self = .refused
        case .refused: return .final
        }
        return .transient
    }
}
