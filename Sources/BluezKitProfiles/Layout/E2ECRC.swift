import Foundation

extension Data {
    /// The checksum by which medical devices protect a value from end to end: CRC-CCITT, D16 + D12 + D5 + 1, seed
    /// 0xFFFF, the lowest bit of each byte first.
    /// - SeeAlso: Bluetooth SIG, Continuous Glucose Monitoring Service 1.0.2, 3.11.
    var e2eCRC: UInt16 {
        reduce(0xFFFF) { checksum, byte in
            (0..<8).reduce(checksum ^ UInt16(byte)) { rest, _ in rest & 1 == 1 ? rest >> 1 ^ 0x8408 : rest >> 1 }
        }
    }
}
