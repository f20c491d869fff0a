import Foundation

/// Carries a byte stream in values of a characteristic: each begins with a byte that numbers it, modulo 128. Its
/// highest bit marks the first value of a session, with which both ends forget what was under way. Pure.
///
/// Values may overtake each other, because BlueZ distributes them over several bearers if both ends support EATT; and a
/// notification can be meant for another central. So the receiver puts them in order, and notices if one is missing.
struct ValueNumbering: Equatable {
    private static let start: UInt8 = 0x80
    /// How far a value may be ahead of the next one in order. Beyond that, that one is considered lost.
    static let window = 32

    private var next: UInt8 = 0
    private var isFirst = true

    /// Numbers the next value.
    mutating func number(_ piece: some Sequence<UInt8>) -> Data {
        defer { (next, isFirst) = ((next + 1) & ~Self.start, false) }
        return Data([next | (isFirst ? Self.start : 0)]) + piece
    }

    /// The values of the other end, in order.
    struct Order: Equatable {
        private var expected: UInt8?
        private var ahead: [UInt8: Data] = [:]

        /// Whether a session has begun.
        var hasBegun: Bool { expected != nil }

        static func beginsSession(_ value: Data) -> Bool { value.first.map { $0 & start != 0 } ?? false }

        /// - Returns: The pieces that are now in order.
        mutating func take(_ value: Data) throws(TransferError) -> [Data] {
            guard let head = value.first else { throw .unexpected("an empty value") }
            if head & start != 0 { (expected, ahead) = (head & ~start, [:]) }
            guard var position = expected else { throw .gap }
            let number = head & ~start
            let distance = (number &- position) & ~start
            if distance >= 128 - UInt8(window) { return [] }  // it came twice
            guard distance < window else { throw .gap }
            ahead[number] = value.dropFirst()
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
