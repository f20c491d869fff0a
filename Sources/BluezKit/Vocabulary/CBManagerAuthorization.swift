/// Whether this process may use Bluetooth. Linux never prompts: it is `allowedAlways`, or `denied` by the bus policy.
/// - SeeAlso: Apple, `CBManagerAuthorization`.
public enum CBManagerAuthorization: Int, Sendable {
    /// The user has not been asked yet. Does not occur on Linux.
    case notDetermined = 0
    /// The user cannot allow it. Does not occur on Linux.
    case restricted = 1
    /// The bus has refused this process access to BlueZ.
    case denied = 2
    /// Bluetooth may be used at any time.
    case allowedAlways = 3
}

/// The result of the deprecated `CBPeripheralManager.authorizationStatus()`.
@available(*, deprecated, message: "Use CBManagerAuthorization")
public enum CBPeripheralManagerAuthorizationStatus: Int, Sendable {
    /// The user has not been asked yet. Does not occur on Linux.
    case notDetermined = 0
    /// The user cannot allow it. Does not occur on Linux.
    case restricted = 1
    /// The bus has refused this process access to BlueZ.
    case denied = 2
    /// Bluetooth may be used at any time.
    case authorized = 3
}
