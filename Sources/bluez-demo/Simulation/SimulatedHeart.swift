import BluezKitProfiles
import BluezKitSimulator
import Foundation

/// A heart-rate sensor whose wearer is walking.
enum SimulatedHeart {
    static func peripheral(_ address: String) -> VirtualPeripheral {
        func text(_ uuid: String, _ value: String) -> VirtualCharacteristic {
            VirtualCharacteristic(uuid, .read, value: Array(value.utf8))
        }
        return VirtualPeripheral(
            address, VirtualAdvertisement(localName: "Simulated Heart", serviceUUIDs: ["180D", "180F"]),
            services: [
                VirtualService(
                    "180D",
                    [
                        VirtualCharacteristic("2A37", .notify, value: [0, 60]),
                        VirtualCharacteristic("2A38", .read, value: [BodySensorLocation.chest.rawValue]),
                    ]),
                VirtualService("180F", [VirtualCharacteristic("2A19", [.read, .notify], value: [87])]),
                VirtualService(
                    "180A",
                    [text("2A29", "BluezKit"), text("2A24", "Simulated sensor"), text("2A26", "1.0")]),
            ])
    }

    /// The value of 2A37 for the beat with this number: rate, skin contact, one RR interval, and the energy with every
    /// tenth.
    @Sendable static func measurement(_ beat: Int) -> [UInt8] {
        measurement(beat, energy: beat % 10 == 9 ? beat / 3 : nil)
    }

    /// Likewise, with the number of the beat in place of the energy.
    @Sendable static func numbered(_ beat: Int) -> [UInt8] { measurement(beat, energy: beat) }

    private static func measurement(_ beat: Int, energy: Int?) -> [UInt8] {
        let time = Double(beat)
        let rate = 82 + 13 * sin(time / 19) + 4 * sin(time / 4.3) + 1.5 * sin(time * 1.7)
        let interval = Int((60 / rate * 1024).rounded())
        var value: [UInt8] = [energy == nil ? 0x16 : 0x1E, UInt8(rate.rounded())]
        if let energy { value += bytes(energy) }
        return value + bytes(interval)
    }

    private static func bytes(_ number: Int) -> [UInt8] { [UInt8(number & 0xFF), UInt8(number >> 8 & 0xFF)] }
}
