// A thermostat as a Bluetooth peripheral: its temperature can be read and subscribed to, its target can be set.
import CoreBluetooth
import CoreBluetoothAsync
import Foundation

let usage = """
    usage: thermostat [--name NAME] [--seconds N]

    Publishes a thermostat with two characteristics, both in hundredths of a degree Celsius (sint16, as Temperature, 2A6E):

      7A0E0002-5C1B-4E0A-9D6F-000000000000  the temperature: read, notify
      7A0E0003-5C1B-4E0A-9D6F-000000000000  the target, from 5 to 30 °C: read, write

      --name NAME  what it is called, in at most 29 bytes; Thermostat if it is not given
      --seconds N  stop after N seconds
      --help       print this text
    """

func fail(_ problem: String) -> Never {
    try? FileHandle.standardError.write(contentsOf: Data("thermostat: \(problem)\n".utf8))
    exit(1)
}

/// A room with a heater.
actor Room {
    private(set) var temperature = 1800
    private(set) var target = 2000

    /// - Returns: Whether that is possible.
    func set(_ data: Data) -> CBATTError.Code {
        guard data.count == 2 else { return .invalidAttributeValueLength }
        let value = Int(Int16(bitPattern: UInt16(data[data.startIndex]) | UInt16(data[data.startIndex + 1]) << 8))
        guard (500...3000).contains(value) else { return CBATTError.Code(rawValue: 0x80) ?? .unlikelyError }
        target = value
        try? FileHandle.standardOutput.write(contentsOf: Data("The target is \(Double(value) / 100) °C now.\n".utf8))
        return .success
    }

    /// A moment passes. - Returns: The temperature, if it has changed.
    func pass() -> Int? {
        guard temperature != target else { return nil }
        temperature += max(-25, min(25, target - temperature))
        return temperature
    }
}

extension Int {
    var hundredths: Data { withUnsafeBytes(of: Int16(clamping: self).littleEndian) { Data($0) } }
}

@main
enum Thermostat {
    static func uuid(_ number: Int) -> CBUUID { CBUUID(string: "7A0E000\(number)-5C1B-4E0A-9D6F-000000000000") }

    static func main() async {
        var name = "Thermostat"
        var seconds: Double?
        var arguments = CommandLine.arguments.dropFirst().makeIterator()
        while let argument = arguments.next() {
            switch argument {
            case "--help": return print(usage)
            case "--name":
                guard let value = arguments.next(), !value.isEmpty else { fail("--name needs a name") }
                guard value.utf8.count <= 29 else { fail("--name has room for 29 bytes, not \(value.utf8.count)") }
                name = value
            case "--seconds":
                guard let value = arguments.next().flatMap(Double.init), value > 0, value < 1e9 else {
                    fail("--seconds needs a number above 0")
                }
                seconds = value
            default: fail("there is no option \(argument); see --help")
            }
        }
        do { try await serve(name, seconds) } catch { fail(error.localizedDescription) }
    }

    static func serve(_ name: String, _ seconds: Double?) async throws {
        let manager = PeripheralManager()
        let room = Room()
        let requests = manager.requests
        try await manager.waitUntilReady()
        let published = try await publish(by: manager)
        try await manager.startAdvertising([
            CBAdvertisementDataLocalNameKey: name, CBAdvertisementDataServiceUUIDsKey: [uuid(1)],
        ])
        let (temperature, target) = (published.characteristics[0], published.characteristics[1])
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                for await request in requests {
                    switch request.kind {
                    case .read where request.characteristic == target:
                        request.respond(with: await room.target.hundredths)
                    case .read: request.respond(with: await room.temperature.hundredths)
                    case .write(let writes): request.respond(await room.set(writes[0].value))
                    }
                }
            }
            group.addTask {
                while true {
                    try await Task.sleep(for: .milliseconds(200))
                    guard let value = await room.pass() else { continue }
                    try await manager.updateValue(value.hundredths, for: temperature)
                }
            }
            if let seconds { group.addTask { try await Task.sleep(for: .seconds(seconds)) } }
            defer { group.cancelAll() }
            try await group.next()
        }
    }

    static func publish(by manager: PeripheralManager) async throws -> PublishedService {
        let service = CBMutableService(type: uuid(1), primary: true)
        service.characteristics = [
            CBMutableCharacteristic(type: uuid(2), properties: [.read, .notify], value: nil, permissions: .readable),
            CBMutableCharacteristic(
                type: uuid(3), properties: [.read, .write], value: nil, permissions: [.readable, .writeable]),
        ]
        return try await manager.add(service)
    }
}
