/// How to write a characteristic.
/// - SeeAlso: Core Spec 5.4, Vol 3, Part G, 4.9.1 and 4.9.3.
public enum CBCharacteristicWriteType: Int, Sendable {
    /// A request: `didWriteValueFor` tells how it ended.
    case withResponse = 0
    /// A command: nobody is told whether it arrived.
    case withoutResponse = 1
}
