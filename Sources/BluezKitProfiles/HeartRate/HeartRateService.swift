public import BluezKit
import Foundation

/// The Heart Rate service, 180D: measurements by notification, the sensor location, and resetting the energy expended.
/// BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Heart Rate Service 1.0.
public final class HeartRateService: StandardService {
    /// 180D.
    public static let uuid = CBUUID(string: "180D")

    /// For `CBPeripheralManager.add(_:)`.
    public var service = makeService() {
        didSet { measurement = characteristic(HeartRateMeasurement.uuid) ?? measurement }
    }

    /// Its `subscribedCentrals` receive the measurements.
    public private(set) var measurement = CBMutableCharacteristic(
        type: HeartRateMeasurement.uuid, properties: .notify, value: nil, permissions: .readable)

    private let resetEnergyExpended: (() -> Void)?

    /// A heart-rate sensor.
    /// - Parameters:
    ///   - location: Where the sensor is worn; nil: not available.
    ///   - resetEnergyExpended: Called if a central requests that the energy is reset to 0, on the queue that calls
    ///     `answer(_:of:)`. Required for sensors that send the energy; nil: not supported.
    public init(location: BodySensorLocation? = nil, resetEnergyExpended: (() -> Void)? = nil) {
        self.resetEnergyExpended = resetEnergyExpended
        let controlPoint = resetEnergyExpended.map { _ in
            CBMutableCharacteristic(
                type: HeartRateControlPoint.uuid, properties: .write, value: nil, permissions: .writeable)
        }
        let place = location.map {
            CBMutableCharacteristic(
                type: BodySensorLocation.uuid, properties: .read, value: $0.data, permissions: .readable)
        }
        service.characteristics = [measurement, place, controlPoint].compactMap(\.self)
    }

    /// Sends a measurement to all subscribed centrals, without the oldest RR intervals if it is too long for one.
    /// - Returns: The result of `updateValue`: false if there was no room. It need not be repeated: send the next
    ///   measurement.
    @discardableResult
    public func send(_ measurement: HeartRateMeasurement, by manager: CBPeripheralManager) -> Bool {
        let room = self.measurement.subscribedCentrals?.map(\.maximumUpdateValueLength).min() ?? 20
        return manager.updateValue(measurement.fitting(room).data, for: self.measurement, onSubscribedCentrals: nil)
    }

    /// Handles a write to the control point.
    public func write(_ value: Data, to characteristic: CBCharacteristic) -> CBATTError.Code {
        guard characteristic.uuid == HeartRateControlPoint.uuid else { return .writeNotPermitted }
        switch try? HeartRateControlPoint(value) {
        case .resetEnergyExpended:
            resetEnergyExpended?()
            return .success
        case nil: return HeartRateControlPoint.notSupported
        }
    }
}
