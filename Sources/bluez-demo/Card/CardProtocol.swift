import BluezKit

/// The transfer of a business card from one machine to another: a service with one characteristic, which notifies; and
/// to which a receiver that does not want the card writes why.
///
/// A central that subscribes is sent one message; subscribing again requests it again. A message is a sequence of
/// frames, each of which is one notification of any length that the link allows (ATT_MTU - 3, at least 20):
///
///     01  length of the card, CRC-32 of the card            start of a message
///     02  offset, and the bytes of the card from there      repeated as needed, absent if the card is empty
///     03                                                    end of the message: everything was sent
///
/// Numbers are four bytes, little-endian. The type of a frame is separate from its content, so that a card may contain
/// any bytes; Apple's sample "BTLE Transfer" (2012), on which this is based, ends with the text `EOM`, which could also
/// occur in a card.
///
/// Frames may overtake each other, because BlueZ distributes notifications over several bearers if both ends support
/// the Enhanced Attribute Protocol. A notification can also reach other centrals than the intended one, so frames of
/// another central's message may arrive before, between and after; they belong to the same card. Therefore each piece
/// carries its offset, and the card is complete when all pieces are there. One message is sent at a time; other
/// centrals wait for theirs.
enum CardProtocol {
    static let service = CBUUID(string: "0E9C0001-6B1A-4C57-8D3F-5A1E2B7C9D40")
    static let characteristic = CBUUID(string: "0E9C0002-6B1A-4C57-8D3F-5A1E2B7C9D40")

    /// The first byte of a frame.
    enum Kind: UInt8 { case begin = 1, data, end }

    /// The first byte of a refusal; its reason follows, in UTF-8.
    static let refusal: UInt8 = 4

    /// The largest card, in bytes, that is sent, and that is received by default.
    static let sizeLimit = 1_000_000

    /// The number of bytes that every link carries in one notification.
    static let leastFrame = 20
}

/// CRC-32 of IEEE 802.3, as used by zip and PNG, of bytes that arrive in pieces.
struct CRC32: Equatable {
    private var register: UInt32 = .max

    var value: UInt32 { ~register }

    mutating func take(_ bytes: some Sequence<UInt8>) {
        for byte in bytes { register = Self.table[Int(UInt8(truncatingIfNeeded: register) ^ byte)] ^ (register >> 8) }
    }

    private static let table = (UInt32(0)...255).map { byte in
        (0..<8).reduce(byte) { rest, _ in rest & 1 == 0 ? rest >> 1 : rest >> 1 ^ 0xEDB8_8320 }
    }
}
