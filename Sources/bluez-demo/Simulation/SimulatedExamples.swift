import BluezKitSimulator
import Foundation

/// What the programs of the package in `Examples` look for, besides a heart-rate sensor.
enum SimulatedExamples {
    private static let thermometer = "F0:AA:00:00:02:01"

    static var devices: [VirtualPeripheral] {
        let iBeacon: [UInt8] = [2, 21] + Array(1...16) + [0, 1, 0, 7, 0xC5]
        // A namespace and an instance, https://swift.org/, and the state of its battery.
        let eddystone: [[UInt8]] = [
            [0x00, 0xE7] + Array(1...16), [0x10, 0xEE, 3] + Array("swift".utf8) + [1],
            [0x20, 0, 0x0B, 0xB8, 0x15, 0x80, 0, 0, 0, 5, 0, 0, 0, 100],
        ]
        let beacons =
            [VirtualAdvertisement(manufacturerData: [0x4C: iBeacon], isConnectable: false)]
            + eddystone.map {
                VirtualAdvertisement(serviceUUIDs: ["FEAA"], serviceData: ["FEAA": $0], isConnectable: false)
            }
        return [
            VirtualPeripheral(
                thermometer, VirtualAdvertisement(localName: "Simulated Thermometer", serviceUUIDs: ["1809"]),
                services: [VirtualService("1809", [VirtualCharacteristic("2A1C", .indicate)])]), uart,
        ] + beacons.enumerated().map { VirtualPeripheral("F0:AA:00:00:03:0\($0)", $1) }
    }

    /// Starts what sends on its own.
    static func run(_ devices: [VirtualPeripheral]) {
        // In tenths of a degree Celsius: flags, 24 bits, and the exponent.
        devices.first { $0.address == thermometer }?.notifyRepeatedly("2A1C", every: .seconds(1)) {
            let tenths = 366 + Int((4 * sin(Double($0) / 7)).rounded())
            return [0, UInt8(tenths & 0xFF), UInt8(tenths >> 8), 0, 0xFF]
        }
    }

    private static func uuid(_ number: Int) -> String { "6e40000\(number)-b5a3-f393-e0a9-e50e24dcca9e" }

    /// Nordic UART Service; it answers with what it receives.
    private static var uart: VirtualPeripheral {
        let device = VirtualPeripheral(
            "F0:AA:00:00:02:02", VirtualAdvertisement(localName: "Simulated UART", serviceUUIDs: [uuid(1)]))
        let echo: @Sendable ([UInt8]) -> Void = { [weak device] in device?.notify(uuid(3), $0) }
        device.addService(
            VirtualService(
                uuid(1),
                [
                    VirtualCharacteristic(uuid(2), [.write, .writeWithoutResponse], write: echo),
                    VirtualCharacteristic(uuid(3), .notify),
                ]))
        return device
    }
}
