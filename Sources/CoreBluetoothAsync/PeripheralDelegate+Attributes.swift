import CoreBluetooth

/// What the app gets for attributes, and what is known of them.
extension PeripheralDelegate {
    func services(_ services: [CBService]?) -> [Service]? { services?.map { Service(number: number($0), $0) } }

    func characteristics(_ service: CBService) -> [Characteristic]? {
        service.characteristics?.map { Characteristic(number: number($0), $0) }
    }

    func descriptors(_ characteristic: CBCharacteristic) -> [Descriptor]? {
        characteristic.descriptors?.map { Descriptor(number: number($0), $0) }
    }

    func knownServices() -> [Service]? { isConnected ? services(peripheral.services) : nil }

    func knownCharacteristics(of service: Service) -> [Characteristic]? {
        (attributes[service.number] as? CBService).flatMap { characteristics($0) }
    }

    func knownDescriptors(of characteristic: Characteristic) -> [Descriptor]? {
        (attributes[characteristic.number] as? CBCharacteristic).flatMap { descriptors($0) }
    }

    func isNotifying(_ characteristic: Characteristic) -> Bool {
        (attributes[characteristic.number] as? CBCharacteristic)?.isNotifying ?? false
    }

    // MARK: Values and changes

    func send(_ value: Data, of characteristic: CBCharacteristic) {
        if let number = numbers[ObjectIdentifier(characteristic)] { values.send(value, number) }
    }

    /// It was restored with these subscriptions.
    func keepEarlyValues() {
        for characteristic in peripheral.services?.flatMap({ $0.characteristics ?? [] }) ?? []
        where characteristic.isNotifying { values.keepEarly(number(characteristic)) }
    }

    func addServiceChanges(_ subscription: EventSubscription<[Service], Never>) { serviceChanges.add(subscription) }

    func pruneServiceChanges() { serviceChanges.prune() }

    func send(changes: [Service]) { serviceChanges.send(changes) }
}
