// Code of an app, on the main actor and elsewhere, as it has to compile where CoreBluetooth's classes are not Sendable.
import CoreBluetooth
import CoreBluetoothAsync

@MainActor
final class ViewModel {
    let central = CentralManager(options: ["key": true])
    let heartRate = CBUUID(string: "180D")
    let measurement = CBUUID(string: "2A37")
    var values: [Data] = []

    func run() async throws {
        try await central.waitUntilReady()
        for try await found in central.scanForPeripherals(withServices: [heartRate]) {
            try await central.connect(found.peripheral, options: ["key": 1])
            try await use(found.peripheral)
            break
        }
    }

    func use(_ peripheral: Peripheral) async throws {
        for service in try await peripheral.discoverServices([heartRate]) where service.uuid == heartRate {
            for characteristic in try await peripheral.discoverCharacteristics([measurement], for: service) {
                for try await value in peripheral.values(for: characteristic) { values.append(value) }
            }
        }
        let known = await central.retrieveConnectedPeripherals(withServices: [heartRate])
        values.append(Data([UInt8(known.count)]))
    }
}

@MainActor
final class Sensor {
    let manager = PeripheralManager()
    var level: PublishedCharacteristic?

    func publish() async throws {
        let temperature = CBMutableCharacteristic(
            type: CBUUID(string: "2A6E"), properties: [.read, .notify], value: nil, permissions: .readable)
        let service = CBMutableService(type: CBUUID(string: "181A"), primary: true)
        service.characteristics = [temperature]
        level = try await manager.add(service).characteristics.first
        try await manager.startAdvertising([CBAdvertisementDataServiceUUIDsKey: [CBUUID(string: "181A")]])
        for await request in manager.requests { request.respond(with: Data([1])) }
    }

    func update(_ value: Data) async throws {
        guard let level else { return }
        try await manager.updateValue(value, for: level)
        for await change in manager.subscriptions where change.characteristic == level {
            try await manager.updateValue(value, for: level, onSubscribedCentrals: [change.central])
        }
    }
}

actor Logger {
    func log(_ central: CentralManager) async {
        for await state in central.states { print(state) }
    }
}

func inParallel(_ central: CentralManager, _ peripherals: [Peripheral]) async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
        for peripheral in peripherals { group.addTask { try await central.connect(peripheral) } }
        try await group.waitForAll()
    }
}
