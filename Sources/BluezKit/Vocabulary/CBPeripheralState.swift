/// The connection between this app and a peripheral. What other programs do with it does not count.
/// - SeeAlso: Apple, `CBPeripheralState`.
public enum CBPeripheralState: Int, Sendable {
    /// No connection, and none wanted.
    case disconnected = 0
    /// `connect` was called; it goes on until it succeeds, is cancelled, or Bluetooth goes off.
    case connecting = 1
    /// There is a link.
    case connected = 2
    /// `cancelPeripheralConnection` was called; `didDisconnectPeripheral` follows.
    case disconnecting = 3
}
