// Prints what many sensors measure as JSON, a line for each value, for programs that read it.
import CoreBluetooth
import CoreBluetoothAsync
import Foundation

let usage = """
    usage: gateway SERVICE CHARACTERISTIC [--count N]

    Connects to every peripheral that advertises SERVICE, subscribes to CHARACTERISTIC, and prints one JSON object for each
    value, and for each connection that is made or lost. Both are UUIDs, such as 180D and 2A37. It connects again when a
    peripheral comes back.

      --count N  stop after N values
      --help     print this text
    """

func fail(_ problem: String) -> Never {
    try? FileHandle.standardError.write(contentsOf: Data("gateway: \(problem)\n".utf8))
    exit(1)
}

struct Line: Encodable {
    enum Event: String, Encodable { case connected, disconnected, value, problem }
    var time = Date.now
    let event: Event
    let peripheral: UUID
    var name: String?
    var value: String?
    var problem: String?
}

/// Prints, and counts values.
actor Printer {
    private let encoder = JSONEncoder()
    private var left: Int

    init(_ count: Int) {
        left = count
        encoder.dateEncodingStrategy = .iso8601
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    }

    func print(_ line: Line) throws {
        guard left > 0 else { return }
        try FileHandle.standardOutput.write(contentsOf: encoder.encode(line) + Data("\n".utf8))
        if case .value = line.event { left -= 1 }
        if left == 0 { exit(0) }
    }
}

/// CoreBluetooth ends a program that makes a UUID of anything else.
func uuid(_ text: String) -> CBUUID {
    let isShort = [4, 8].contains(text.count) && text.allSatisfy(\.isHexDigit)
    guard text.allSatisfy(\.isASCII), isShort || UUID(uuidString: text) != nil else {
        fail("\(text) is no UUID: it has 4, 8 or 32 hexadecimal digits, the last form with hyphens")
    }
    return CBUUID(string: text)
}

@main
enum Gateway {
    static func main() async {
        var arguments = Array(CommandLine.arguments.dropFirst())
        if arguments.contains("--help") { return print(usage) }
        var count = Int.max
        if let index = arguments.firstIndex(of: "--count") {
            guard index + 1 < arguments.count, let number = Int(arguments[index + 1]), number > 0 else {
                fail("--count needs a number above 0")
            }
            count = number
            arguments.removeSubrange(index...index + 1)
        }
        guard arguments.count == 2 else { fail("it takes two UUIDs; see --help") }
        let (service, characteristic) = (uuid(arguments[0]).data, uuid(arguments[1]).data)
        let printer = Printer(count)
        let central = CentralManager()
        do {
            try await central.waitUntilReady()
            let scan = central.scanForPeripherals(withServices: [CBUUID(data: service)])
            try await withThrowingTaskGroup(of: Void.self) { group in
                for try await found in scan {
                    let sensor = found.peripheral
                    let name = found.advertisementData.localName ?? sensor.name
                    group.addTask {
                        do {
                            try await follow(sensor, name, service, characteristic, central, printer)
                        } catch is CancellationError {
                            // The scan has ended, and its error says why.
                        } catch {
                            fail(error.localizedDescription)  // at once: the scan would continue
                        }
                    }
                }
            }
        } catch { fail(error.localizedDescription) }
    }

    /// Until Bluetooth is off.
    static func follow(
        _ sensor: Peripheral, _ name: String?, _ service: Data, _ characteristic: Data, _ central: CentralManager,
        _ printer: Printer
    ) async throws {
        while true {
            do {
                try await central.connect(sensor)
                let values = sensor.values(
                    for: try await sensor.discoverCharacteristic(
                        CBUUID(data: characteristic), in: CBUUID(data: service)))
                try await printer.print(Line(event: .connected, peripheral: sensor.identifier, name: name))
                for try await value in values {
                    let hex = value.map { String(format: "%02x", $0) }.joined()
                    try await printer.print(Line(event: .value, peripheral: sensor.identifier, name: name, value: hex))
                }
            } catch is CBError {
                try await printer.print(Line(event: .disconnected, peripheral: sensor.identifier, name: name))
            } catch BluetoothError.notFound {
                let line = Line(
                    event: .problem, peripheral: sensor.identifier, name: name,
                    problem: "it does not have the characteristic")
                try await printer.print(line)
                return try await central.cancelPeripheralConnection(sensor)
            }
        }
    }
}
