public import BluezKit
import Foundation

/// A service of the Bluetooth SIG as a table of its characteristics. BluezKit addition.
public protocol ServiceProfile {
    /// Names the service, for scans, advertisements and discovery.
    static var uuid: CBUUID { get }

    /// The characteristics, in the order of the service's specification.
    static var characteristics: [ProfileCharacteristic] { get }
}

/// A characteristic in the table of a ``ServiceProfile``. BluezKit addition.
public struct ProfileCharacteristic: Sendable {
    /// The characteristic.
    public let uuid: CBUUID
    /// What a central can do with it.
    public let properties: CBCharacteristicProperties
    /// A server can leave it out.
    public let isOptional: Bool
    /// What a central reads until the app has set a value.
    public let initialValue: Data?

    /// A row of the table.
    public init(
        _ uuid: CBUUID, _ properties: CBCharacteristicProperties, isOptional: Bool = false, initialValue: Data? = nil
    ) {
        (self.uuid, self.properties) = (uuid, properties)
        (self.isOptional, self.initialValue) = (isOptional, initialValue)
    }

    /// A row for values of a type. If it can be read, that is the value without any field set.
    public init<V: StructuredValue>(
        _ type: V.Type, _ properties: CBCharacteristicProperties, isOptional: Bool = false
    ) {
        let value = properties.contains(.read) ? V().data : nil
        self.init(V.uuid, properties, isOptional: isOptional, initialValue: value)
    }
}

/// The server side of a service that a ``ServiceProfile`` describes. BluezKit addition.
///
/// ```swift
/// let thermometer = HealthThermometerService(including: [TemperatureType.uuid])
/// thermometer.set(TemperatureType.ear)
/// manager.add(thermometer.service)
/// thermometer.send(TemperatureMeasurement { $0.temperature = MedFloat(36.6) }, by: manager)
/// ```
///
/// Use one object with one manager, and only on that manager's queue.
public final class ProfileService<Profile: ServiceProfile>: StandardService {
    /// That of the profile.
    public static var uuid: CBUUID { Profile.uuid }

    /// For `CBPeripheralManager.add(_:)`.
    public var service = makeService()

    private var values: [CBUUID: Data] = [:]
    private var handlers: [CBUUID: (Data) -> CBATTError.Code] = [:]

    /// A service.
    /// - Parameters:
    ///   - optional: The optional characteristics that it has.
    ///   - requiresEncryption: Only centrals with an encrypted link can use the characteristics. What a central wants
    ///     without pairs it, which the services for health data require.
    public init(including optional: [CBUUID] = [], requiresEncryption: Bool = false) {
        let rows = Profile.characteristics.filter { !$0.isOptional || optional.contains($0.uuid) }
        service.characteristics = rows.map { row in
            if row.properties.contains(.read) { values[row.uuid] = row.initialValue }
            var (properties, permissions) = (row.properties, CBAttributePermissions())
            if !properties.isDisjoint(with: [.read, .notify, .indicate]) {
                permissions.insert(requiresEncryption ? .readEncryptionRequired : .readable)
            }
            if !properties.isDisjoint(with: [.write, .writeWithoutResponse]) {
                permissions.insert(requiresEncryption ? .writeEncryptionRequired : .writeable)
            }
            if requiresEncryption, properties.contains(.notify) { properties.insert(.notifyEncryptionRequired) }
            if requiresEncryption, properties.contains(.indicate) { properties.insert(.indicateEncryptionRequired) }
            return CBMutableCharacteristic(type: row.uuid, properties: properties, value: nil, permissions: permissions)
        }
    }

    /// Sets what centrals read.
    public func set<V: CharacteristicValue>(_ value: V) { values[V.uuid] = value.data }

    /// Notifies or indicates a value to all subscribed centrals, and sets what centrals read if they can read it.
    /// - Parameters:
    ///   - value: The value. Its end is cut off for centrals with a `maximumUpdateValueLength` below its length.
    ///   - uuid: The characteristic, if it is not the one that the type names: Intermediate Temperature (2A1E) and
    ///     Intermediate Cuff Pressure (2A36) have the layout of the final measurement.
    ///   - manager: The manager to which the service was added.
    /// - Returns: The result of `updateValue`: false if there was no room; or if the service does not have the
    ///   characteristic.
    @discardableResult
    public func send<V: CharacteristicValue>(
        _ value: V, of uuid: CBUUID = V.uuid, by manager: CBPeripheralManager
    ) -> Bool {
        send(value.data, of: uuid, by: manager)
    }

    /// Notifies or indicates bytes to all subscribed centrals, and sets what centrals read if they can read it.
    /// - Returns: The result of `updateValue`: false if there was no room; or if the service does not have the
    ///   characteristic.
    @discardableResult
    public func send(_ value: Data, of uuid: CBUUID, by manager: CBPeripheralManager) -> Bool {
        guard let characteristic = characteristic(uuid) else { return false }
        if characteristic.properties.contains(.read) { values[uuid] = value }
        return manager.updateValue(value, for: characteristic, onSubscribedCentrals: nil)
    }

    /// Sets what happens with writes. Without it they are refused. Values that cannot be read are refused with "value
    /// not allowed" (0x13); with "invalid attribute value length" if they are too short or, for a control point, too
    /// long; and with the application error 0x81 if their checksum is wrong.
    /// - Parameters:
    ///   - type: The type of the values that are written.
    ///   - handler: Returns the result to respond with. Called on the queue that calls `answer(_:of:)`. The service
    ///     should not be held by it.
    public func onWrite<V: CharacteristicValue>(of type: V.Type, _ handler: @escaping (V) -> CBATTError.Code) {
        onWrite(of: V.uuid) { value in
            do throws(CharacteristicValueError) {
                return handler(try V(value))
            } catch {
                return switch error {
                case .truncated, .trailing: .invalidAttributeValueLength
                // `!`: an enum that is imported from C takes every number. 0x81 is that of glucose sensors.
                case .checksum: CBATTError.Code(rawValue: 0x81)!
                // `!`: likewise
                case .missing, .reserved: CBATTError.Code(rawValue: 0x13)!
                }
            }
        }
    }

    /// Sets what happens with writes of any bytes. Without it they are refused.
    /// - Parameters:
    ///   - uuid: The characteristic.
    ///   - handler: Returns the result to respond with. Called on the queue that calls `answer(_:of:)`.
    public func onWrite(of uuid: CBUUID, _ handler: @escaping (Data) -> CBATTError.Code) { handlers[uuid] = handler }

    /// What was set or sent last, or what a central has written.
    public func value(of characteristic: CBCharacteristic) -> Data? { values[characteristic.uuid] }

    /// Handles a write.
    public func write(_ value: Data, to characteristic: CBCharacteristic) -> CBATTError.Code {
        guard let handler = handlers[characteristic.uuid] else { return .writeNotPermitted }
        let result = handler(value)
        if result == .success, characteristic.properties.contains(.read) { values[characteristic.uuid] = value }
        return result
    }
}
