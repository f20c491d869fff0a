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
