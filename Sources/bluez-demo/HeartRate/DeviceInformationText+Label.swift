import BluezKitProfiles

extension DeviceInformationText {
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
