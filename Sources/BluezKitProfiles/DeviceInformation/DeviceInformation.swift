public import BluezKit
import Foundation

/// Information about a device. BluezKit addition.
///
/// A client collects it: discover ``DeviceInformationService``, read ``characteristics``, and pass each value to
/// ``take(_:)``. A server passes it to ``DeviceInformationService/init(_:)``.
/// - SeeAlso: Bluetooth SIG, Device Information Service 1.1.
public struct DeviceInformation: Equatable, Sendable {
    /// The texts that are known.
    public var texts: [DeviceInformationText: String]
    /// The unique identifier of the device.
    public var systemID: SystemID?
    /// The product, vendor and version.
    public var pnpID: PnPID?

    /// Information with these values; all are optional.
    public init(_ texts: [DeviceInformationText: String] = [:], systemID: SystemID? = nil, pnpID: PnPID? = nil) {
        (self.texts, self.systemID, self.pnpID) = (texts, systemID, pnpID)
    }

    /// The characteristics to read.
    public static var characteristics: [CBUUID] {
        DeviceInformationText.allCases.map(\.uuid) + [SystemID.uuid, PnPID.uuid]
    }

    /// Stores the value of a characteristic that was read.
    /// - Returns: False if it is not one of ``characteristics``.
    @discardableResult
    public mutating func take(_ characteristic: CBCharacteristic) throws(CharacteristicValueError) -> Bool {
        if let text = DeviceInformationText(characteristic.uuid) {
            texts[text] = try DeviceInformationText.text(of: characteristic.value)
        } else if characteristic.uuid == SystemID.uuid {
            systemID = try SystemID(characteristic.value)
        } else if characteristic.uuid == PnPID.uuid {
            pnpID = try PnPID(characteristic.value)
        } else {
            return false
        }
        return true
    }
}
