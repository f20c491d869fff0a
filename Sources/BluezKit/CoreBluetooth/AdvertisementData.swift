import Foundation

extension DeviceProperties {
    /// The dictionary of `didDiscover`: numbers as `NSNumber`, what is absent has no key (SC-8, LX-6).
    ///
    /// BlueZ does not tell whether an advertisement was connectable; the key that is always there is always true.
    var advertisementData: [String: Any] {
        var data: [String: Any] = [CBAdvertisementDataIsConnectable: NSNumber(value: true)]
        data["kCBAdvDataTimestamp"] = NSNumber(value: CFAbsoluteTimeGetCurrent())
        if let name { data[CBAdvertisementDataLocalNameKey] = name }
        // BlueZ mixes in the table of a device that was connected before; what no device advertises is left out.
        let advertised = services.filter { !AttributeTree.systemServices.contains($0) }
        if !advertised.isEmpty { data[CBAdvertisementDataServiceUUIDsKey] = advertised }
        if let manufacturerData { data[CBAdvertisementDataManufacturerDataKey] = Data(manufacturerData) }
        if !serviceData.isEmpty { data[CBAdvertisementDataServiceDataKey] = serviceData }
        if let txPowerDBm { data[CBAdvertisementDataTxPowerLevelKey] = NSNumber(value: txPowerDBm) }
        if !solicitedServices.isEmpty { data[CBAdvertisementDataSolicitedServiceUUIDsKey] = solicitedServices }
        return data
    }
}
