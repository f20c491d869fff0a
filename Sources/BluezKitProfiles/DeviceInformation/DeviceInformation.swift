public import BluezKit
import Foundation

/// What a device says of itself. BluezKit addition.
///
/// A client collects it: discover ``DeviceInformationService``, read ``characteristics``, and hand each value to
/// ``take(_:)``. A server gives it to ``DeviceInformationService/init(_:)``.
/// - SeeAlso: Bluetooth SIG, Device Information Service 1.1.
public struct DeviceInformation: Equatable, Sendable {
    /// The texts, as far as there are any.
    public var texts: [DeviceInformationText: String]
    /// One device among all.
    public var systemID: SystemID?
    /// Which product, of which vendor, in which version.
    public var pnpID: PnPID?

    /// Nothing, or what is named.
    public init(_ texts: [DeviceInformationText: String] = [:], systemID: SystemID? = nil, pnpID: PnPID? = nil) {
        (self.texts, self.systemID, self.pnpID) = (texts, systemID, pnpID)
    }

    /// The characteristics that are worth reading.
    public static var characteristics: [CBUUID] {
        DeviceInformationText.allCases.map(\.uuid) + [SystemID.uuid, PnPID.uuid]
    }

    /// Takes the value of a characteristic that was read.
    /// - Returns: False if it is none of ``characteristics``.
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
