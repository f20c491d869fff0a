import Foundation

/// Puts a card together from the frames of a message. Pure; any bytes may come.
struct CardReceiver {
    enum Progress: Equatable {
        /// The frame belongs to a message that began before.
        case ignored
        case received(Int, of: Int)
        case complete(Data)
    }

    /// The largest card that is accepted, in bytes.
    let limit: Int
    private var card = Data()
    /// What the message announced; nil: none has begun.
    private var size: Int?
    private var checksum = CRC32()

    init(limit: Int) { self.limit = limit }

    mutating func take(_ frame: Data) throws(CardError) -> Progress {
        guard let kind = frame.first.flatMap(CardProtocol.Kind.init) else { throw .unknownFrame(frame.first) }
        let rest = frame.dropFirst()
        if kind == .begin {
            let size = Int(try Self.number(rest, of: frame))
            guard size <= limit else { throw .tooLarge(size, limit: limit) }
            (card, self.size, checksum) = (Data(), size, CRC32())
            return .received(0, of: size)
        }
        guard let size else { return .ignored }
        switch kind {
        case .begin, .data:
            guard !rest.isEmpty else { throw .malformedFrame([UInt8](frame)) }
            guard card.count + rest.count <= size else { throw .tooMuch(of: size) }
            card += rest
            checksum.take(rest)
            return .received(card.count, of: size)
        case .end:
            let expected = try Self.number(rest, of: frame)
            guard card.count == size else { throw .incomplete(card.count, of: size) }
            guard checksum.value == expected else { throw .damaged }
            self.size = nil
            return .complete(card)
        }
    }

    private static func number(_ bytes: Data, of frame: Data) throws(CardError) -> UInt32 {
        guard bytes.count == 4 else { throw .malformedFrame([UInt8](frame)) }
        return bytes.reversed().reduce(0) { $0 << 8 | UInt32($1) }
    }
}

/// Why a message is no card.
enum CardError: Error, Equatable {
    case tooLarge(Int, limit: Int)
    case tooMuch(of: Int)
    case incomplete(Int, of: Int)
    case damaged
    case unknownFrame(UInt8?)
    case malformedFrame([UInt8])

    /// Whether some frames were lost on the way, so that asking again may help.
    var isLoss: Bool {
        switch self {
        case .incomplete, .damaged: true
        default: false
        }
    }
}

extension CardError: LocalizedError {
    /// One sentence, without the full stop.
    var errorDescription: String? {
        switch self {
        case .tooLarge(let size, let limit):
            "the card has \(size) bytes, more than the \(limit) that are accepted; --max-size \(size) would take it"
        case .tooMuch(let size): "more came than the \(size) bytes that were announced; the sender is faulty"
        case .incomplete(let count, let size): "only \(count) of \(size) bytes arrived"
        case .damaged: "the card was damaged on the way: its checksum is wrong"
        case .unknownFrame(nil): "an empty notification came; the sender is faulty"
        case .unknownFrame(let kind?):
            "the sender speaks another protocol: there is no kind of frame \(kind); use the same version at both ends"
        case .malformedFrame(let frame):
            "a frame of the wrong length came (\(frame.prefix(20).hex)); the sender is faulty"
        }
    }
}
