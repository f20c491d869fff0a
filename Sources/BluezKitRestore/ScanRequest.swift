/// What an app scans for: the same in its manager, on the bus queue and on disk.
package struct ScanRequest: Codable, Equatable, Sendable {
    /// The service filter; nil: none.
    package var services: [AttributeUUID]?
    /// Nil if the app did not give the option.
    package var allowsDuplicates: Bool?
    package var solicitedServices: [AttributeUUID]?

    package init(services: [AttributeUUID]?, allowsDuplicates: Bool?, solicitedServices: [AttributeUUID]?) {
        (self.services, self.allowsDuplicates) = (services, allowsDuplicates)
        self.solicitedServices = solicitedServices
    }

    package var wantsDuplicates: Bool { allowsDuplicates ?? false }
}
