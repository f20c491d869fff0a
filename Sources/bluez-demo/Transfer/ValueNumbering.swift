import Foundation

/// Carries a byte stream in values of a characteristic: each begins with two bytes that number it, modulo 32,768, in
/// little-endian order. Their highest bit marks the first value of a session, with which both ends forget what was
/// under way. Pure.
///
/// Values overtake each other, because BlueZ distributes them over several bearers if both ends support EATT; and a
/// notification can be meant for another central. So the receiver puts them in order, and notices if one is missing.
struct ValueNumbering: Equatable {
    private static let start: UInt16 = 0x8000
    /// How far a value may be ahead of the next one in order, which bounds the memory for those that wait. Beyond that,
    /// the next one is considered lost. One bearer may have to wait while another is fast.
    static let window: UInt16 = 4096
    /// The bytes before each piece.
    static let headerLength = 2

    private var next: UInt16 = 0
    private var isFirst = true

    /// Numbers the next value.
    mutating func number(_ piece: some Sequence<UInt8>) -> Data {
        let head = next | (isFirst ? Self.start : 0)
        (next, isFirst) = ((next + 1) & ~Self.start, false)
        return Data([UInt8(truncatingIfNeeded: head), UInt8(head >> 8)]) + piece
    }

    private static func head(of value: Data) -> UInt16? {
        value.count < headerLength
            ? nil : UInt16(value[value.startIndex]) | UInt16(value[value.startIndex + 1]) << 8
    }

    /// The values of the other end, in order.
    struct Order: Equatable {
        private var expected: UInt16?
        private var ahead: [UInt16: Data] = [:]

        /// Whether a session has begun.
        var hasBegun: Bool { expected != nil }

        /// Whether values wait for one that has not arrived.
        var hasGap: Bool { !ahead.isEmpty }

        static func beginsSession(_ value: Data) -> Bool { head(of: value).map { $0 & start != 0 } ?? false }

        /// - Returns: The pieces that are now in order.
        mutating func take(_ value: Data) throws(TransferError) -> [Data] {
            guard let head = head(of: value) else { throw .unexpected("a value of \(value.count) bytes") }
            if head & start != 0 { (expected, ahead) = (head & ~start, [:]) }
            guard var position = expected else { throw .gap }
            let number = head & ~start
            let distance = (number &- position) & ~start
            if distance >= start - window { return [] }  // it came twice
            guard distance < window else { throw .gap }
            ahead[number] = value.dropFirst(ValueNumbering.headerLength)
            var pieces: [Data] = []
            while let piece = ahead.removeValue(forKey: position) {
                pieces.append(piece)
                position = (position + 1) & ~start
            }
            expected = position
            return pieces
        }
    }
}
