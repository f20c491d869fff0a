import Foundation

/// One message to one central: the frames that remain to be sent. Pure.
struct CardSender: Equatable {
    private enum Step: Equatable { case begin, data, end, done }

    private let card: Data
    private var step = Step.begin
    /// How much of the card has been sent, in bytes.
    private(set) var sent = 0

    init(_ card: Data) { self.card = Data(card) }

    var isDone: Bool { step == .done }

    /// Sends as many frames as there is room for.
    /// - Parameters:
    ///   - length: The longest frame that the central can receive now, in bytes.
    ///   - send: Sends a frame; false: there is no room, and the frame is not sent.
    mutating func send(upTo length: Int, by send: (Data) -> Bool) {
        while let (frame, next) = frame(upTo: max(length, CardProtocol.leastFrame)), send(frame) { self = next }
    }

    /// The next frame, and what remains when it has been sent.
    private func frame(upTo length: Int) -> (Data, CardSender)? {
        var next = self
        switch step {
        case .begin:
            next.step = card.isEmpty ? .end : .data
            var checksum = CRC32()
            checksum.take(card)
            return (Self.frame(.begin, [UInt32(clamping: card.count), checksum.value]), next)
        case .data:
            let head = Self.frame(.data, [UInt32(clamping: sent)])
            let piece = card.dropFirst(sent).prefix(length - head.count)
            next.sent += piece.count
            if next.sent == card.count { next.step = .end }
            return (head + piece, next)
        case .end:
            next.step = .done
            return (Self.frame(.end, []), next)
        case .done: return nil
        }
    }

    private static func frame(_ kind: CardProtocol.Kind, _ numbers: [UInt32]) -> Data {
        Data(
            [kind.rawValue]
                + numbers.flatMap { number in (0..<4).map { UInt8(truncatingIfNeeded: number >> (8 * $0)) } })
    }
}
