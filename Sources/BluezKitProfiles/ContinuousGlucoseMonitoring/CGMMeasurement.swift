public import BluezKit
import Foundation

/// Concentrations of glucose, characteristic 2AA7. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Continuous Glucose Monitoring Service 1.0.2, 3.1; GATT Specification Supplement, "CGM
///   Measurement".
public struct CGMMeasurement: StructuredValue, Hashable {
    /// 2AA7.
    public static let uuid = CBUUID(string: "2AA7")

    /// Oldest first. One that is cut off at the end of a value is left out.
    public var records: [Record] = []

    /// Without records.
    public init() {}

    /// Some records.
    public init(_ records: [Record]) { self.records = records }

    /// A concentration of glucose. BluezKit addition.
    public struct Record: Hashable, Sendable {
        /// In mg/dl.
        public var concentration = MedFloat16.notANumber
        /// In minutes since ``CGMSessionStartTime``.
        public var timeOffset: UInt16 = 0
        /// What was wrong.
        public var status: CGMSensorStatus = []
        /// How fast it changes, in mg/dl per minute; nil: not included.
        public var trend: MedFloat16?
        /// How good the measurement is, in %; nil: not included.
        public var quality: MedFloat16?
        /// It ends with a checksum, which was correct.
        public var isSecured = false

        /// No number.
        public init() {}

        /// A record with some fields set.
        public init(_ set: (inout Self) -> Void) {
            self.init()
            set(&self)
        }

        /// The fields after the size.
        fileprivate mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
            try fields.flags(bytes: 1)
            try fields.field("glucose concentration", &concentration)
            try fields.field("time offset", &timeOffset)
            // Only bytes with a flag that is set are transmitted.
            var octets = (0..<3).map { shift in
                let octet = UInt8(truncatingIfNeeded: status.rawValue >> (8 * shift))
                return octet == 0 ? nil : octet
            }
            for (index, bit) in [7, 6, 5].enumerated() {
                try fields.field("sensor status annunciation", &octets[index], ifBit: bit)
            }
            let bits = octets.reversed().reduce(0) { $0 << 8 | UInt32($1 ?? 0) }
            status = CGMSensorStatus(rawValue: bits).intersection(.assigned)
            try fields.field("trend information", &trend, ifBit: 0)
            try fields.field("quality", &quality, ifBit: 1)
        }
    }

    /// Reads or writes the records.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        guard fields.isReading else {
            for record in records {
                var bytes = record.bytes
                fields.rest(&bytes)
            }
            return
        }
        records = [try Record(&fields)]
        while let record = try Record(next: &fields) { records.append(record) }
    }
}

extension CGMMeasurement.Record {
    /// The size of a record without fields that can be left out.
    private static let smallest: UInt8 = 6

    /// The first record, without which there is no value.
    fileprivate init(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        var size: UInt8 = 0
        try fields.field("size", &size)
        guard size >= Self.smallest else { throw .reserved(field: "size", value: Int(size)) }
        try self.init(size, try fields.bytes("record", count: Int(size) - 1))
    }

    /// Nil: there is no other record, or its end is cut off.
    fileprivate init?(next fields: inout FieldCoder) throws(CharacteristicValueError) {
        var size: UInt8 = 0
        guard fields.bytesLeft > 0 else { return nil }
        try fields.field("size", &size)
        guard size >= Self.smallest, fields.bytesLeft >= Int(size) - 1 else { return nil }
        try self.init(size, try fields.bytes("record", count: Int(size) - 1))
    }

    private init(_ size: UInt8, _ bytes: Data) throws(CharacteristicValueError) {
        self.init()
        var fields = FieldCoder(reading: FieldReader(bytes: bytes))
        try code(&fields)
        let count = bytes.count - fields.bytesLeft
        // The checksum is that of the size as well.
        fields = FieldCoder(reading: FieldReader(bytes: Data([size]) + bytes))
        _ = try fields.bytes("record", count: 1 + count)
        try fields.e2eCRC(&isSecured)
    }

    fileprivate var bytes: Data {
        var (copy, fields) = (self, FieldCoder())
        try? copy.code(&fields)  // only reading throws
        let written = fields.written
        var record = Data([UInt8(written.count + (isSecured ? 3 : 1))]) + written
        if isSecured { record.append(record.e2eCRC) }
        return record
    }
}
