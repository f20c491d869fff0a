import Foundation

/// Assembles a card from the frames of messages, in any order. Pure; accepts any bytes.
struct CardReceiver {
    enum Progress: Equatable {
        /// The size of the card is not known yet.
        case unannounced
        case received(Int, of: Int)
        case complete(Data)
    }

    /// The largest card that is accepted, in bytes.
    let limit: Int
    private var announced: (size: Int, checksum: UInt32)?
    /// The bytes received so far, and the gaps.
    private var card: [UInt8?] = []
    /// The number of bytes received.
    private var count = 0
    private var hasEnded = false

    init(limit: Int) { self.limit = limit }

    /// The number of missing bytes, if everything was sent; otherwise nil.
    var missing: Int? { hasEnded ? announced.map { $0.size - count } : nil }

    /// The card was requested again. The bytes received so far are kept.
    mutating func askAgain() { hasEnded = false }

    mutating func take(_ frame: Data) throws(CardError) -> Progress {
        guard let kind = frame.first.flatMap(CardProtocol.Kind.init) else { throw .unknownFrame(frame.first) }
        var rest = frame.dropFirst()
        switch kind {
        case .begin:
            let (size, checksum) = (Int(clamping: try Self.number(&rest, of: frame)), try Self.number(&rest, of: frame))
            guard rest.isEmpty else { throw .malformedFrame([UInt8](frame)) }
            try begin(size, checksum)
        case .data:
            let offset = Int(clamping: try Self.number(&rest, of: frame))
            guard !rest.isEmpty else { throw .malformedFrame([UInt8](frame)) }
            try put([UInt8](rest), at: offset)
        case .end:
            guard rest.isEmpty else { throw .malformedFrame([UInt8](frame)) }
            hasEnded = true
        }
        return try progress()
    }

    private mutating func begin(_ size: Int, _ checksum: UInt32) throws(CardError) {
        guard size <= limit else { throw .tooLarge(size, limit: limit) }
        // A card other than the one received so far?
        if let announced, announced != (size, checksum) { self = CardReceiver(limit: limit) }
        if card.count > size { self = CardReceiver(limit: limit) }
        announced = (size, checksum)
    }

    private mutating func put(_ bytes: [UInt8], at offset: Int) throws(CardError) {
        let size = announced?.size ?? limit
        // On 32-bit machines the sum may exceed `Int`.
        guard bytes.count <= size, offset <= size - bytes.count else { throw .tooMuch(of: size) }
        let end = offset + bytes.count
        if card.count < end { card += repeatElement(nil, count: end - card.count) }
        for (index, byte) in zip(offset..<end, bytes) {
            if card[index] == nil { count += 1 }
            card[index] = byte
        }
    }

    private mutating func progress() throws(CardError) -> Progress {
        guard let (size, expected) = announced else { return .unannounced }
        guard hasEnded, count == size else { return .received(count, of: size) }
        let whole = card.compactMap(\.self)
        self = CardReceiver(limit: limit)
        var checksum = CRC32()
        checksum.take(whole)
        guard checksum.value == expected else { throw .damaged }
        return .complete(Data(whole))
    }

    private static func number(_ bytes: inout Data, of frame: Data) throws(CardError) -> UInt32 {
        guard bytes.count >= 4 else { throw .malformedFrame([UInt8](frame)) }
        defer { bytes = bytes.dropFirst(4) }
        return bytes.prefix(4).reversed().reduce(0) { $0 << 8 | UInt32($1) }
    }
}

/// Why a message is not a valid card.
enum CardError: Error, Equatable {
    case tooLarge(Int, limit: Int)
    case tooMuch(of: Int)
    case damaged
    case unknownFrame(UInt8?)
    case malformedFrame([UInt8])
}

extension CardError: LocalizedError {
    /// One sentence, without a full stop.
    var errorDescription: String? {
        switch self {
        case .tooLarge(let size, let limit):
            "the card has \(size) bytes, more than the \(limit) that are accepted; --max-size \(size) would take it"
        case .tooMuch(let size): "more came than the \(size) bytes that were announced; the sender is faulty"
        case .damaged: "the card was damaged on the way: its checksum is wrong"
        case .unknownFrame(nil): "an empty notification came; the sender is faulty"
        case .unknownFrame(let kind?):
            "the sender speaks another protocol: there is no kind of frame \(kind); use the same version at both ends"
        case .malformedFrame(let frame):
            "a frame of the wrong length came (\(frame.prefix(20).hex)); the sender is faulty"
        }
    }
}
