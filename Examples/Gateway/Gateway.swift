// Connects to many sensors, and prints what they measure as JSON, a line for each value, or publishes it by MQTT.
import CoreBluetooth
import CoreBluetoothAsync
import Foundation

@main
enum Gateway {
    static func main() async {
        let arguments = Array(CommandLine.arguments.dropFirst())
        if arguments.contains("--help") { return print(usage) }
        let options = Options(arguments)
        let central = CentralManager()
        do {
            let output = try output(options)
            try await central.waitUntilReady()
            let scan = central.scanForPeripherals(withServices: [CBUUID(data: options.service)])
            try await withThrowingTaskGroup(of: Void.self) { group in
                var left = options.peripherals
                for try await found in scan {
                    // Anyone can advertise with many addresses, and each takes memory.
                    guard left > 0 else { continue }
                    left -= 1
                    let sensor = found.peripheral
                    let name = found.advertisementData.localName ?? sensor.name
                    group.addTask {
                        do {
                            try await follow(sensor, name, options, central, output)
                        } catch is CancellationError {
                            // The scan has ended, and its error says why.
                        } catch {
                            fail(error.localizedDescription)  // at once: the scan would continue
                        }
                    }
                }
            }
        } catch let problem as BrokerProblem { fail(problem.description) } catch { fail(error.localizedDescription) }
    }

    private static func output(_ options: Options) throws -> any Output {
        guard let broker = options.broker else { return Printer(options.count) }
        let publisher = try Publisher(options, broker)
        for number in [SIGTERM, SIGINT] { atSignal(number) { Task { await publisher.end() } } }
        Task { await publisher.run() }
        return publisher
    }

    /// Instead of the end of the process, as soon as this returns. Some programs, such as `timeout`, send a signal
    /// twice.
    private static func atSignal(_ number: Int32, _ act: @escaping @Sendable () -> Void) {
        // Dispatch handles it from the registration on; ignored until then, it would be lost.
        let isRegistered = DispatchSemaphore(value: 0)
        let source = DispatchSource.makeSignalSource(signal: number, queue: DispatchQueue(label: "signals"))
        source.setEventHandler {
            act()
            withExtendedLifetime(source) {}  // its handler keeps it
        }
        source.setRegistrationHandler { isRegistered.signal() }
        source.resume()
        isRegistered.wait()
    }

    /// Until Bluetooth is off.
    private static func follow(
        _ sensor: Peripheral, _ name: String?, _ options: Options, _ central: CentralManager, _ output: any Output
    ) async throws {
        let quantity = options.quantity
        while true {
            do {
                try await central.connect(sensor)
                let values = sensor.values(
                    for: try await sensor.discoverCharacteristic(
                        CBUUID(data: options.characteristic), in: CBUUID(data: options.service)))
                let write = try await writer(sensor, options)
                try await output.put(Line(event: .connected, peripheral: sensor.identifier, name: name), write: write)
                for try await value in values {
                    let number = quantity?.number(value)
                    try await output.put(
                        Line(
                            event: .value, peripheral: sensor.identifier, name: name, value: value.hex, number: number,
                            unit: number == nil ? nil : quantity?.unit))
                }
            } catch is CBError {
                try await output.put(Line(event: .disconnected, peripheral: sensor.identifier, name: name))
            } catch BluetoothError.notFound {
                let line = Line(
                    event: .problem, peripheral: sensor.identifier, name: name,
                    problem: "it does not have the characteristic")
                try await output.put(line)
                return try await central.cancelPeripheralConnection(sensor)
            }
        }
    }

    /// Nil: it does not have the characteristic that commands write, or there are no commands. Writes with response, if
    /// the peripheral gives one.
    private static func writer(_ sensor: Peripheral, _ options: Options) async throws -> Write? {
        guard let writable = options.writable else { return nil }
        do {
            let characteristic = try await sensor.discoverCharacteristic(
                CBUUID(data: writable), in: CBUUID(data: options.service))
            return { value in
                try await sensor.writeValue(
                    value, for: characteristic,
                    type: characteristic.properties.contains(.write) ? .withResponse : .withoutResponse)
            }
        } catch BluetoothError.notFound { return nil }
    }
}
