public import BluezKit
import Foundation

/// The charge level of a battery, characteristic 2A19. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Battery Service 1.0, 3.1; GATT Specification Supplement, "Battery Level".
public struct BatteryLevel: CharacteristicValue, Hashable {
    /// 2A19.
    public static let uuid = CBUUID(string: "2A19")

    /// 0 to 100.
    public let percent: Int

    /// A level. Values below 0 % become 0 %, values above 100 % become 100 %, because gauges are inexact.
    public init(percent: Int) { self.percent = min(max(percent, 0), 100) }

    /// Reads a level.
    public init(_ value: Data?) throws(CharacteristicValueError) {
        var fields = try FieldReader(value)
        percent = try fields.uint8("battery level", in: 0...100)
    }

    /// The level as transmitted.
    public var data: Data { Data([UInt8(percent)]) }
}
