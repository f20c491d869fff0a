import BluezKitRestore
import Foundation

/// As the app passes it to `startAdvertising`, and gets it back from `willRestoreState`.
extension AdvertisementRequest {
    /// - Throws: `CBError.invalidParameters`, if an addition of BluezKit is of a wrong type. Other values of wrong
    ///   types are ignored, like unknown keys, and logged.
    init(_ dictionary: [String: Any]?) throws(CBError) {
        self.init()
        guard let dictionary else { return }
        for (key, value) in dictionary { Self.logIgnored(key, value) }
        localName = dictionary[CBAdvertisementDataLocalNameKey] as? String
        // In one expression: with a variable between, the optimizer of Swift 6.0.3 crashes. So below.
        services = (dictionary[CBAdvertisementDataServiceUUIDsKey] as? [CBUUID])?
            .compactMap { AttributeUUID($0.uuidString) }
        solicitedServices =
            (try Self.value(dictionary[BluezAdvertisementSolicitedServiceUUIDsKey], .invalidSolicitedServices)
            as [CBUUID]?)?
            .compactMap { AttributeUUID($0.uuidString) }
        manufacturerData = try Self.value(dictionary[BluezAdvertisementManufacturerDataKey], .invalidManufacturerData)
        let entries: [CBUUID: Data]? = try Self.value(
            dictionary[BluezAdvertisementServiceDataKey], .invalidServiceData)
        serviceData = entries?.compactMap { key, value in
            AttributeUUID(key.uuidString).map { ServiceData(uuid: $0, data: value) }
        }.sorted { $0.uuid.text < $1.uuid.text }
        let minimum: NSNumber? = try Self.value(dictionary[BluezAdvertisementMinimumIntervalKey], .invalidInterval)
        let maximum: NSNumber? = try Self.value(dictionary[BluezAdvertisementMaximumIntervalKey], .invalidInterval)
        (minimumIntervalMilliseconds, maximumIntervalMilliseconds) = (minimum?.doubleValue, maximum?.doubleValue)
        let power: NSNumber? = try Self.value(dictionary[BluezAdvertisementTxPowerKey], .invalidTxPower)
        txPowerDBm = power?.intValue
    }

    private static let additions: [String: String] = [
        CBAdvertisementDataManufacturerDataKey: "BluezAdvertisementManufacturerDataKey",
        BluezAdvertisementManufacturerEntriesKey: "BluezAdvertisementManufacturerDataKey",
        CBAdvertisementDataServiceDataKey: "BluezAdvertisementServiceDataKey",
        CBAdvertisementDataSolicitedServiceUUIDsKey: "BluezAdvertisementSolicitedServiceUUIDsKey",
        CBAdvertisementDataTxPowerLevelKey: "BluezAdvertisementTxPowerKey",
    ]

    private static func logIgnored(_ key: String, _ value: Any) {
        switch key {
        case CBAdvertisementDataLocalNameKey:
            if !(value is String) {
                Log.misuse("advertising without a name: CBAdvertisementDataLocalNameKey needs a String")
            }
        case CBAdvertisementDataServiceUUIDsKey:
            if !(value is [CBUUID]) {
                Log.misuse("advertising without services: CBAdvertisementDataServiceUUIDsKey needs an array of CBUUID")
            }
        case _ where key.hasPrefix("BluezAdvertisement") && key != BluezAdvertisementManufacturerEntriesKey: break
        default:
            let hint = additions[key].map { "; on Linux \($0) has an effect" } ?? ""
            Log.misuse("The advertisement key '\(key)' is not allowed\(hint)")
        }
    }

    private static func value<Wanted>(_ value: Any?, _ error: CBError) throws(CBError) -> Wanted? {
        guard let value else { return nil }
        guard let wanted = value as? Wanted else { throw error }
        return wanted
    }

    var dictionary: [String: Any] {
        var dictionary: [String: Any] = [:]
        dictionary[CBAdvertisementDataLocalNameKey] = localName
        dictionary[CBAdvertisementDataServiceUUIDsKey] = services?.map(\.cbUUID)
        dictionary[BluezAdvertisementSolicitedServiceUUIDsKey] = solicitedServices?.map(\.cbUUID)
        dictionary[BluezAdvertisementManufacturerDataKey] = manufacturerData
        dictionary[BluezAdvertisementServiceDataKey] = serviceData.map { entries in
            Dictionary(entries.map { ($0.uuid.cbUUID, $0.data) }) { $1 }
        }
        dictionary[BluezAdvertisementMinimumIntervalKey] = minimumIntervalMilliseconds.map { NSNumber(value: $0) }
        dictionary[BluezAdvertisementMaximumIntervalKey] = maximumIntervalMilliseconds.map { NSNumber(value: $0) }
        dictionary[BluezAdvertisementTxPowerKey] = txPowerDBm.map { NSNumber(value: $0) }
        return dictionary
    }
}
