package import Foundation

/// What an app asks for with `startAdvertising`, as far as it takes effect: the same in its manager, on the bus queue
/// and on disk.
package struct AdvertisementRequest: Codable, Equatable, Sendable {
    package struct ServiceData: Codable, Equatable, Sendable {
        package var uuid: AttributeUUID
        package var data: Data

        package init(uuid: AttributeUUID, data: Data) { (self.uuid, self.data) = (uuid, data) }
    }

    package var localName: String?
    package var services: [AttributeUUID]?
    package var solicitedServices: [AttributeUUID]?
    package var manufacturerData: Data?
    package var serviceData: [ServiceData]?
    package var minimumIntervalMilliseconds: Double?
    package var maximumIntervalMilliseconds: Double?
    package var txPowerDBm: Int?

    package init() {}
}
