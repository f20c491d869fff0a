/// Reads bytes that others have written: nil where they end too early.
struct CapturedBytes {
    private(set) var rest: ArraySlice<UInt8>

    init(_ bytes: ArraySlice<UInt8>) { rest = bytes }

    mutating func take(_ count: Int) -> ArraySlice<UInt8>? {
        guard count >= 0, count <= rest.count else { return nil }
        defer { rest = rest.dropFirst(count) }
        return rest.prefix(count)
    }

    mutating func byte() -> UInt8? { rest.popFirst() }

    /// Little-endian, as all numbers over the air.
    mutating func word() -> UInt16? {
        guard let bytes = take(2), let low = bytes.first, let high = bytes.last else { return nil }
        return UInt16(low) | UInt16(high) << 8
    }

    /// Big-endian, as in the headers of btsnoop.
    mutating func big32() -> UInt32? { take(4)?.reduce(0) { $0 << 8 | UInt32($1) } }
    mutating func big64() -> UInt64? { take(8)?.reduce(0) { $0 << 8 | UInt64($1) } }

    /// A device address, as texts show it.
    mutating func address() -> String? {
        take(6)?.reversed().map { Hex.byte($0).uppercased() }.joined(separator: ":")
    }
}
