/// The value of the Heart Rate Measurement characteristic, 2A37.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, 3.113; Heart Rate Service 1.0, 3.1.
struct HeartRateMeasurement: Equatable, Sendable {
    /// Whether the sensor touches the skin.
    enum Contact: Equatable, Sendable { case notSupported, notDetected, detected }

    enum ParseError: Error, Equatable { case truncated(String) }

    var beatsPerMinute: Int
    var contact: Contact
    /// In kilojoules, since the sensor was reset; most send it with every tenth measurement only.
    var energyExpended: Int?
    /// Times between two beats, oldest first, in 1/1024 s.
    var rrIntervals: [Int]

    /// In milliseconds, to a tenth: the unit is a little less than one.
    var rrMilliseconds: [Double] { rrIntervals.map { (Double($0) * 10_000 / 1024).rounded() / 10 } }

    /// Reads a value as the radio delivered it. Bytes beyond the fields that the flags announce are left alone: later
    /// versions of the service may define them.
    init(_ bytes: some Sequence<UInt8>) throws(ParseError) {
        var rest = Array(bytes)[...]
        func byte(_ field: String) throws(ParseError) -> Int {
            guard let byte = rest.popFirst() else { throw .truncated(field) }
            return Int(byte)
        }
        func word(_ field: String) throws(ParseError) -> Int { try byte(field) | (byte(field) << 8) }

        let flags = try byte("flags")
        beatsPerMinute = flags & 0x01 == 0 ? try byte("heart rate") : try word("heart rate")
        contact = flags & 0x04 == 0 ? .notSupported : flags & 0x02 == 0 ? .notDetected : .detected
        energyExpended = flags & 0x08 == 0 ? nil : try word("energy expended")
        rrIntervals = []
        guard flags & 0x10 != 0 else { return }
        // One or more, up to the end.
        repeat { rrIntervals.append(try word("RR interval")) } while !rest.isEmpty
    }
}

extension HeartRateMeasurement.ParseError: CustomStringConvertible {
    var description: String {
        switch self {
        case .truncated(let field): "the measurement ends within its \(field)"
        }
    }
}
