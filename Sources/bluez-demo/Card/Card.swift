import BluezKitSimulator
import Foundation

/// A business card that is sent or received, in memory.
final class Card: TransferSource, TransferSink {
    /// The largest card, in bytes, that is sent, and that is received by default.
    static let sizeLimit = 1_000_000

    let offer: TransferOffer
    private(set) var bytes: Data
    /// Where a received card is written.
    private let path: String?

    var count: Int { bytes.count }

    /// To send it.
    init(_ bytes: Data, name: String) {
        (self.bytes, path) = (bytes, nil)
        offer = TransferOffer(name: name, size: bytes.count, digest: Self.digest(bytes))
    }

    /// To receive it.
    init(_ offer: TransferOffer, path: String? = nil) { (self.offer, self.path, bytes) = (offer, path, Data()) }

    private static func digest(_ bytes: Data) -> [UInt8] {
        var hash = SHA256()
        hash.update(bytes)
        return hash.digest
    }

    func block(at offset: Int) -> Data { bytes.dropFirst(offset).prefix(TransferProtocol.blockSize) }

    func append(_ bytes: Data) { self.bytes += bytes }

    func finish() throws(CardFile.Failure) -> Bool {
        guard Self.digest(bytes) == offer.digest else { return false }
        if let path { try CardFile.write(bytes, to: path) }
        return true
    }
}
