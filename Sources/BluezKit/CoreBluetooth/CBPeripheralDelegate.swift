import Foundation

/// Receives the events of a ``CBPeripheral``, on the queue of its manager, one at a time and in order.
///
/// Each request gets exactly one answer, in the order of the requests, unless the link ends: then it gets none. Every
/// method may be left out.
/// - Important: On Linux a method that is spelt, or typed, a little differently is a method of its own: it compiles, and
///   is never called. And if a class conforms without a method that its *subclass* adds, the subclass's is not called
///   either: give the base an empty one and override that.
/// - SeeAlso: Apple, `CBPeripheralDelegate`.
public protocol CBPeripheralDelegate: NSObjectProtocol {
    /// `name` has changed.
    func peripheralDidUpdateName(_ peripheral: CBPeripheral)

    /// The peripheral has changed its attribute table. These services, and all in them, are invalid; discover again to
    /// find what took their place.
    func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService])

    /// Deprecated since iOS 8: answers `readRSSI()` as well, after `peripheral(_:didReadRSSI:error:)`, with the strength in
    /// `peripheral.rssi`.
    func peripheralDidUpdateRSSI(_ peripheral: CBPeripheral, error: (any Error)?)

    /// Answers `readRSSI()`: signal strength in dBm. With an error it has no meaning.
    func peripheral(_ peripheral: CBPeripheral, didReadRSSI RSSI: NSNumber, error: (any Error)?)

    /// Answers `discoverServices(_:)`: `services` is not nil, unless there is an error.
    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?)

    /// Answers `discoverIncludedServices(_:for:)`: `service.includedServices` is not nil, unless there is an error.
    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverIncludedServicesFor service: CBService, error: (any Error)?)

    /// Answers `discoverCharacteristics(_:for:)`: `service.characteristics` is not nil, unless there is an error.
    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?)

    /// Answers `discoverDescriptors(for:)`: `characteristic.descriptors` is not nil, unless there is an error.
    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverDescriptorsFor characteristic: CBCharacteristic, error: (any Error)?)

    /// Answers `readValue(for:)`, and tells of each notification and indication: `characteristic.value` is the value of
    /// this event. With an error it is what it was before.
    func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?)

    /// Answers `readValue(for:)` of a descriptor: `descriptor.value` has it.
    func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor descriptor: CBDescriptor, error: (any Error)?)

    /// Answers `writeValue(_:for:type:)` with response. The write does not change `characteristic.value`.
    func peripheral(_ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?)

    /// Answers `writeValue(_:for:)` of a descriptor. The write does not change `descriptor.value`.
    func peripheral(_ peripheral: CBPeripheral, didWriteValueFor descriptor: CBDescriptor, error: (any Error)?)

    /// Answers `setNotifyValue(_:for:)`, whether on or off: see `characteristic.isNotifying`. Comes before the first
    /// value.
    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: (any Error)?)

    /// `canSendWriteWithoutResponse` was false, and is true again.
    func peripheralIsReady(toSendWriteWithoutResponse peripheral: CBPeripheral)

    /// Answers `openL2CAPChannel(_:)`. Exactly one of `channel` and `error` is not nil. Keep the channel: releasing it
    /// closes it.
    func peripheral(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: (any Error)?)
}

// What Apple's protocol declares optional. The defaults do nothing, so a delegate may forward every call to another.
extension CBPeripheralDelegate {
    /// Does nothing.
    public func peripheralDidUpdateName(_ peripheral: CBPeripheral) {}

    /// Does nothing.
    public func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {}

    /// Does nothing.
    public func peripheralDidUpdateRSSI(_ peripheral: CBPeripheral, error: (any Error)?) {}

    /// Does nothing.
    public func peripheral(_ peripheral: CBPeripheral, didReadRSSI RSSI: NSNumber, error: (any Error)?) {}

    /// Does nothing.
    public func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {}

    /// Does nothing.
    public func peripheral(
        _ peripheral: CBPeripheral, didDiscoverIncludedServicesFor service: CBService, error: (any Error)?
    ) {}

    /// Does nothing.
    public func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {}

    /// Does nothing.
    public func peripheral(
        _ peripheral: CBPeripheral, didDiscoverDescriptorsFor characteristic: CBCharacteristic, error: (any Error)?
    ) {}

    /// Does nothing.
    public func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {}

    /// Does nothing.
    public func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor descriptor: CBDescriptor, error: (any Error)?
    ) {}

    /// Does nothing.
    public func peripheral(
        _ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {}

    /// Does nothing.
    public func peripheral(
        _ peripheral: CBPeripheral, didWriteValueFor descriptor: CBDescriptor, error: (any Error)?
    ) {}

    /// Does nothing.
    public func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: (any Error)?
    ) {}

    /// Does nothing.
    public func peripheralIsReady(toSendWriteWithoutResponse peripheral: CBPeripheral) {}

    /// Does nothing.
    public func peripheral(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {}
}
