public import BluezKit
import Foundation

/// A command to a heart-rate sensor, characteristic 2A39; written with response. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Heart Rate Service 1.0, 3.3; GATT Specification Supplement, "Heart Rate Control Point".
public enum HeartRateControlPoint: UInt8, CharacteristicValue, CaseIterable {
    /// Reset the energy expended to 0. This is the only command.
    case resetEnergyExpended = 1

    /// 2A39. Sensors that do not measure energy do not have it.
    public static let uuid = CBUUID(string: "2A39")

    /// A sensor's answer to an unknown command: the application error 0x80.
    public static var notSupported: CBATTError.Code {
        // `!`: an enum that is imported from C takes every number.
        CBATTError.Code(rawValue: 0x80)!
    }

    /// Reads a command.
    public init(_ value: Data?) throws(CharacteristicValueError) {
        var fields = try FieldReader(value)
        self = try fields.one("heart rate control point", of: Self.self)
        try fields.end()
    }

    /// The command as transmitted.
    public var data: Data { Data([rawValue]) }
}
