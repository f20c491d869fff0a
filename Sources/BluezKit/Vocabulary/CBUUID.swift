public import Foundation

/// A Bluetooth UUID: 16, 32 or 128 bits, of a service, characteristic or descriptor.
///
/// It keeps the length with which it was created, as `data` and `uuidString` show; equality ignores the length: `180D`
/// equals `0000180D-0000-1000-8000-00805F9B34FB`, also in dictionaries. Immutable, and safe to share between threads.
/// - SeeAlso: Apple, `CBUUID`; Core Spec 5.4, Vol 3, Part B, 2.5.1.
open class CBUUID: NSObject, NSCopying, @unchecked Sendable {  // holds: written in `init` only
    /// The first and the last eight bytes of the 128-bit form, as numbers.
    private(set) final var high: UInt64 = 0
    private(set) final var low: UInt64 = 0
    /// The length in bytes with which it was created: 2, 4 or 16.
    private(set) final var length = 16

    /// The last eight bytes of the Bluetooth Base UUID, `…-8000-00805F9B34FB`.
    private static let baseLow: UInt64 = 0x8000_0080_5F9B_34FB
    /// Bytes 4 to 7 of a UUID on the base, `…-0000-1000-…`.
    private static let baseHigh: UInt64 = 0x0000_1000

    /// The UUID of 128 zero bits. It has no meaning; Apple's class can also be created like this.
    public override init() { super.init() }

    /// The UUID in a text.
    /// - Parameter theString: 4 or 8 hexadecimal digits, with or without `0x` before them, or 36 characters with
    ///   hyphens; upper or lower case.
    /// - Precondition: It has one of these forms. Validate text from other sources first.
    public required convenience init(string theString: String) {
        self.init()
        // Apple accepts this too, and many samples use it: CBUUID(string: "0x180D").
        var text = theString.prefix(2).lowercased() == "0x" ? String(theString.dropFirst(2)) : theString
        guard let value = text.withUTF8({ Self.parse($0) }) else {
            preconditionFailure(
                "String \"\(theString)\" does not represent a valid UUID: use 4 or 8 hexadecimal digits, or "
                    + "36 characters as in 0000180D-0000-1000-8000-00805F9B34FB")
        }
        take(value)
    }

    /// The UUID in bytes.
    /// - Parameter theData: 2, 4 or 16 bytes in the order of the text, most significant first. Over the air it is
    ///   reversed.
    /// - Precondition: It has one of these lengths. Validate data from other sources first.
    public required convenience init(data theData: Data) {
        self.init()
        func number(_ bytes: some Sequence<UInt8>) -> UInt64 { bytes.reduce(0) { $0 << 8 | UInt64($1) } }
        switch theData.count {
        case 2, 4: take(Self.short(number(theData), length: theData.count))
        case 16: take(Value(high: number(theData.prefix(8)), low: number(theData.suffix(8)), length: 16))
        default: preconditionFailure("Data of \(theData.count) bytes is not a UUID: use 2, 4 or 16 bytes")
        }
    }

