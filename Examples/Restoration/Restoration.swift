// Prints heart rates. Kill it with kill -9 and start it again: it is connected and subscribed, without a scan.
import CoreBluetooth
import CoreBluetoothAsync
import Foundation

@main
enum Restoration {
    static func main() async {
        let arguments = CommandLine.arguments.dropFirst()
        if arguments == ["--help"] {
            return print("usage: restoration\n\nPrints what a heart-rate sensor measures. Kill it, and start it again.")
        }
        guard arguments.isEmpty else { fail("it takes no arguments; see --help") }
        do { try await run() } catch { fail(error.localizedDescription) }
    }

    static func fail(_ problem: String) -> Never {
        try? FileHandle.standardError.write(contentsOf: Data("restoration: \(problem)\n".utf8))
        exit(1)
    }

    static func run() async throws {
        let service = CBUUID(string: "180D")
        let central = CentralManager(options: [CBCentralManagerOptionRestoreIdentifierKey: "restoration-example"])
        let restored = await central.restoredState.first { _ in true }
        try await central.waitUntilReady()
        var sensor = restored?.peripherals.first
        try say(sensor == nil ? "Looking for a sensor." : "Restored.")
        let scan = sensor == nil ? central.scanForPeripherals(withServices: [service]) : nil
        if let scan { sensor = try await scan.first { _ in true }?.peripheral }
        guard let sensor else { return }
        while true {
            try await central.connect(sensor)  // at once, if it was restored
            do {
                let measurement = try await sensor.discoverCharacteristic(CBUUID(string: "2A37"), in: service)
                for try await value in sensor.values(for: measurement) where value.count > 1 {
                    try say("\(value[value.startIndex + 1]) bpm")
                }
            } catch is CBError { try say("The connection was lost.") }
        }
    }

    static func say(_ line: String) throws { try FileHandle.standardOutput.write(contentsOf: Data("\(line)\n".utf8)) }
}
