/// How soon a central should be served: a hint for the connection interval.
/// - SeeAlso: Apple, `CBPeripheralManagerConnectionLatency`.
public enum CBPeripheralManagerConnectionLatency: Int, Sendable {
    /// Soon, at the cost of power.
    case low = 0
    /// In between.
    case medium = 1
    /// Late, to save power.
    case high = 2
}
