public import BluezKit
import Foundation

/// The Current Time service, 1805: tells centrals what time it is. They cannot set it. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Current Time Service 1.1.
public final class CurrentTimeService: StandardService {
    /// 1805.
    public static let uuid = CBUUID(string: "1805")

    /// For `CBPeripheralManager.add(_:)`.
    public let service = makeService()

    private let timeZone: TimeZone
    private let clock: () -> Date
    private let reference: (() -> ReferenceTimeInformation)?
    private let time = CBMutableCharacteristic(
        type: CurrentTime.uuid, properties: [.read, .notify], value: nil, permissions: .readable)

    /// A clock.
    /// - Parameters:
    ///   - timeZone: Where it is.
    ///   - reference: How far it can be trusted, at the moment that a central asks; nil: it does not say.
    ///   - clock: What time it is, at the moment that a central asks.
    public init(
        timeZone: TimeZone = .autoupdatingCurrent, reference: (() -> ReferenceTimeInformation)? = nil,
        clock: @escaping () -> Date = { Date() }
    ) {
        (self.timeZone, self.reference, self.clock) = (timeZone, reference, clock)
        let others = [LocalTimeInformation.uuid] + (reference == nil ? [] : [ReferenceTimeInformation.uuid])
        service.characteristics =
            [time]
            + others.map { CBMutableCharacteristic(type: $0, properties: .read, value: nil, permissions: .readable) }
    }

    /// Tells the centrals that subscribed that the clock, or the time zone, is another one now.
    /// - Parameters:
    ///   - reason: Why.
    ///   - manager: The manager that the service was added to.
    /// - Returns: What `updateValue` did: false if there was no room.
    @discardableResult
    public func announce(_ reason: CurrentTime.AdjustReason, by manager: CBPeripheralManager) -> Bool {
        let now = CurrentTime(clock(), in: timeZone, adjustReason: reason)
        return manager.updateValue(now.data, for: time, onSubscribedCentrals: nil)
    }

    /// The time, and what is known of it, now.
    public func value(of characteristic: CBCharacteristic) -> Data? {
        switch characteristic.uuid {
        case CurrentTime.uuid: CurrentTime(clock(), in: timeZone).data
        case LocalTimeInformation.uuid: LocalTimeInformation(timeZone, at: clock()).data
        case ReferenceTimeInformation.uuid: reference?().data
        default: nil
        }
    }
}