    /// The 128-bit UUID with the bytes of a Foundation `UUID`.
    public required convenience init(nsuuid theUUID: UUID) {
        self.init()
        let (high, low) = withUnsafeBytes(of: theUUID.uuid) {
            ($0.loadUnaligned(as: UInt64.self), $0.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
        }
        take(Value(high: UInt64(bigEndian: high), low: UInt64(bigEndian: low), length: 16))
    }

    /// 2, 4 or 16 bytes, depending on how it was created, in the order of the text.
    open var data: Data {
        let number = length == 16 ? high : UInt64(shortValue) << (64 - length * 8)
        let halves = (number.bigEndian, low.bigEndian)
        return withUnsafeBytes(of: halves) { Data($0.prefix(length)) }
    }

    /// 4, 8 or 36 characters, depending on how it was created, in upper case.
    open var uuidString: String {
        switch length {
        case 2: Self.text(UInt64(shortValue) << 48, 0, bytes: 2, isUpperCase: true)
        case 4: Self.text(UInt64(shortValue) << 32, 0, bytes: 4, isUpperCase: true)
        default: Self.text(high, low, bytes: 16, isUpperCase: true)
        }
    }

    /// The same object: a UUID never changes.
    open func copy(with zone: NSZone? = nil) -> Any { self }

    /// Whether `object` is the same UUID, in any length.
    open override func isEqual(_ object: Any?) -> Bool {
        guard let other = object as? CBUUID else { return false }
        return other.high == high && other.low == low
    }

    open override var hash: Int { Int(truncatingIfNeeded: high ^ (low &* 0x9E37_79B9_7F4A_7C15)) }

    /// The Bluetooth SIG's name for a short UUID, "Heart Rate", or ``uuidString``. For logs only.
    open override var description: String { length == 16 ? uuidString : assignedName ?? uuidString }

    // MARK: BlueZ

    /// A UUID that BlueZ reports, in its shortest form; nil if the text is invalid. BlueZ always writes the long form.
    convenience init?(bluez text: UnsafePointer<CChar>) {
        self.init(
            bluez: UnsafeBufferPointer(
                start: UnsafeRawPointer(text).assumingMemoryBound(to: UInt8.self),
                count: strlen(text)))
    }

    /// A UUID that BlueZ reports, in its shortest form; nil if the text is invalid.
    convenience init?(bluez text: String) {
        var text = text
        guard let value = text.withUTF8({ Self.parse($0) }) else { return nil }
        self.init()
        take(Self.shortest(value))
    }

    /// A UUID that BlueZ reports, in its shortest form; nil if the text is invalid. Allocates only the object.
    convenience init?(bluez text: UnsafeBufferPointer<UInt8>) {
        guard let value = Self.parse(text) else { return nil }
        self.init()
        take(Self.shortest(value))
    }

    /// In BlueZ's form: 36 characters in lower case.
    final var bluezString: String { Self.text(high, low, bytes: 16, isUpperCase: false) }

    // MARK: Numbers and text

    /// The number of a UUID on the Bluetooth Base UUID; nil for any other.
    final var numberOnBase: UInt32? {
        low == Self.baseLow && high & 0xFFFF_FFFF == Self.baseHigh ? shortValue : nil
    }

    private final var shortValue: UInt32 { UInt32(truncatingIfNeeded: high >> 32) }

    private struct Value {
        var high: UInt64
        var low: UInt64
        var length: Int
    }

    private final func take(_ value: Value) { (high, low, length) = (value.high, value.low, value.length) }

    private static func short(_ number: UInt64, length: Int) -> Value {
        Value(high: number << 32 | baseHigh, low: baseLow, length: length)
    }

    private static func shortest(_ value: Value) -> Value {
        var value = value
        if value.low == baseLow, value.high & 0xFFFF_FFFF == baseHigh { value.length = value.high >> 48 == 0 ? 2 : 4 }
        return value
    }

    private static func parse(_ text: UnsafeBufferPointer<UInt8>) -> Value? {
        func hexadecimal(_ range: Range<Int>, into number: inout UInt64) -> Bool {
            for index in range {
                switch text[index] {
                case let digit where digit &- 0x30 < 10: number = number << 4 | UInt64(digit &- 0x30)
                case let letter where (letter | 0x20) &- 0x61 < 6:
                    number = number << 4 | UInt64((letter | 0x20) &- 0x61 + 10)
                default: return false
                }
            }
            return true
        }
        var (high, low): (UInt64, UInt64) = (0, 0)
        switch text.count {
        case 4, 8:
            guard hexadecimal(0..<text.count, into: &high) else { return nil }
            return short(high, length: text.count / 2)
        case 36:
            guard text[8] == 0x2D, text[13] == 0x2D, text[18] == 0x2D, text[23] == 0x2D,
                hexadecimal(0..<8, into: &high), hexadecimal(9..<13, into: &high), hexadecimal(14..<18, into: &high),
                hexadecimal(19..<23, into: &low), hexadecimal(24..<36, into: &low)
            else { return nil }
            return Value(high: high, low: low, length: 16)
        default: return nil
        }
    }

    private static func text(_ high: UInt64, _ low: UInt64, bytes: Int, isUpperCase: Bool) -> String {
        let letter: UInt8 = isUpperCase ? 0x41 - 10 : 0x61 - 10
        return String(unsafeUninitializedCapacity: 36) { buffer in
            var count = 0
            for digit in 0..<bytes * 2 {
                if bytes == 16, digit == 8 || digit == 12 || digit == 16 || digit == 20 {
                    buffer[count] = 0x2D
                    count += 1
                }
                let number = digit < 16 ? high >> (60 - digit * 4) : low >> (60 - (digit - 16) * 4)
                let value = UInt8(truncatingIfNeeded: number & 0xF)
                buffer[count] = value < 10 ? 0x30 + value : letter + value
                count += 1
            }
            return count
        }
    }
}
