package import Foundation

/// A change from one snapshot to the next.
extension Snapshot {
    /// The new content. Encoded as `{"peripheral":{"is":{…}}}`.
    package enum Change: Codable, Equatable, Sendable {
        /// Another process owns the state now.
        case writer(app: String, boot: String)
        case bluetooth(is: String?)
        case scan(is: ScanRequest?)
        /// A new peripheral, or the complete new record of a known one.
        case peripheral(is: Peripheral)
        case removal(of: UUID)
        /// A known service of a known peripheral.
        case service(is: Service, of: UUID)
        /// A known characteristic of a known service.
        case characteristic(is: Characteristic, in: PathElement, of: UUID)
        case services(are: [LocalService])
        case advertisement(is: AdvertisementRequest?)
        case channels(are: [PublishedChannel])
        /// Bluetooth was switched off.
        case off
    }

    /// - Returns: Whether this changed anything.
    package mutating func apply(_ change: Change) -> Bool {
        switch change {
        case .writer(let app, let boot):
            let isNewApp = set(\.app, app)
            return set(\.boot, boot) || isNewApp
        case .bluetooth(let bluetooth): return set(\.bluetooth, bluetooth)
        case .scan(let scan): return set(\.scan, scan)
        case .peripheral(let peripheral):
            guard peripherals[peripheral.identifier] != peripheral else { return false }
            peripherals[peripheral.identifier] = peripheral
        case .removal(let identifier):
            guard peripherals[identifier] != nil else { return false }
            peripherals[identifier] = nil
        case .service(let service, let identifier): return peripherals.replace(service, of: identifier)
        case .characteristic(let characteristic, let service, let identifier):
            return peripherals.replace(characteristic, in: service, of: identifier)
        case .services(let services): return set(\.services, services)
        case .advertisement(let advertisement): return set(\.advertisement, advertisement)
        case .channels(let channels): return set(\.channels, channels.isEmpty ? nil : channels)
        case .off:
            guard scan != nil || !peripherals.isEmpty || advertisement != nil else { return false }
            switchOff()
        }
        return true
    }

    private mutating func set<Value: Equatable>(_ path: WritableKeyPath<Snapshot, Value>, _ value: Value) -> Bool {
        guard self[keyPath: path] != value else { return false }
        self[keyPath: path] = value
        return true
    }
}
