import BluezKit
import BluezKitSimulator
import Foundation

/// A simulated device nearby that shares a business card.
enum SimulatedCard {
    static let card =
        [
            "BEGIN:VCARD", "VERSION:4.0", "FN:Ada Lovelace", "TITLE:Programmer", "EMAIL:ada@example.org",
            "URL:https://example.org/analytical-engine", "NOTE:Simulated by BluezKit", "END:VCARD", "",
        ].joined(separator: "\r\n")

    /// Sends it to every central that asks, until the process ends.
    static func peripheral() -> VirtualPeripheral {
        let service = TransferProtocol.card.uuidString
        let toCentral = TransferProtocol.toCentral.uuidString
        let (values, continuation) = AsyncStream.makeStream(of: [UInt8].self)
        let device = VirtualPeripheral(
            "F0:AA:00:00:01:01", VirtualAdvertisement(serviceUUIDs: [service]),
            services: [
                VirtualService(
                    service,
                    [
                        VirtualCharacteristic(
                            TransferProtocol.toPeripheral.uuidString, .write, write: { continuation.yield($0) }),
                        VirtualCharacteristic(toCentral, .notify),
                    ])
            ])
        Task {
            while !Task.isCancelled {
                let sender = TransferSender(Card(Data(card.utf8), name: "ada.vcf"), confirmsEnd: false)
                try? await exchange(sender, isPeripheral: true, values) { device.notify(toCentral, $0) }
            }
        }
        return device
    }

    /// Carries the values of one end, until it has sent and received all that it needs.
    static func exchange(
        _ end: any TransferEnd, isPeripheral: Bool, _ values: AsyncStream<[UInt8]>,
        send: ([UInt8]) async throws -> Void
    ) async throws {
        var pipe = TransferPipe(end, isPeripheral: isPeripheral)
        if !isPeripheral { pipe.begin() }
        var incoming = values.makeAsyncIterator()
        while true {
            var outgoing: [Data] = []
            try pipe.sendValues(upTo: TransferProtocol.valueLengths.lowerBound) {
                outgoing.append($0)
                return true
            }
            for value in outgoing { try await send([UInt8](value)) }
            guard !end.isSettled, let value = await incoming.next() else { return }
            try pipe.take(value: Data(value))
        }
    }
}
