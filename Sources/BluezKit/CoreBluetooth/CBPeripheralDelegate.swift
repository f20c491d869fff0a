public import Foundation

/// Receives the events of a ``CBPeripheral``, on the queue of its manager, one at a time and in order.
///
/// Each request gets exactly one answer, in the order of the requests, unless the link ends: then it gets none. All
/// methods are optional.
/// - Important: On Linux, a method whose name or types differ slightly is a different method: it compiles, but is never
///   called. Also, if a class conforms without a method that its *subclass* adds, the subclass' method is not called
///   either: give the base class an empty method and override that.
/// - SeeAlso: Apple, `CBPeripheralDelegate`.
public protocol CBPeripheralDelegate: NSObjectProtocol {
    /// `name` has changed.
    func peripheralDidUpdateName(_ peripheral: CBPeripheral)

    /// The peripheral has changed its attribute table. These services, and everything in them, are invalid, and are not
    /// in ``CBPeripheral/services`` any more; discover again to find their replacements. Other services stay valid,
    /// with their subscriptions (IV-1). Services that are only new are not announced.
    ///
    /// ```swift
    /// func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {
    ///     peripheral.discoverServices(invalidatedServices.map(\.uuid))
    /// }
    /// ```
    func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService])

    /// Deprecated since iOS 8: answers `readRSSI()` as well, after `peripheral(_:didReadRSSI:error:)`, with the
    /// strength in `peripheral.rssi`.
    func peripheralDidUpdateRSSI(_ peripheral: CBPeripheral, error: (any Error)?)

    /// Answers ``CBPeripheral/readRSSI()``: signal strength in dBm. It has no meaning if there is an error.
    func peripheral(_ peripheral: CBPeripheral, didReadRSSI RSSI: NSNumber, error: (any Error)?)

    /// Answers ``CBPeripheral/discoverServices(_:)``: `services` is not nil, unless there is an error, and empty if the
    /// peer has none of those that were asked for.
    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?)

    /// Answers ``CBPeripheral/discoverIncludedServices(_:for:)``: `service.includedServices` is not nil, unless there
    /// is an error.
    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverIncludedServicesFor service: CBService, error: (any Error)?)

    /// Answers ``CBPeripheral/discoverCharacteristics(_:for:)``: `service.characteristics` is not nil, unless there is
    /// an error.
    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?)

    /// Answers ``CBPeripheral/discoverDescriptors(for:)``: `characteristic.descriptors` is not nil, unless there is an
    /// error.
    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverDescriptorsFor characteristic: CBCharacteristic, error: (any Error)?)

    /// Answers `readValue(for:)`, and reports each notification and indication: `characteristic.value` is the value of
    /// this event. If there is an error it is unchanged.
    ///
    /// The answer to a read cannot be told from a notification (RW-3). Values come from outside: check the length of
    /// each before you use its bytes.
    ///
    /// ```swift
    /// func peripheral(
    ///     _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    /// ) {
    ///     if let error { return print("\(characteristic.uuid): \(error.localizedDescription)") }
    ///     guard let value = characteristic.value, value.count >= 2 else { return }
    ///     print(Int16(bitPattern: UInt16(value[0]) | UInt16(value[1]) << 8))  // little endian, as usual in GATT
    /// }
    /// ```
    func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?)

    /// Answers `readValue(for:)` of a descriptor: `descriptor.value` is the value.
    func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor descriptor: CBDescriptor, error: (any Error)?)

    /// Answers ``CBPeripheral/writeValue(_:for:type:)`` with response. The write does not change
    /// `characteristic.value`.
    func peripheral(_ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?)

    /// Answers ``CBPeripheral/writeValue(_:for:)`` of a descriptor. The write does not change `descriptor.value`.
    func peripheral(_ peripheral: CBPeripheral, didWriteValueFor descriptor: CBDescriptor, error: (any Error)?)

    /// Answers ``CBPeripheral/setNotifyValue(_:for:)``, whether on or off: see `characteristic.isNotifying`. Called
    /// before the first value. If there is an error, the app is not subscribed. It is also called, with an error, where
    /// a subscription that was restored, or that another program has ended, cannot be made again.
    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: (any Error)?)

    /// ``CBPeripheral/canSendWriteWithoutResponse`` was false, and is true again. Called once each time; not called if
    /// it was never false, so begin to write without waiting for it.
    func peripheralIsReady(toSendWriteWithoutResponse peripheral: CBPeripheral)

    /// Answers ``CBPeripheral/openL2CAPChannel(_:)``. Exactly one of `channel` and `error` is not nil. Keep the
    /// channel: releasing it closes it. Its streams are not open yet: see ``CBL2CAPChannel``.
    func peripheral(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: (any Error)?)
}

// Methods that Apple's protocol declares optional. The defaults do nothing, so a delegate may forward every call to
// another one.
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
