import CoreBluetooth
import Foundation
import Testing

/// The steps that most scenarios begin with.
extension Central {
    /// An app that is restored, and the peripheral that it gets.
    static func restored(_ world: any World, options: [String: Any]) async throws -> (Central, CBPeripheral) {
        let kept = ProtectedBox<(central: Central?, peripheral: CBPeripheral?)>((nil, nil))
        defer { kept.withLock { $0 = (nil, nil) } }
        let (queue, watch) = (DispatchQueue(label: "restored"), ContractWatch())
        // On its queue: it is not restored before it is known.
        queue.sync {
            let central = Central(
                world, queue: queue, options: options, watch: watch,
                onRestore: { state in
                    let peripherals = state[CBCentralManagerRestoredStatePeripheralsKey] as? [CBPeripheral]
                    kept.withLock {
                        $0.peripheral = peripherals?.first
                        $0.peripheral.map(watch.restored)
                        $0.peripheral?.delegate = $0.central
                    }
                })
            kept.withLock { $0.central = central }
        }
        let central = try #require(kept.withLock { $0.central })
        try await central.powerOn()
        return (central, try #require(kept.withLock { $0.peripheral }))
    }

    func powerOn() async throws {
        try await next("powered on") { if case .state(.poweredOn) = $0 { true } else { nil } }
    }

    /// Scans until the peripheral named `name` is found, with the given filter. On the manager's queue: elsewhere a
    /// report of the scan before could still be on its way to the delegate, and count for this one.
    func find(_ name: String, services: [CBUUID]? = nil) async throws -> CBPeripheral {
        await perform { self.manager.scanForPeripherals(withServices: services) }
        let found = try await next("discovery of \(name)") {
            if case .discovered(let peripheral, let data, _) = $0,
                data[CBAdvertisementDataLocalNameKey] as? String == name
            {
                peripheral
            } else {
                nil
            }
        }
        await perform { self.manager.stopScan() }
        return found
    }

    func connect(_ peripheral: CBPeripheral) async throws {
        manager.connect(peripheral)
        // It has no time limit (CN-2), and an attempt by BlueZ that misses the peripheral lasts 40 s.
        try await next("connection", within: 3 * world_deadline) {
            if case .connected(peripheral) = $0 { true } else { nil }
        }
    }

    func discoverServices(_ peripheral: CBPeripheral, _ wanted: [CBUUID]? = nil) async throws -> [CBService] {
        peripheral.discoverServices(wanted)
        let error = try await next("services") {
            if case .services(peripheral, let error) = $0 { [error] } else { nil }
        }
        #expect(error[0] == nil)
        return try #require(peripheral.services)
    }

    /// Discovers services until this one is among them: one that is replaced goes first.
    func awaitService(_ uuid: String, of peripheral: CBPeripheral) async throws {
        try await eventually("service \(uuid) is there") {
            try await discoverServices(peripheral).contains { $0.uuid == CBUUID(string: uuid) }
        }
    }

    func discoverCharacteristics(
        _ service: CBService, _ wanted: [CBUUID]? = nil
    ) async throws -> [CBCharacteristic] {
        try #require(service.peripheral).discoverCharacteristics(wanted, for: service)
        let error = try await next("characteristics") {
            if case .characteristics(service, let error) = $0 { [error] } else { nil }
        }
        #expect(error[0] == nil)
        return try #require(service.characteristics)
    }

    /// Everything up to one characteristic.
    func characteristic(_ uuid: CBUUID, of service: CBUUID, on peripheral: CBPeripheral) async throws
        -> CBCharacteristic
    {
        let services = try await discoverServices(peripheral, [service])
        let found = try #require(services.first { $0.uuid == service })
        return try #require(try await discoverCharacteristics(found, [uuid]).first { $0.uuid == uuid })
    }

    /// Reads; nil if the peer refuses.
    func read(_ characteristic: CBCharacteristic) async throws -> Result<Data, any Error> {
        try #require(characteristic.service?.peripheral).readValue(for: characteristic)
        return try await next("value of \(characteristic.uuid)") {
            guard case .value(characteristic, let value, let error) = $0 else { return nil }
            return error.map { .failure($0) } ?? .success(value ?? Data())
        }
    }

    func write(_ data: Data, to characteristic: CBCharacteristic) async throws -> (any Error)? {
        try #require(characteristic.service?.peripheral).writeValue(data, for: characteristic, type: .withResponse)
        return try await next("write of \(characteristic.uuid)") {
            if case .written(characteristic, let error) = $0 { [error] } else { nil }
        }[0]
    }

    func setNotify(_ enabled: Bool, _ characteristic: CBCharacteristic) async throws -> (any Error)? {
        try #require(characteristic.service?.peripheral).setNotifyValue(enabled, for: characteristic)
        return try await next("subscription to \(characteristic.uuid)") {
            if case .notifying(characteristic, _, let error) = $0 { [error] } else { nil }
        }[0]
    }

    func nextChannel() async throws -> CBL2CAPChannel {
        try await next("didOpen") { if case .channel(let channel?, nil) = $0 { channel } else { nil } }
    }

    func disconnect(_ peripheral: CBPeripheral) async throws {
        manager.cancelPeripheralConnection(peripheral)
        try await next("disconnection") { if case .disconnected(peripheral, _, nil) = $0 { true } else { nil } }
    }

    func removeBond(_ peripheral: CBPeripheral) async throws {
        let log = EventLog<String>()
        manager.removeBond(with: peripheral) { log.append($0.map { "\($0)" } ?? "removed") }
        #expect(try await log.next("removal of the bond") { $0 } == "removed")
    }
}

/// The custom UUIDs of the sink: bb1eNNNN-5d3b-4c6f-9a5e-000000000000.
func sinkUUID(_ number: Int) -> CBUUID {
    let hex = String(number, radix: 16)
    return CBUUID(string: "bb1e" + String(repeating: "0", count: 4 - hex.count) + hex + "-5d3b-4c6f-9a5e-000000000000")
}
