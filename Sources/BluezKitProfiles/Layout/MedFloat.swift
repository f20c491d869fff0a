import Foundation

/// A decimal number of medical devices: mantissa and exponent of 10, as in IEEE 11073-20601. BluezKit addition.
///
/// ``MedFloat32`` is the Bluetooth SIG's FLOAT (24 and 8 bits), ``MedFloat16`` its SFLOAT (12 and 4 bits).
/// Numbers are equal if they are transmitted in the same way: 37.0 and 37.00 are not.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, 2.2 ("medfloat16", "medfloat32").
public struct MedFloat<Bits: FixedWidthInteger & UnsignedInteger & Sendable>: Hashable, Sendable, FieldValue {
    /// As transmitted.
    public let bits: Bits

    /// A number as it is transmitted.
    public init(bits: Bits) { self.bits = bits }

    /// 0.
    public init() { bits = 0 }

    /// The nearest number with a number of digits after the decimal point. One that is too large has fewer digits, and
    /// beyond the range it is infinite.
    /// - Parameters:
    ///   - value: Any number; NaN becomes ``notANumber``.
    ///   - digits: After the decimal point: 0 to 8, what is less or more becomes 0 or 8.
    public init(_ value: Double, digits: Int = 1) {
        guard !value.isNaN else {
            self = .notANumber
            return
        }
        var exponent = -min(max(digits, 0), 8)
        // All numbers but the five special ones.
        while exponent <= Self.largestExponent {
            let mantissa = (value * Self.power(-exponent)).rounded()
            if abs(mantissa) <= Double(Self.largestMantissa) {
                self.init(mantissa: Int(mantissa), exponent: exponent)
                return
            }
            exponent += 1
        }
        self.init(mantissa: Self.largestMantissa + (value > 0 ? 1 : 5), exponent: 0)
    }

    /// The number is not valid, because of a fault or because there is none yet (NaN).
    public static var notANumber: Self { Self(mantissa: largestMantissa + 2, exponent: 0) }

    /// The device cannot measure with this resolution (NRes).
    public static var notAtThisResolution: Self { Self(mantissa: largestMantissa + 3, exponent: 0) }

    /// The number, or an infinity; nil: ``notANumber``, ``notAtThisResolution``, or reserved.
    public var value: Double? {
        let exponent =
            Int(Int8(truncatingIfNeeded: Int(truncatingIfNeeded: bits >> Self.mantissaBits) << Self.unusedBits))
            >> Self.unusedBits
        let unsigned = Int(truncatingIfNeeded: bits & (1 << Self.mantissaBits - 1))
        let mantissa = unsigned >= 1 << (Self.mantissaBits - 1) ? unsigned - 1 << Self.mantissaBits : unsigned
        switch exponent == 0 ? abs(mantissa) - Self.largestMantissa : 0 {
        case 1: return mantissa > 0 ? .infinity : -.infinity
        case 2, 3: return nil
        default:
            // A quotient of two exact numbers is the nearest one to 36.6; the product with 0.1 is not.
            return exponent < 0 ? Double(mantissa) / Self.power(-exponent) : Double(mantissa) * Self.power(exponent)
        }
    }

    /// Reads or writes the number.
    public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
        var number = UInt64(bits)
        try fields.bits(name, &number, bytes: Bits.bitWidth / 8)
        self = Self(bits: Bits(truncatingIfNeeded: number))
    }

    private init(mantissa: Int, exponent: Int) {
        bits = Bits(truncatingIfNeeded: mantissa & (1 << Self.mantissaBits - 1) | exponent << Self.mantissaBits)
    }

    private static var mantissaBits: Int { Bits.bitWidth * 3 / 4 }
    private static var unusedBits: Int { 8 - Bits.bitWidth / 4 }
    private static var largestExponent: Int { 1 << (Bits.bitWidth / 4 - 1) - 1 }
    /// Above it are +INFINITY, NaN and NRes; below its negative -INFINITY, and a reserved number.
    private static var largestMantissa: Int { 1 << (mantissaBits - 1) - 3 }

    private static func power(_ exponent: Int) -> Double { pow(10, Double(exponent)) }
}

/// The Bluetooth SIG's FLOAT. BluezKit addition.
public typealias MedFloat32 = MedFloat<UInt32>

/// The Bluetooth SIG's SFLOAT. BluezKit addition.
public typealias MedFloat16 = MedFloat<UInt16>
