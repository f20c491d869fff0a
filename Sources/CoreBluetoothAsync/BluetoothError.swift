public import CoreBluetooth

/// Why an operation could not be carried out, where CoreBluetooth has no error for it because it makes no callback.
/// All other errors are CoreBluetooth's: `CBError` and `CBATTError`.
public enum BluetoothError: Error, Equatable, Sendable {
    /// Bluetooth is not on, or was switched off, or the system's Bluetooth service has restarted.
    case unavailable(CBManagerState)
    /// The ``CentralManager`` or ``PeripheralManager`` was released.
    case managerReleased
    /// Another scan with other parameters has begun: a manager has one scan at a time.
    case scanReplaced
    /// The peripheral has no such service or characteristic.
    case notFound
}

extension BluetoothError: CustomStringConvertible, LocalizedError {
    /// One sentence for a log or a terminal.
    public var description: String {
        switch self {
        case .unavailable(.poweredOff): "Bluetooth is switched off"
        case .unavailable(.unauthorized): "this program may not use Bluetooth"
        case .unavailable(.unsupported):
            "there is no Bluetooth to use: no adapter, no Bluetooth service, or no way to it; the log says which"
        case .unavailable(.resetting): "the connection to the system's Bluetooth service was lost"
        case .unavailable: "Bluetooth is not ready"
        case .managerReleased: "the Bluetooth manager was released"
        case .scanReplaced: "another scan has replaced this one"
        case .notFound: "the peripheral does not have this service or characteristic"
        }
    }

    /// The same, as `localizedDescription`, which `CBError` and `CBATTError` have as well.
    public var errorDescription: String? { description }
}
