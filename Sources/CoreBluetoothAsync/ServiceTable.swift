import CoreBluetooth

/// The services that a manager publishes, by their numbers, which is what the app has of them.
struct ServiceTable {
    private(set) var services: [UInt64: CBMutableService] = [:]
    private(set) var characteristics: [UInt64: CBMutableCharacteristic] = [:]
    private var numbers: [ObjectIdentifier: UInt64] = [:]
    /// Those that are being added, by request.
    private(set) var adding: [UInt64: PublishedService] = [:]
    /// What this version of the program publishes.
    private var own: [CBMutableService] = []
    private var restored: [CBMutableService] = []

    init(comparing own: [CBMutableService] = []) { self.own = own }

    /// - Returns: What was restored, without the services that this version of the program has with other contents.
    mutating func restore(from state: [String: Any]) -> [PublishedService] {
        let types = Set(own.map(\.uuid))
        let same = own.restored(from: state)
        own = []
        let all = state[CBPeripheralManagerRestoredStateServicesKey] as? [CBMutableService] ?? []
        var current: [CBMutableService] = []
        for service in all where !types.contains(service.uuid) || same.contains(where: { $0 === service }) {
            // One that includes a service that is withdrawn cannot be published.
            if (service.includedServices ?? []).allSatisfy({ part in current.contains { $0 === part } }) {
                current.append(service)
            }
        }
        restored = current
        return current.map { add($0) }
    }

    /// The app has no object of a service that was restored, which another one includes.
    func includeRestored(in service: CBMutableService) {
        guard !restored.isEmpty, numbers[ObjectIdentifier(service)] == nil, let parts = service.includedServices else {
            return
        }
        var candidates = restored.filter { service in !parts.contains { $0 === service } }
        service.includedServices = parts.map { part in
            guard numbers[ObjectIdentifier(part)] == nil,
                let index = candidates.firstIndex(where: { $0.uuid == part.uuid })
            else { return part }
            return candidates.remove(at: index)
        }
    }

    mutating func add(_ service: CBMutableService) -> PublishedService {
        let number = makeNumber(service)
        services[number] = service
        let published = (service.characteristics ?? []).map { characteristic in
            let number = makeNumber(characteristic)
            characteristics[number] = characteristic as? CBMutableCharacteristic
            return PublishedCharacteristic(number: number, characteristic)
        }
        return PublishedService(number: number, service, published)
    }

    mutating func add(_ service: CBMutableService, by request: UInt64) { adding[request] = add(service) }

    /// - Returns: What the request adds; nil: it is over.
    mutating func endAdding(_ request: UInt64) -> PublishedService? { adding.removeValue(forKey: request) }

    /// - Returns: What was being added.
    @discardableResult
    mutating func endAdding() -> [PublishedService] {
        defer { adding = [:] }
        return Array(adding.values)
    }

    private mutating func makeNumber(_ object: NSObject) -> UInt64 {
        let number = Number.next()
        numbers[ObjectIdentifier(object)] = number
        return number
    }

    func number(of service: CBService) -> UInt64? { numbers[ObjectIdentifier(service)] }

    /// Zero stands for one that was withdrawn meanwhile.
    func handle(_ characteristic: CBCharacteristic) -> PublishedCharacteristic {
        PublishedCharacteristic(number: numbers[ObjectIdentifier(characteristic)] ?? 0, characteristic)
    }

    /// - Returns: The service, and the numbers of its characteristics; nil if there is none.
    mutating func remove(_ number: UInt64) -> (service: CBMutableService, characteristics: [UInt64])? {
        guard let service = services.removeValue(forKey: number) else { return nil }
        numbers[ObjectIdentifier(service)] = nil
        restored.removeAll { $0 === service }
        let gone = (service.characteristics ?? []).compactMap { numbers.removeValue(forKey: ObjectIdentifier($0)) }
        for number in gone { characteristics[number] = nil }
        return (service, gone)
    }
}
