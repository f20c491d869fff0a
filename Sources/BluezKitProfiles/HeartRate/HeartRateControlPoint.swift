public import BluezKit
import Foundation

/// A command to a heart-rate sensor, characteristic 2A39; written with response. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Heart Rate Service 1.0, 3.3; GATT Specification Supplement, "Heart Rate Control Point".
public enum HeartRateControlPoint: UInt8, CharacteristicValue, CaseIterable {
    /// Begin to count the energy from 0 again. The only command there is.
    case resetEnergyExpended = 1

    /// 2A39. Sensors that do not count energy do not have it.
    public static let uuid = CBUUID(string: "2A39")

    /// What a sensor answers to a command that it does not know: the application error 0x80.
    public static var notSupported: CBATTError.Code {
        // `!`: an enum that is imported from C takes every number.
        CBATTError.Code(rawValue: 0x80)!
    }

    /// Reads a command.
    public init(_ value: Data?) throws(CharacteristicValueError) {
        var fields = try FieldReader(value)
        self = try fields.one("heart rate control point", of: Self.self)
    }

    /// The command as it goes on air.
    public var data: Data { Data([rawValue]) }
}
