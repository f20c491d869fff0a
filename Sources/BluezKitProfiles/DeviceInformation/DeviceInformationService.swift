public import BluezKit
import Foundation

/// The Device Information service, 180A. Its values never change, and BlueZ answers reads without asking the app.
/// BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Device Information Service 1.1.
public final class DeviceInformationService: StandardService {
    /// 180A.
    public static let uuid = CBUUID(string: "180A")

    /// For `CBPeripheralManager.add(_:)`.
    public var service = makeService()

    /// A service with a characteristic for each known value.
    public init(_ information: DeviceInformation) {
        var values = DeviceInformationText.allCases.compactMap { text in
            information.texts[text].map { (text.uuid, DeviceInformationText.data($0)) }
        }
        if let id = information.systemID { values.append((SystemID.uuid, id.data)) }
        if let id = information.pnpID { values.append((PnPID.uuid, id.data)) }
        service.characteristics = values.map { uuid, value in
            CBMutableCharacteristic(type: uuid, properties: .read, value: value, permissions: .readable)
        }
    }
}
