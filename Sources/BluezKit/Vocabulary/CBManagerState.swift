/// Whether Bluetooth can be used, as a manager last announced it.
///
/// The order is significant: below `poweredOn` there is no radio, below `poweredOff` there are no valid objects either.
/// - SeeAlso: Apple, `CBManagerState`.
public enum CBManagerState: Int, Sendable {
    /// Not known yet: the state from `init` until the first `…DidUpdateState`.
    case unknown = 0
    /// The connection to `bluetoothd` was lost, or the adapter was removed; another state follows soon.
    case resetting = 1
    /// There is no adapter with Bluetooth LE, no `bluetoothd`, or the role is not supported.
    case unsupported = 2
    /// The bus refuses this process access to BlueZ.
    case unauthorized = 3
    /// The adapter is switched off, by software or by rfkill.
    case poweredOff = 4
    /// Ready.
    case poweredOn = 5
}

/// The name of ``CBManagerState`` for the central manager until iOS 10. Same cases, same raw values.
@available(*, deprecated, message: "Use CBManagerState")
public enum CBCentralManagerState: Int, Sendable {
    /// ``CBManagerState/unknown``.
    case unknown = 0
    /// ``CBManagerState/resetting``.
    case resetting = 1
    /// ``CBManagerState/unsupported``.
    case unsupported = 2
    /// ``CBManagerState/unauthorized``.
    case unauthorized = 3
    /// ``CBManagerState/poweredOff``.
    case poweredOff = 4
    /// ``CBManagerState/poweredOn``.
    case poweredOn = 5
}

/// The name of ``CBManagerState`` for the peripheral manager until iOS 10. Same cases, same raw values.
@available(*, deprecated, message: "Use CBManagerState")
public enum CBPeripheralManagerState: Int, Sendable {
    /// ``CBManagerState/unknown``.
    case unknown = 0
    /// ``CBManagerState/resetting``.
    case resetting = 1
    /// ``CBManagerState/unsupported``.
    case unsupported = 2
    /// ``CBManagerState/unauthorized``.
    case unauthorized = 3
    /// ``CBManagerState/poweredOff``.
    case poweredOff = 4
    /// ``CBManagerState/poweredOn``.
    case poweredOn = 5
}
