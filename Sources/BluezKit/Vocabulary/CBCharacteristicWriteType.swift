/// How to write a characteristic.
/// - SeeAlso: Core Spec 5.4, Vol 3, Part G, 4.9.1 and 4.9.3.
public enum CBCharacteristicWriteType: Int, Sendable {
    /// A request: `didWriteValueFor` reports the result.
    case withResponse = 0
    /// A command: whether it arrived is not reported.
    case withoutResponse = 1
}
