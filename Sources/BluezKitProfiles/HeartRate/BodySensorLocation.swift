public import BluezKit
import Foundation

/// Where a heart-rate sensor is worn, characteristic 2A38. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Heart Rate Service 1.0, 3.2; GATT Specification Supplement, "Body Sensor Location".
public enum BodySensorLocation: UInt8, CharacteristicValue, CaseIterable, CustomStringConvertible {
    /// A place on the body.
    case other, chest, wrist, finger, hand, earLobe, foot

    /// 2A38.
    public static let uuid = CBUUID(string: "2A38")

    /// Reads a location.
    public init(_ value: Data?) throws(CharacteristicValueError) {
        var fields = try FieldReader(value)
        self = try fields.one("body sensor location", of: Self.self)
    }

    /// The location as transmitted.
    public var data: Data { Data([rawValue]) }

    /// The location in words: `ear lobe`.
    public var description: String {
        switch self {
        case .other: "other"
        case .chest: "chest"
        case .wrist: "wrist"
        case .finger: "finger"
        case .hand: "hand"
        case .earLobe: "ear lobe"
        case .foot: "foot"
        }
    }
}
