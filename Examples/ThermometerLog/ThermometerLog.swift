// Writes the measurements of a Bluetooth thermometer (Health Thermometer Service) into an SQLite database.
import CSQLite
import CoreBluetooth
import CoreBluetoothAsync
import Foundation

let usage = """
    usage: thermometer-log [--count N] FILE

    Looks for a thermometer, connects to it, and adds each of its measurements to the table `measurements` of FILE, an
    SQLite database, which is made if it does not exist. Continues when the thermometer was out of range.

      --count N  stop after N measurements
      --help     print this text
    """

func fail(_ problem: String) -> Never {
    try? FileHandle.standardError.write(contentsOf: Data("thermometer-log: \(problem)\n".utf8))
    exit(1)
}

/// The value of Temperature Measurement (2A1C), in degrees Celsius: flags, and an IEEE 11073 FLOAT.
struct Temperature {
    struct Malformed: Error, CustomStringConvertible { let description: String }
    let celsius: Double

    init(_ data: Data) throws {
        let bytes = Array(data)
        guard bytes.count >= 5 else {
            throw Malformed(description: "a measurement has \(bytes.count) bytes, not 5 or more")
        }
        let mantissa = Int32(bitPattern: UInt32(bytes[3]) << 24 | UInt32(bytes[2]) << 16 | UInt32(bytes[1]) << 8) >> 8
        // The ends of the range stand for "not a number" and the like.
        guard abs(mantissa) < 0x7F_FFFE else { throw Malformed(description: "the thermometer has no measurement") }
        let value = Double(mantissa) * pow(10, Double(Int8(bitPattern: bytes[4])))
        celsius = bytes[0] & 1 == 0 ? value : (value - 32) / 1.8
        guard (-273.15...10_000).contains(celsius) else {
            throw Malformed(description: "\(celsius) °C is no temperature")
        }
    }
}

/// The file. Used by one task.
final class Database {
    struct Failure: Error, CustomStringConvertible { let description: String }
    private var connection: OpaquePointer?
    private var insert: OpaquePointer?

    init(_ file: String) throws {
        try check(sqlite3_open(file, &connection))
        let table =
            "CREATE TABLE IF NOT EXISTS measurements (time TEXT NOT NULL, device TEXT NOT NULL, celsius REAL NOT NULL)"
        try check(sqlite3_exec(connection, table, nil, nil, nil))
        try check(sqlite3_prepare_v2(connection, "INSERT INTO measurements VALUES (?, ?, ?)", -1, &insert, nil))
    }

    deinit {
        sqlite3_finalize(insert)
        sqlite3_close(connection)
    }

    func add(_ celsius: Double, of device: UUID) throws {
        sqlite3_reset(insert)
        for (index, text) in [(Int32(1), Date.now.formatted(.iso8601)), (2, device.uuidString)] {
            // The last argument: SQLite makes a copy.
            try check(sqlite3_bind_text(insert, index, text, -1, unsafeBitCast(-1, to: sqlite3_destructor_type.self)))
        }
        try check(sqlite3_bind_double(insert, 3, celsius))
        try check(sqlite3_step(insert))
    }

    private func check(_ result: Int32) throws {
        guard ![SQLITE_OK, SQLITE_DONE].contains(result) else { return }
        throw Failure(description: "the database cannot be used: \(String(cString: sqlite3_errmsg(connection)))")
    }
}

@main
enum ThermometerLog {
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
        guard arguments.count == 1, !arguments[0].hasPrefix("-") else { fail("it takes one file; see --help") }
        do {
            try await log(count, to: Database(arguments[0]))
        } catch let failure as Database.Failure { fail(failure.description) } catch { fail(error.localizedDescription) }
    }

    static func log(_ count: Int, to database: Database) async throws {
        let service = CBUUID(string: "1809")
        let central = CentralManager()
        var left = count
        try await central.waitUntilReady()
        let scan = central.scanForPeripherals(withServices: [service])
        guard let thermometer = try await scan.first(where: { _ in true })?.peripheral else { return }
        while true {
            try await central.connect(thermometer)  // waits until it is in range
            do {
                let measurement = try await thermometer.discoverCharacteristic(CBUUID(string: "2A1C"), in: service)
                for try await data in thermometer.values(for: measurement) {
                    do {
                        try database.add(try Temperature(data).celsius, of: thermometer.identifier)
                        left -= 1
                    } catch let problem as Temperature.Malformed {
                        try? FileHandle.standardError.write(contentsOf: Data("thermometer-log: \(problem)\n".utf8))
                    }
                    if left == 0 { return }
                }
            } catch is CBError {}  // the connection was lost
        }
    }
}
