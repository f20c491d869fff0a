/// Reads or writes numbers that share a field, the one in its lowest bits first.
struct PackedBits {
    private let isReading: Bool
    fileprivate var bits: UInt64
    private var position = 0

    fileprivate init(bits: UInt64, isReading: Bool) { (self.bits, self.isReading) = (bits, isReading) }

    mutating func number(_ number: inout UInt8, bits width: Int) {
        let mask: UInt64 = 1 << width - 1
        if isReading {
            number = UInt8(bits >> position & mask)
        } else {
            bits |= (UInt64(number) & mask) << position
        }
        position += width
    }

    mutating func flag(_ isSet: inout Bool) {
        var number: UInt8 = isSet ? 1 : 0
        self.number(&number, bits: 1)
        isSet = number == 1
    }

    mutating func field<V: EnumeratedValue>(_ value: inout Assigned<V>, bits width: Int) {
        var number = value.projectedValue ?? V().rawValue
        self.number(&number, bits: width)
        value.projectedValue = number
    }
}

extension FieldCoder {
    /// A field of several numbers.
    mutating func packed(
        _ name: String, bytes: Int, _ code: (inout PackedBits) -> Void
    ) throws(CharacteristicValueError) {
        var packed = PackedBits(bits: 0, isReading: false)
        if !isReading { code(&packed) }
        try bits(name, &packed.bits, bytes: bytes)
        guard isReading else { return }
        packed = PackedBits(bits: packed.bits, isReading: true)
        code(&packed)
    }
}
