public import BluezKit
import Foundation

/// The Battery service, 180F: a level that is read, and notified when it changes. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Battery Service 1.0.
public final class BatteryService: StandardService {
    /// 180F.
    public static let uuid = CBUUID(string: "180F")

    /// For `CBPeripheralManager.add(_:)`.
    public var service = makeService()

    /// The value that a central reads.
    public private(set) var level: BatteryLevel

    /// A battery.
    /// - Parameter level: The current level.
    public init(level: BatteryLevel) {
        self.level = level
        service.characteristics = [
            CBMutableCharacteristic(
                type: BatteryLevel.uuid, properties: [.read, .notify], value: nil, permissions: .readable)
        ]
    }

    /// Sets the level. Centrals that read get it from now on; it is sent to subscribed centrals.
    /// - Returns: The result of `updateValue`: false if there was no room; true if the level has not changed.
    @discardableResult
    public func update(_ level: BatteryLevel, by manager: CBPeripheralManager) -> Bool {
        guard level != self.level, let characteristic = characteristic(BatteryLevel.uuid) else { return true }
        self.level = level
        return manager.updateValue(level.data, for: characteristic, onSubscribedCentrals: nil)
    }

    /// The level.
    public func value(of characteristic: CBCharacteristic) -> Data? { level.data }
}
