import BluezKit

/// The texts of the Device Information service, 180A.
enum DeviceInformation: String, CaseIterable {
    case manufacturerName = "2A29"
    case modelNumber = "2A24"
    case serialNumber = "2A25"
    case hardwareRevision = "2A27"
    case firmwareRevision = "2A26"
    case softwareRevision = "2A28"

    init?(_ uuid: CBUUID) { self.init(rawValue: uuid.uuidString) }

    /// For programs.
    var key: String { String(describing: self) }

    /// For people.
    var label: String {
        switch self {
        case .manufacturerName: "manufacturer"
        case .modelNumber: "model"
        case .serialNumber: "serial number"
        case .hardwareRevision: "hardware"
        case .firmwareRevision: "firmware"
        case .softwareRevision: "software"
        }
    }
}
