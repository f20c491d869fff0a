public import BluezKit
import Foundation

/// The unique identifier of a device: characteristic 2A23. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Device Information Service 1.1, 3.7; GATT Specification Supplement, "System ID".
public struct SystemID: CharacteristicValue, Hashable {
    /// 2A23.
    public static let uuid = CBUUID(string: "2A23")

    /// The manufacturer's identifier, assigned by the IEEE (OUI), 24 bits.
    public let organization: UInt32
    /// The device's identifier, assigned by the manufacturer, 40 bits.
    public let device: UInt64

    /// An ID; nil if a number has too many bits.
    /// - Parameters:
    ///   - organization: 24 bits.
    ///   - device: 40 bits.
    public init?(organization: UInt32, device: UInt64) {
        guard organization >> 24 == 0, device >> 40 == 0 else { return nil }
        (self.organization, self.device) = (organization, device)
    }

    /// Reads an ID.
    public init(_ value: Data?) throws(CharacteristicValueError) {
        var fields = try FieldReader(value)
        device = try fields.number("manufacturer-defined identifier", bytes: 5)
        organization = UInt32(truncatingIfNeeded: try fields.number("organizationally unique identifier", bytes: 3))
    }

    /// The ID as transmitted.
    public var data: Data {
        var data = Data()
        data.append(number: device, bytes: 5)
        data.append(number: organization, bytes: 3)
        return data
    }
}
