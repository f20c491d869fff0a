import BluezKit
import Foundation

/// What `ladder` needs of a peer, `ladder --peer`.
enum LadderProtocol {
    static let service = CBUUID(string: "0E9C0007-6B1A-4C57-8D3F-5A1E2B7C9D40")
    /// Counts what is written to it, with or without response.
    static let sink = CBUUID(string: "0E9C0008-6B1A-4C57-8D3F-5A1E2B7C9D40")
    /// Read: how many bytes the sink has received from this central, 8 bytes, little-endian.
    static let count = CBUUID(string: "0E9C0009-6B1A-4C57-8D3F-5A1E2B7C9D40")
    /// Notifies values of full length to its subscriber, as fast as it can.
    static let source = CBUUID(string: "0E9C000A-6B1A-4C57-8D3F-5A1E2B7C9D40")

    static func bytes(_ count: Int) -> Data {
        Data((0..<8).map { UInt8(truncatingIfNeeded: UInt64(count) >> (8 * $0)) })
    }

    /// Nil: not a count.
    static func number(_ bytes: Data) -> Int? {
        guard bytes.count == 8 else { return nil }
        return Int(exactly: bytes.reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) })
    }
}
