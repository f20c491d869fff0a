/// The latency with which a central should be served: a hint for the connection interval.
/// - SeeAlso: Apple, `CBPeripheralManagerConnectionLatency`.
public enum CBPeripheralManagerConnectionLatency: Int, Sendable {
    /// Low latency, at the cost of power.
    case low = 0
    /// A compromise.
    case medium = 1
    /// High latency, to save power.
    case high = 2
}
