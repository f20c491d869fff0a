import Foundation

/// A device's address and address type, and the identifier by which an app knows it.
///
/// `CBPeripheral.identifier` is an RFC 9562 version-8 UUID that holds the identity address and its type, so it is the
/// same in every process and on every machine, and a peripheral can be retrieved from the UUID alone:
/// `426C7A4B-TT00-8000-8000-AAAAAAAAAAAA`: "BlzK", the address type (00 public, 01 random), the address.
struct DeviceIdentity: Hashable, Codable, Sendable {
    /// 48 bits, in the order in which they are written.
    let address: UInt64
    let isRandom: Bool

    init(address: UInt64, isRandom: Bool) {
        self.address = address & 0xFFFF_FFFF_FFFF
        self.isRandom = isRandom
    }

    /// From `Device1.Address` and `Device1.AddressType`. Nil if the text is not an address.
    init?(address text: UnsafePointer<CChar>, isRandom: Bool) {
        guard let address = Self.parse(text, separator: UInt8(ascii: ":")) else { return nil }
        self.init(address: address, isRandom: isRandom)
    }

    /// Whether it is what BlueZ has as the alias of a device without a name: its address, `F0-F1-F2-00-00-01`.
    static func isAlias(_ text: UnsafePointer<CChar>) -> Bool { parse(text, separator: UInt8(ascii: "-")) != nil }

    /// Nil if `identifier` was not made by BluezKit.
    init?(identifier: UUID) {
        let b = identifier.uuid
        guard (b.0, b.1, b.2, b.3) == (0x42, 0x6C, 0x7A, 0x4B), b.4 <= 1, b.5 == 0,
            (b.6, b.7, b.8, b.9) == (0x80, 0, 0x80, 0)
        else { return nil }
        let bytes = [b.10, b.11, b.12, b.13, b.14, b.15]
        self.init(address: bytes.reduce(0) { $0 << 8 | UInt64($1) }, isRandom: b.4 == 1)
    }

    var identifier: UUID {
        func byte(_ shift: Int) -> UInt8 { UInt8(truncatingIfNeeded: address >> UInt64(shift)) }
        return UUID(
            uuid: (
                0x42, 0x6C, 0x7A, 0x4B, isRandom ? 1 : 0, 0, 0x80, 0, 0x80, 0,
                byte(40), byte(32), byte(24), byte(16), byte(8), byte(0)
            ))
    }

    /// Whether it is a private address, which changes every few minutes and hides a bonded peer's identity address.
    var isResolvable: Bool { isRandom && address >> 46 == 0b01 }

    /// `F0:F1:F2:00:00:01`.
    var addressText: String { text(separator: ":") }

    /// The last element of the path that BlueZ gives a device when it creates the object, `dev_F0_F1_F2_00_00_01`.
    var pathElement: String { "dev_" + text(separator: "_") }

    private func text(separator: String) -> String {
        stride(from: 40, through: 0, by: -8).map { shift in
            let byte = UInt8(truncatingIfNeeded: address >> UInt64(shift))
            return (byte < 16 ? "0" : "") + String(byte, radix: 16, uppercase: true)
        }.joined(separator: separator)
    }

    private static func parse(_ text: UnsafePointer<CChar>, separator: UInt8) -> UInt64? {
        var address: UInt64 = 0
        for i in 0..<17 {
            let character = UInt8(bitPattern: text[i])  // a shorter text ends with a zero, which is not a digit
            if i % 3 == 2 {
                guard character == separator else { return nil }
            } else {
                guard let digit = Character(Unicode.Scalar(character)).hexDigitValue else { return nil }
                address = address << 4 | UInt64(digit)
            }
        }
        return text[17] == 0 ? address : nil
    }
}
