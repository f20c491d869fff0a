import BluezKit

/// How a business card goes from one machine to another: a service with one characteristic, which notifies.
///
/// A central that subscribes is sent a message, once; subscribing anew asks for it again. A message is a sequence of
/// frames, each of which is one notification, in order, of any length that the link allows (ATT_MTU - 3, at least 20):
///
///     01  length of the card, four bytes                    begins a message; what was not complete is void
///     02  the next one or more bytes of the card            as often as it takes, not at all if the card is empty
///     03  CRC-32 of the card, four bytes                    the end-of-message mark: the card is complete
///
/// Numbers have their least significant byte first. The kind of a frame is apart from what it carries, so that a card
/// may hold any bytes; Apple's sample "BTLE Transfer" (2012), whose idea this is, ends with the text `EOM`, which could
/// be in a card as well. Length and checksum find frames that were lost.
///
/// A notification can reach more centrals than it is for: frames before the first 01 belong to somebody else's message.
/// So there is one message on the way at a time; other centrals wait for theirs.
enum CardProtocol {
    static let service = CBUUID(string: "0E9C0001-6B1A-4C57-8D3F-5A1E2B7C9D40")
    static let characteristic = CBUUID(string: "0E9C0002-6B1A-4C57-8D3F-5A1E2B7C9D40")

    /// The first byte of a frame.
    enum Kind: UInt8 { case begin = 1, data, end }

    /// The largest card, in bytes, that is sent, and that is received if nothing else is asked for.
    static let sizeLimit = 1_000_000

    /// What every link carries in one notification, in bytes.
    static let leastFrame = 20
}

/// CRC-32 of IEEE 802.3, as zip and PNG have it, of bytes that come in pieces.
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
