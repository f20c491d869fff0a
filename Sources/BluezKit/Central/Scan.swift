import BluezKitRestore

/// A running scan of one manager, and what it has reported.
struct Scan {
    let request: ScanRequest
    let token: UInt64
    /// Nil: everything.
    let services: Set<CBUUID>?
    let solicitedServices: Set<CBUUID>
    private var reported = ScanMemory()

    init(_ request: ScanRequest, token: UInt64) {
        (self.request, self.token) = (request, token)
        services = request.services.map { Set($0.map(\.cbUUID)) }
        solicitedServices = Set((request.solicitedServices ?? []).map(\.cbUUID))
    }

    var wantsDuplicates: Bool { request.wantsDuplicates }

    var reportedCount: Int { reported.count }

    mutating func reportedKinds(of device: DeviceIdentity) -> DeviceProperties.Kinds? { reported.kinds(of: device) }

    /// What BlueZ should look for. It knows nothing of solicitation, so that is filtered here.
    var filter: DiscoveryStateMachine.Filter {
        let names = solicitedServices.isEmpty ? services.map { Set($0.map(\.bluezString)) } : nil
        return DiscoveryStateMachine.Filter(services: names, wantsDuplicates: wantsDuplicates)
    }

    /// Notes an advertisement of `device`.
    /// - Returns: Whether the app hears of it: always with duplicates, else for a new kind of information (SC-6).
    mutating func admit(_ device: Device) -> Bool {
        guard accepts(device.properties) else { return false }
        let kinds = device.properties.kinds
        let known = reported.kinds(of: device.identity)
        if let known, kinds.isSubset(of: known) { return wantsDuplicates }
        reported.record(known?.union(kinds) ?? kinds, of: device.identity)
        return true
    }

    /// SC-3: any of the services, advertised or solicited.
    private func accepts(_ properties: DeviceProperties) -> Bool {
        guard let services else { return true }
        return properties.services.contains { services.contains($0) }
            || properties.solicitedServices.contains { solicitedServices.contains($0) }
    }
}

extension ScanRequest {
    /// - Parameter services: Nil: every device.
    init(services: [CBUUID]?, solicitedServices: [CBUUID], allowsDuplicates: Bool?) {
        func sorted(_ uuids: [CBUUID]) -> [AttributeUUID] {
            Set(uuids).map(\.uuidString).sorted().compactMap(AttributeUUID.init)
        }
        self.init(
            services: services.map(sorted), allowsDuplicates: allowsDuplicates,
            solicitedServices: solicitedServices.isEmpty ? nil : sorted(solicitedServices))
    }

    /// Whether a scan for `other` would report the same. A UUID may be written in a short and a long form.
    func isEquivalent(to other: ScanRequest) -> Bool {
        func uuids(_ list: [AttributeUUID]?) -> Set<CBUUID>? { list.map { Set($0.map(\.cbUUID)) } }
        return uuids(services) == uuids(other.services)
            && uuids(solicitedServices ?? []) == uuids(other.solicitedServices ?? [])
            && wantsDuplicates == other.wantsDuplicates
    }
}
