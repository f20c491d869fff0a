import BluezKit
import BluezKitSimulator
import Foundation

/// A simulated device nearby that shares a business card.
enum SimulatedCard {
    static let address = "F0:AA:00:00:01:01"

    static let card = """
        BEGIN:VCARD\r
        VERSION:4.0\r
        FN:Ada Lovelace\r
        TITLE:Programmer\r
        EMAIL:ada@example.org\r
        URL:https://example.org/analytical-engine\r
        NOTE:Simulated by BluezKit\r
        END:VCARD\r

        """

    static func peripheral() -> VirtualPeripheral {
        VirtualPeripheral(
            address, VirtualAdvertisement(serviceUUIDs: [CardProtocol.service.uuidString]),
            services: [
                VirtualService(
                    CardProtocol.service.uuidString,
                    [VirtualCharacteristic(CardProtocol.characteristic.uuidString, .notify)])
            ])
    }

    /// Sends the card repeatedly; a receiver starts at its beginning.
    static func send(by peripheral: VirtualPeripheral) {
        var frames: [[UInt8]] = []
        var sender = CardSender(Data(card.utf8))
        sender.send(upTo: CardProtocol.leastFrame) {
            frames.append([UInt8]($0))
            return true
        }
        let message = frames
        peripheral.notifyRepeatedly(CardProtocol.characteristic.uuidString, every: .milliseconds(40)) {
            message[$0 % message.count]
        }
    }
}
