public import BluezKit
import Foundation

/// What the Environmental Sensing service measures, one number each. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Environmental Sensing Service 1.0, 3.1; GATT Specification Supplement, the characteristic
///   of the same name.
public enum EnvironmentalQuantity: CaseIterable, Sendable {
    /// A quantity. ``unit`` says in what ``EnvironmentalReading/value`` is; the trend of the barometric pressure is a
    /// number from 0 (unknown) to 9 of the Supplement's table.
    case apparentWindDirection, apparentWindSpeed, barometricPressureTrend, dewPoint, elevation, gustFactor, heatIndex,
        humidity, irradiance, magneticDeclination, pollenConcentration, pressure, rainfall, temperature,
        trueWindDirection, trueWindSpeed, ultravioletIndex, windChill

    /// The quantity in this characteristic; nil: not one of them.
    public init?(_ uuid: CBUUID) {
        guard let quantity = Self.allCases.first(where: { $0.uuid == uuid }) else { return nil }
        self = quantity
    }

    /// The characteristic.
    public var uuid: CBUUID { row.uuid }
    /// The unit in words or symbols: `°C`, `Pa`; empty for numbers without a unit.
    public var unit: String { row.unit }
    /// The quantity in words: `dew point`.
    public var name: String { row.name }
    /// What the value is rounded to: 0.01 for a temperature.
    public var resolution: Double { 1 / row.perUnit }

    struct Row: Sendable {
        let uuid: CBUUID
        let name: String
        let bytes: Int
        let isSigned: Bool
        /// Steps in one unit.
        let perUnit: Double
        let unit: String
        /// In steps.
        let range: ClosedRange<Int64>
        /// The number that means: unknown.
        let unknown: Int64?

        init(
            _ uuid: String, _ name: String, _ bytes: Int, signed: Bool = false, per perUnit: Double = 1, _ unit: String,
            _ range: ClosedRange<Int64>? = nil, unknown: Int64? = nil
        ) {
            (self.uuid, self.name, self.bytes, isSigned) = (CBUUID(string: uuid), name, bytes, signed)
            (self.perUnit, self.unit, self.unknown) = (perUnit, unit, unknown)
            let all: Int64 = 1 << (8 * bytes)
            self.range = range ?? (signed ? -all / 2...all / 2 - 1 : 0...all - 1)
        }
    }

    var row: Row {
        switch self {
        case .apparentWindDirection: Self.rows[0]
        case .apparentWindSpeed: Self.rows[1]
        case .barometricPressureTrend: Self.rows[2]
        case .dewPoint: Self.rows[3]
        case .elevation: Self.rows[4]
        case .gustFactor: Self.rows[5]
        case .heatIndex: Self.rows[6]
        case .humidity: Self.rows[7]
        case .irradiance: Self.rows[8]
        case .magneticDeclination: Self.rows[9]
        case .pollenConcentration: Self.rows[10]
        case .pressure: Self.rows[11]
        case .rainfall: Self.rows[12]
        case .temperature: Self.rows[13]
        case .trueWindDirection: Self.rows[14]
        case .trueWindSpeed: Self.rows[15]
        case .ultravioletIndex: Self.rows[16]
        case .windChill: Self.rows[17]
        }
    }

    private static let rows = [
        Row("2A73", "apparent wind direction", 2, per: 100, "°", 0...35_999),
        Row("2A72", "apparent wind speed", 2, per: 100, "m/s"),
        Row("2AA3", "barometric pressure trend", 1, "", 0...9),
        Row("2A7B", "dew point", 1, signed: true, "°C"),
        Row("2A6C", "elevation", 3, signed: true, per: 100, "m"),
        Row("2A74", "gust factor", 1, per: 10, ""),
        Row("2A7A", "heat index", 1, signed: true, "°C"),
        Row("2A6F", "humidity", 2, per: 100, "%", 0...10_000, unknown: 0xFFFF),
        Row("2A77", "irradiance", 2, per: 10, "W/m²"),
        Row("2A2C", "magnetic declination", 2, per: 100, "°", 0...35_999),
        Row("2A75", "pollen concentration", 3, "1/m³"),
        Row("2A6D", "pressure", 4, per: 10, "Pa"),
        Row("2A78", "rainfall", 2, "mm"),
        Row("2A6E", "temperature", 2, signed: true, per: 100, "°C", -27_315...32_767, unknown: -32_768),
        Row("2A71", "true wind direction", 2, per: 100, "°", 0...35_999),
        Row("2A70", "true wind speed", 2, per: 100, "m/s"),
        Row("2A76", "ultraviolet index", 1, ""),
        Row("2A79", "wind chill", 1, signed: true, "°C"),
    ]
}

/// A reading of an environmental sensor. BluezKit addition.
///
/// ```swift
/// if let quantity = EnvironmentalQuantity(characteristic.uuid),
///     let value = try? EnvironmentalReading(quantity, characteristic.value).value
/// {
///     print(quantity.name, value, quantity.unit)
/// }
/// ```
public struct EnvironmentalReading: Hashable, Sendable {
    /// What was measured.
    public let quantity: EnvironmentalQuantity
    /// As transmitted, in units of ``EnvironmentalQuantity/resolution``: also a number that means "unknown", and one
    /// that the Bluetooth SIG has reserved, such as the 10,300 of a humidity sensor with an offset.
    public let number: Int64

    /// In ``EnvironmentalQuantity/unit``; nil: the sensor does not know it, or its number is reserved.
    public var value: Double? {
        let row = quantity.row
        return row.range.contains(number) && number != row.unknown ? Double(number) / row.perUnit : nil
    }

    /// A reading, rounded to ``EnvironmentalQuantity/resolution``; nil if it is out of range.
    /// - Parameters:
    ///   - quantity: What was measured.
    ///   - value: In ``EnvironmentalQuantity/unit``; nil: unknown, which only temperature and humidity have.
    public init?(_ quantity: EnvironmentalQuantity, _ value: Double?) {
        self.quantity = quantity
        guard let value else {
            guard let unknown = quantity.row.unknown else { return nil }
            number = unknown
            return
        }
        guard let steps = Int64(exactly: (value * quantity.row.perUnit).rounded()), quantity.row.range.contains(steps)
        else { return nil }
        number = steps
    }

    /// What a server has before its first reading: unknown, or 0.
    init(initial quantity: EnvironmentalQuantity) {
        (self.quantity, number) = (quantity, quantity.row.unknown ?? 0)
    }

    /// Reads a reading as it was received.
    public init(_ quantity: EnvironmentalQuantity, _ value: Data?) throws(CharacteristicValueError) {
        var fields = try FieldReader(value)
        let row = quantity.row
        let bits = Int64(try fields.number(row.name, bytes: row.bytes))  // at most four bytes
        number = row.isSigned && bits >> (8 * row.bytes - 1) == 1 ? bits - 1 << (8 * row.bytes) : bits
        self.quantity = quantity
    }

    /// The reading as transmitted.
    public var data: Data {
        let row = quantity.row
        var data = Data()
        data.append(number: UInt64(truncatingIfNeeded: number), bytes: row.bytes)
        return data
    }
}
