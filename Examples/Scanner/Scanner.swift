// Writes the Bluetooth devices around as comma-separated values.
import CoreBluetooth
import CoreBluetoothAsync
import Foundation

let usage = """
    usage: scanner [--seconds N] [--all] [FILE]

    Writes one line for each device that advertises: time, identifier, name, signal strength, services and manufacturer
    data. Without FILE it writes to the terminal.

      --seconds N  stop after N seconds
      --all        a line for each packet, instead of one for each device
      --help       print this text
    """

/// Ends the program with one sentence.
func fail(_ problem: String) -> Never {
    try? FileHandle.standardError.write(contentsOf: Data("scanner: \(problem)\n".utf8))
    exit(1)
}

struct Options {
    var seconds: Double?
    var reportsAll = false
    var file: String?

    init(_ arguments: some Sequence<String>) {
        var rest = arguments.makeIterator()
        while let argument = rest.next() {
            switch argument {
            case "--help":
                print(usage)
                exit(0)
            case "--all": reportsAll = true
            case "--seconds":
                guard let value = rest.next(), let seconds = Double(value), seconds > 0, seconds < 1e9 else {
                    fail("--seconds needs a number above 0")
                }
                self.seconds = seconds
            default:
                guard !argument.hasPrefix("-") else { fail("there is no option \(argument); see --help") }
                guard file == nil else { fail("there can be only one file, but \(argument) is a second one") }
                file = argument
            }
        }
    }
}

/// A field of a line (RFC 4180). Names come from the air: control characters could do things to a terminal.
func field(_ text: String) -> String {
    let safe = String(
        String.UnicodeScalarView(text.unicodeScalars.filter { $0.properties.generalCategory != .control }))
    // A spreadsheet would calculate what begins like a formula.
    let isFormula = safe.first.map { "=+-@".contains($0) } == true && Int(safe) == nil
    let plain = isFormula ? "'" + safe : safe
    return plain.contains(where: { ",\"".contains($0) }) ? "\"\(plain.replacing("\"", with: "\"\""))\"" : plain
}

func line(_ found: ScanData) -> String {
    let data = found.advertisementData
    let fields: [String] = [
        Date.now.formatted(.iso8601), found.peripheral.identifier.uuidString,
        data.localName ?? found.peripheral.name ?? "", found.rssi.map { "\($0)" } ?? "",
        data.serviceUUIDs.map(\.uuidString).joined(separator: " "),
        (data.manufacturerData ?? Data()).map { String(format: "%02x", $0) }.joined(),
    ]
    return fields.map(field).joined(separator: ",") + "\n"
}

@main
enum Scanner {
    static func main() async {
        let options = Options(CommandLine.arguments.dropFirst())
        let output = options.file.map(opened) ?? .standardOutput
        let central = CentralManager()
        do {
            try await central.waitUntilReady()
            // Not before: what was there stays if there is no Bluetooth.
            if options.file != nil { ftruncate(output.fileDescriptor, 0) }
            try output.write(contentsOf: Data("time,identifier,name,rssi,services,manufacturer\n".utf8))
            try await scan(central, options, to: output)
        } catch {
            fail(error.localizedDescription)
        }
    }

    /// A device or a pipe stays what it is, unlike with `FileManager.createFile`.
    static func opened(_ file: String) -> FileHandle {
        let descriptor = open(file, O_WRONLY | O_CREAT, 0o644)
        guard descriptor >= 0 else { fail("\(file) cannot be written: \(String(cString: strerror(errno)))") }
        return FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
    }

    static func scan(_ central: CentralManager, _ options: Options, to output: FileHandle) async throws {
        let scan = central.scanForPeripherals(allowDuplicates: options.reportsAll)
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { for try await found in scan { try output.write(contentsOf: Data(line(found).utf8)) } }
            if let seconds = options.seconds { group.addTask { try? await Task.sleep(for: .seconds(seconds)) } }
            // What ends first, the time or the scan, ends the other; an error ends both at once.
            _ = try await group.next()
            group.cancelAll()
            try await group.waitForAll()
        }
        if scan.droppedCount > 0 { fail("\(scan.droppedCount) reports were dropped, because the output is too slow") }
    }
}
