/// Reads the decisions of one run out of the fuzzer's bytes, so that a change of the input changes a decision. Where
/// the input has ended each decision is the dullest.
struct Choices {
    private let bytes: [UInt8]
    private var position = 0

    init(_ bytes: UnsafeBufferPointer<UInt8>) { self.bytes = Array(bytes) }

    var atEnd: Bool { position >= bytes.count }

    mutating func byte() -> UInt8 {
        guard !atEnd else { return 0 }
        defer { position += 1 }
        return bytes[position]
    }

    mutating func word() -> UInt16 { UInt16(byte()) << 8 | UInt16(byte()) }

    /// `0..<count`.
    mutating func roll(_ count: Int) -> Int {
        guard count > 1 else { return 0 }
        return (count <= 256 ? Int(byte()) : Int(word())) % count
    }

    mutating func pick<T>(_ list: [T]) -> T { list[roll(list.count)] }

    /// True in `percent` of all cases.
    mutating func chance(_ percent: Int) -> Bool { Int(byte()) * 100 / 256 >= 100 - percent }

    mutating func some(_ count: Int) -> [UInt8] { (0..<count).map { _ in byte() } }

    mutating func list<T>(_ most: Int, _ element: (inout Choices) -> T) -> [T] {
        (0..<roll(most + 1)).map { _ in element(&self) }
    }
}
