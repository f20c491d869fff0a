// Prints the beacons around: iBeacon, and Eddystone UID, URL and telemetry.
import CoreBluetooth
import CoreBluetoothAsync
import Foundation

let usage = """
    usage: beacon-watch [--count N] [--help]

    Prints a line for each beacon that is received: iBeacon, and Eddystone-UID, -URL and -TLM.

      --count N  stop after N lines
      --help     print this text
    """

func fail(_ problem: String) -> Never {
    try? FileHandle.standardError.write(contentsOf: Data("beacon-watch: \(problem)\n".utf8))
    exit(1)
}

/// Why data that claim to be a beacon's are none.
struct Malformed: Error, CustomStringConvertible { let description: String }

enum Beacon: Equatable {
    case iBeacon(UUID, major: UInt16, minor: UInt16, power: Int8)
    case uid(namespace: String, instance: String, power: Int8)
    case url(String, power: Int8)
    /// A beacon without a battery or a thermometer says so: 0 mV, and the lowest temperature.
    case telemetry(millivolts: Int?, celsius: Double?, packets: UInt32, seconds: Double)

    /// - Returns: nil if it is no beacon.
    init?(_ advertisement: AdvertisementData) throws {
        if let data = advertisement.manufacturerData.map(Array.init), data.starts(with: [0x4C, 0, 2]) {
            self = try Self(iBeacon: data)
        } else if let data = advertisement.serviceData[CBUUID(string: "FEAA")].map(Array.init) {
            self = try Self(eddystone: data)
        } else {
            return nil
        }
    }

    init(iBeacon data: [UInt8]) throws {
        guard data.count == 25 else {
            throw Malformed(description: "an iBeacon has \(data.count) bytes, not 25")
        }
        guard data[3] == 21 else {
            throw Malformed(description: "an iBeacon says that \(data[3]) bytes follow, not 21")
        }
        let uuid = NSUUID(uuidBytes: Array(data[4..<20])) as UUID
        self = .iBeacon(
            uuid, major: UInt16(data[20]) << 8 | UInt16(data[21]), minor: UInt16(data[22]) << 8 | UInt16(data[23]),
            power: Int8(bitPattern: data[24]))
    }

    init(eddystone data: [UInt8]) throws {
        func number(_ range: Range<Int>) -> UInt32 { data[range].reduce(0) { $0 << 8 | UInt32($1) } }
        func hex(_ range: Range<Int>) -> String { data[range].map { String(format: "%02x", $0) }.joined() }
        guard data.count >= 2 else { throw Malformed(description: "an Eddystone frame has only \(data.count) bytes") }
        let power = Int8(bitPattern: data[1])
        switch (data[0], data.count) {
        case (0x00, 18...): self = .uid(namespace: hex(2..<12), instance: hex(12..<18), power: power)
        case (0x10, 3...): self = .url(try Self.url(data[2...]), power: power)
        case (0x20, 14...) where data[1] == 0:
            let (millivolts, temperature) = (Int(number(2..<4)), Int16(truncatingIfNeeded: number(4..<6)))
            self = .telemetry(
                millivolts: millivolts == 0 ? nil : millivolts,
                celsius: temperature == .min ? nil : Double(temperature) / 256, packets: number(6..<10),
                seconds: Double(number(10..<14)) / 10)
        default:
            throw Malformed(
                description: "an Eddystone frame of type \(data[0]) with \(data.count) bytes is unknown or too short")
        }
    }

    private static func url(_ data: ArraySlice<UInt8>) throws -> String {
        let schemes = ["http://www.", "https://www.", "http://", "https://"]
        let ends = [".com", ".org", ".edu", ".net", ".info", ".biz", ".gov"]
        guard let first = data.first, Int(first) < schemes.count else {
            throw Malformed(description: "an Eddystone URL begins with an unknown scheme")
        }
        return try data.dropFirst().reduce(into: schemes[Int(first)]) { url, byte in
            switch Int(byte) {
            case 0..<7: url += ends[Int(byte)] + "/"
            case 7..<14: url += ends[Int(byte) - 7]
            case 0x21..<0x7F: url.unicodeScalars.append(Unicode.Scalar(byte))
            default: throw Malformed(description: "an Eddystone URL contains the byte \(byte)")
            }
        }
    }
}

extension Beacon: CustomStringConvertible {
    var description: String {
        switch self {
        case .iBeacon(let uuid, let major, let minor, let power): "iBeacon \(uuid) \(major) \(minor) power \(power)"
        case .uid(let namespace, let instance, let power): "Eddystone UID \(namespace) \(instance) power \(power)"
        case .url(let url, let power): "Eddystone URL \(url) power \(power)"
        case .telemetry(let millivolts, let celsius, let packets, let seconds):
            "Eddystone TLM" + (millivolts.map { " \($0) mV" } ?? "") + (celsius.map { " \($0) °C" } ?? "")
                + " \(packets) packets \(seconds) s"
        }
    }
}

@main
enum BeaconWatch {
    static func main() async {
        let arguments = Array(CommandLine.arguments.dropFirst())
        if arguments == ["--help"] { return print(usage) }
        let count = arguments.count == 2 && arguments[0] == "--count" ? Int(arguments[1]) ?? 0 : 0
        guard arguments.isEmpty || count > 0 else { fail("only --count with a number above 0 is possible; see --help") }
        var left = arguments.isEmpty ? Int.max : count
        do {
            let central = CentralManager()
            for try await found in central.scanForPeripherals(allowDuplicates: true) {
                let who = "\(found.peripheral.identifier) \(found.rssi ?? 127) dBm"
                let line: String
                do {
                    guard let beacon = try Beacon(found.advertisementData) else { continue }
                    line = "\(who) \(beacon)\n"
                } catch {
                    try? FileHandle.standardError.write(contentsOf: Data("\(who) \(error)\n".utf8))
                    continue  // it is not one of the lines that --count counts
                }
                try FileHandle.standardOutput.write(contentsOf: Data(line.utf8))
                left -= 1
                if left == 0 { return }
            }
        } catch { fail(error.localizedDescription) }
    }
}
