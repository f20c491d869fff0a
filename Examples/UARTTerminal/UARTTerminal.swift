// A terminal for devices with the Nordic UART Service.
import CoreBluetooth
import CoreBluetoothAsync
import Foundation

let usage = """
    usage: uart-terminal [NAME]

    Connects to the first device that has the Nordic UART Service, or to the one with this name. What you type is sent line by
    line; what the device sends is printed. Ends with Ctrl-D, or when the connection ends.

      --help  print this text
    """

func fail(_ problem: String) -> Never {
    try? FileHandle.standardError.write(contentsOf: Data("uart-terminal: \(problem)\n".utf8))
    exit(1)
}

/// What may be shown of a stream of bytes: a device must not control the terminal.
struct Screen {
    /// The beginning of a character, whose end comes with the next value.
    private var rest = Data()

    mutating func take(_ data: Data) -> Data {
        rest += data
        let bytes = Array(rest)
        // A first byte says how many there are.
        let lengths = bytes.suffix(3).reversed().enumerated().first { $1 & 0xC0 != 0x80 }
        var open = 0
        if let (following, first) = lengths {
            let length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1
            open = length > following + 1 ? following + 1 : 0
        }
        rest = Data(bytes.suffix(open))
        return Self.printable(bytes.dropLast(open))
    }

    /// What is left at the end.
    var end: Data { Self.printable(Array(rest)[...]) }

    private static func printable(_ bytes: ArraySlice<UInt8>) -> Data {
        let scalars = String(decoding: bytes, as: UTF8.self).unicodeScalars.map { scalar -> Unicode.Scalar in
            scalar == "\n" || scalar == "\t" || scalar.properties.generalCategory != .control ? scalar : "\u{FFFD}"
        }
        return Data(String(String.UnicodeScalarView(scalars)).utf8)
    }
}

/// Lines of the terminal. Reading blocks, so it has a thread of its own.
func typedLines() -> AsyncStream<String> {
    AsyncStream { lines in
        Thread.detachNewThread {
            while let line = readLine(strippingNewline: false) { lines.yield(line) }
            lines.finish()
        }
    }
}

@main
enum UARTTerminal {
    static let service = CBUUID(string: "6E400001-B5A3-F393-E0A9-E50E24DCCA9E")
    static let receiver = CBUUID(string: "6E400002-B5A3-F393-E0A9-E50E24DCCA9E")
    static let transmitter = CBUUID(string: "6E400003-B5A3-F393-E0A9-E50E24DCCA9E")

    static func main() async {
        let arguments = Array(CommandLine.arguments.dropFirst())
        if arguments.contains("--help") { return print(usage) }
        guard arguments.count <= 1, arguments.first?.hasPrefix("-") != true else {
            fail("it takes one name; see --help")
        }
        do {
            let central = CentralManager()
            try await central.waitUntilReady()
            guard let device = try await find(arguments.first, central) else { return }
            try await central.connect(device)
            try await talk(to: device)
            try await central.cancelPeripheralConnection(device)
        } catch BluetoothError.notFound {
            fail("this device advertises the Nordic UART Service but does not have it")
        } catch { fail(error.localizedDescription) }
    }

    static func find(_ name: String?, _ central: CentralManager) async throws -> Peripheral? {
        for try await found in central.scanForPeripherals(withServices: [service]) {
            if name == nil || found.advertisementData.localName == name { return found.peripheral }
        }
        return nil
    }

    static func talk(to device: Peripheral) async throws {
        let input = try await device.discoverCharacteristic(receiver, in: service)
        let output = try await device.discoverCharacteristic(transmitter, in: service)
        // Subscribes before the first line is sent, so that no answer is missed.
        let answers = device.values(for: output)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                var screen = Screen()
                for try await data in answers {
                    try FileHandle.standardOutput.write(contentsOf: screen.take(data))
                }
                try FileHandle.standardOutput.write(contentsOf: screen.end)
            }
            group.addTask {
                for await line in typedLines() {
                    var rest = Data(line.utf8)
                    while !rest.isEmpty {
                        let type: CBCharacteristicWriteType =
                            input.properties.contains(.writeWithoutResponse) ? .withoutResponse : .withResponse
                        let length = await device.maximumWriteValueLength(for: type)
                        try await device.writeValue(Data(rest.prefix(length)), for: input, type: type)
                        rest = Data(rest.dropFirst(length))
                    }
                }
                // The answer to the last line is still on its way.
                try await Task.sleep(for: .seconds(1))
            }
            defer { group.cancelAll() }
            try await group.next()
        }
    }
}
