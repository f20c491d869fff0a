/// The connection between this app and a peripheral. Connections of other programs are not considered.
/// - SeeAlso: Apple, `CBPeripheralState`.
public enum CBPeripheralState: Int, Sendable {
    /// No connection, and none requested.
    case disconnected = 0
    /// `connect` was called; the attempt lasts until it succeeds, is cancelled, or Bluetooth is switched off.
    case connecting = 1
    /// Connected.
    case connected = 2
    /// `cancelPeripheralConnection` was called; `didDisconnectPeripheral` follows.
    case disconnecting = 3
}
