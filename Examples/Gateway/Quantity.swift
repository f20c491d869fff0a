import BluezKitProfiles
import CoreBluetooth
import Foundation

/// What a characteristic measures, if its format is known.
struct Quantity: Sendable {
    let name: String
    /// Nil: a number without a unit.
    let unit: String?
    /// Of Home Assistant, which chooses the icon and converts units by it.
    let deviceClass: String?
    private let read: @Sendable (Data) -> Double?

    init?(of characteristic: CBUUID) {
        switch characteristic {
        case HeartRateMeasurement.uuid:
            self.init("Heart rate", "bpm") { (try? HeartRateMeasurement($0)).map { Double($0.beatsPerMinute) } }
        case BatteryLevel.uuid:
            self.init("Battery", "%", "battery") { (try? BatteryLevel($0)).map { Double($0.percent) } }
        case TemperatureMeasurement.uuid, HealthThermometer.intermediateTemperature:
            self.init("Temperature", "°C", "temperature") { (try? TemperatureMeasurement($0))?.celsius }
        default:
            guard let quantity = EnvironmentalQuantity(characteristic) else { return nil }
            let name = quantity.name.prefix(1).uppercased() + quantity.name.dropFirst()
            self.init(name, quantity.unit.isEmpty ? nil : quantity.unit, Self.deviceClass(of: quantity)) {
                (try? EnvironmentalReading(quantity, $0))?.value
            }
        }
    }

    private init(
        _ name: String, _ unit: String?, _ deviceClass: String? = nil, _ read: @escaping @Sendable (Data) -> Double?
    ) { (self.name, self.unit, self.deviceClass, self.read) = (name, unit, deviceClass, read) }

    /// Nil: the peripheral does not know it, or has sent something else. JSON has no infinity.
    func number(_ value: Data) -> Double? { read(value).flatMap { $0.isFinite ? $0 : nil } }

    private static func deviceClass(of quantity: EnvironmentalQuantity) -> String? {
        switch quantity {
        case .temperature, .dewPoint, .heatIndex, .windChill: "temperature"
        case .humidity: "humidity"
        case .pressure: "pressure"
        case .irradiance: "irradiance"
        case .apparentWindSpeed, .trueWindSpeed: "wind_speed"
        default: nil
        }
    }
}
