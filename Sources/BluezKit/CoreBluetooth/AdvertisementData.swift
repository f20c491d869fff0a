import Foundation

extension DeviceProperties {
    private static let isConnectable = NSNumber(value: true)

    /// The dictionary of `didDiscover`: numbers as `NSNumber`; unknown values have no key (SC-8, LX-6).
    ///
    /// BlueZ does not report whether an advertisement was connectable, so the key that is always present is always
    /// true.
    var advertisementData: [String: Any] {
        var data = [String: Any](minimumCapacity: 3 + kinds.rawValue.nonzeroBitCount)
        data[CBAdvertisementDataIsConnectable] = Self.isConnectable
        data["kCBAdvDataTimestamp"] = NSNumber(value: CFAbsoluteTimeGetCurrent())
        if let name { data[CBAdvertisementDataLocalNameKey] = name }
        // For a device that was connected before, BlueZ mixes in the attribute table; services that devices never
        // advertise are left out.
        let hasSystemServices = services.contains { AttributeTable.systemServices.contains($0) }
        let advertised = hasSystemServices ? services.filter { !AttributeTable.systemServices.contains($0) } : services
        if !advertised.isEmpty { data[CBAdvertisementDataServiceUUIDsKey] = advertised }
        if let manufacturerData {
            data[CBAdvertisementDataManufacturerDataKey] = manufacturerData
            data[BluezAdvertisementManufacturerEntriesKey] = manufacturerEntries
        }
        if !serviceData.isEmpty { data[CBAdvertisementDataServiceDataKey] = serviceData }
        if let txPowerDBm { data[CBAdvertisementDataTxPowerLevelKey] = NSNumber(value: txPowerDBm) }
        if !solicitedServices.isEmpty { data[CBAdvertisementDataSolicitedServiceUUIDsKey] = solicitedServices }
        return data
    }
}
