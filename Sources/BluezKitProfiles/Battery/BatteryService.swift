public import BluezKit
import Foundation

/// The Battery service, 180F: a level that is read, and notified when it changes; and whatever else is known of the
/// battery. BluezKit addition.
///
/// ```swift
/// let battery = BatteryService(level: BatteryLevel(percent: 80), including: [BatteryLevelStatus.uuid])
/// battery.set(BatteryLevelStatus { ($0.isPresent, $0.chargeState) = (true, .charging) })
/// manager.add(battery.service)
/// ```
/// - SeeAlso: Bluetooth SIG, Battery Service 1.1.
public final class BatteryService: StandardService {
    /// 180F.
    public static let uuid = Characteristics.uuid

    private enum Characteristics: ServiceProfile {
        static let uuid = CBUUID(string: "180F")
        static let characteristics = [
            ProfileCharacteristic(BatteryLevel.uuid, [.read, .notify]),
            ProfileCharacteristic(BatteryLevelStatus.self, [.read, .notify], isOptional: true),
            ProfileCharacteristic(EstimatedServiceDate.self, [.read, .notify], isOptional: true),
            ProfileCharacteristic(BatteryCriticalStatus.self, [.read, .indicate], isOptional: true),
            ProfileCharacteristic(BatteryEnergyStatus.self, [.read, .notify], isOptional: true),
            ProfileCharacteristic(BatteryTimeStatus.self, [.read, .notify], isOptional: true),
            ProfileCharacteristic(BatteryHealthStatus.self, [.read, .notify], isOptional: true),
            ProfileCharacteristic(BatteryHealthInformation.self, .read, isOptional: true),
            ProfileCharacteristic(BatteryInformation.self, .read, isOptional: true),
        ]
    }

    private let profile: ProfileService<Characteristics>
    /// There was no room for the level.
    private var isUnsent = false

    /// For `CBPeripheralManager.add(_:)`.
    public var service: CBMutableService {
        get { profile.service }
        set { profile.service = newValue }
    }

    /// The value that a central reads.
    public private(set) var level: BatteryLevel

    /// A battery.
    /// - Parameter level: The current level.
    public init(level: BatteryLevel) {
        (self.level, profile) = (level, ProfileService())
        profile.set(level)
    }

    /// A battery of which more is known.
    /// - Parameters:
    ///   - level: The current level.
    ///   - optional: What else it has, such as `BatteryLevelStatus.uuid`.
    public init(level: BatteryLevel, including optional: [CBUUID]) {
        (self.level, profile) = (level, ProfileService(including: optional))
        profile.set(level)
    }

    /// Sets the level. Centrals that read get it from now on; it is sent to subscribed centrals.
    /// - Returns: The result of `updateValue`: false if there was no room, until it is called again with room; true if
    ///   the level has not changed.
    @discardableResult
    public func update(_ level: BatteryLevel, by manager: CBPeripheralManager) -> Bool {
        guard level != self.level || isUnsent else { return true }
        self.level = level
        isUnsent = !profile.send(level, by: manager)
        return !isUnsent
    }

    /// Sets what else centrals read.
    public func set<V: StructuredValue>(_ value: V) { profile.set(value) }

    /// Sets what else centrals read, and sends it to subscribed centrals.
    /// - Returns: The result of `updateValue`: false if there was no room; or if the service does not have the
    ///   characteristic.
    @discardableResult
    public func send<V: StructuredValue>(_ value: V, by manager: CBPeripheralManager) -> Bool {
        profile.send(value, by: manager)
    }

    /// What was set or sent last.
    public func value(of characteristic: CBCharacteristic) -> Data? { profile.value(of: characteristic) }
}
