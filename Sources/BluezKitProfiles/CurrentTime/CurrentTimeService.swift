public import BluezKit
import Foundation

/// The Current Time service, 1805, which tells centrals the time. They cannot set it. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Current Time Service 1.1.
public final class CurrentTimeService: StandardService {
    /// 1805.
    public static let uuid = CBUUID(string: "1805")

    /// For `CBPeripheralManager.add(_:)`.
    public var service = makeService()

    private let timeZone: TimeZone
    private let clock: () -> Date
    private let reference: (() -> ReferenceTimeInformation)?

    /// A clock.
    /// - Parameters:
    ///   - timeZone: The time zone of the clock.
    ///   - reference: The accuracy of the clock when a central reads it; nil: not available.
    ///   - clock: The time when a central reads it.
    public init(
        timeZone: TimeZone = .autoupdatingCurrent, reference: (() -> ReferenceTimeInformation)? = nil,
        clock: @escaping () -> Date = { Date() }
    ) {
        (self.timeZone, self.reference, self.clock) = (timeZone, reference, clock)
        let time = CBMutableCharacteristic(
            type: CurrentTime.uuid, properties: [.read, .notify], value: nil, permissions: .readable)
        let others = [LocalTimeInformation.uuid] + (reference == nil ? [] : [ReferenceTimeInformation.uuid])
        service.characteristics =
            [time]
            + others.map { CBMutableCharacteristic(type: $0, properties: .read, value: nil, permissions: .readable) }
    }

    /// Notifies the subscribed centrals that the clock, or the time zone, has changed.
    /// - Parameters:
    ///   - reason: Why it has changed.
    ///   - manager: The manager to which the service was added.
    /// - Returns: The result of `updateValue`: false if there was no room.
    @discardableResult
    public func announce(_ reason: CurrentTime.AdjustReason, by manager: CBPeripheralManager) -> Bool {
        guard let time = characteristic(CurrentTime.uuid) else { return true }
        let now = CurrentTime(clock(), in: timeZone, adjustReason: reason)
        return manager.updateValue(now.data, for: time, onSubscribedCentrals: nil)
    }

    /// The current time and its accuracy.
    public func value(of characteristic: CBCharacteristic) -> Data? {
        switch characteristic.uuid {
        case CurrentTime.uuid: CurrentTime(clock(), in: timeZone).data
        case LocalTimeInformation.uuid: LocalTimeInformation(timeZone, at: clock()).data
        case ReferenceTimeInformation.uuid: reference?().data
        default: nil
        }
    }
}
