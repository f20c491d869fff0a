import BluezKit

/// How a business card goes from one machine to another: a service with one characteristic, which notifies.
///
/// A central that subscribes is sent a message, once; subscribing anew asks for it again. A message is a sequence of
/// frames, each of which is one notification of any length that the link allows (ATT_MTU - 3, at least 20):
///
///     01  length of the card, CRC-32 of the card            begins a message
///     02  offset, and the bytes of the card from there on   as often as it takes, not at all if the card is empty
///     03                                                    the end-of-message mark: everything was sent
///
/// Numbers have four bytes, the least significant one first. The kind of a frame is apart from what it carries, so that
/// a card may hold any bytes; Apple's sample "BTLE Transfer" (2012), whose idea this is, ends with the text `EOM`, which
/// could be in a card as well.
///
/// Frames may overtake each other: BlueZ spreads notifications over several bearers where both ends have the Enhanced
/// Attribute Protocol. And a notification can reach more centrals than it is for, so frames of somebody else's message
/// may come before, between and after; they are of the same card. Therefore each piece says where it belongs, and the
/// card is complete when all of it is there. One message is on the way at a time; other centrals wait for theirs.
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
