public import Foundation

/// A date and a time of day, to a second, without a time zone; the numbers as transmitted. BluezKit addition.
///
/// Devices whose clock was never set also send numbers that are out of range: there is no ``date(in:)`` then.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, "Date Time".
public struct DateTime: Hashable, Sendable, FieldValue {
    /// 1582 to 9999; 0: unknown.
    public var year: UInt16 = 0
    /// 1 to 12; 0: unknown.
    public var month: UInt8 = 0
    /// 1 to 31; 0: unknown.
    public var day: UInt8 = 0
    /// 0 to 23.
    public var hours: UInt8 = 0
    /// 0 to 59.
    public var minutes: UInt8 = 0
    /// 0 to 59.
    public var seconds: UInt8 = 0

    /// Midnight of an unknown day.
    public init() {}

    /// The date and time in a time zone.
    public init(_ date: Date, in timeZone: TimeZone) {
        let exact = ExactTime256(date, in: timeZone)
        (year, month, day) = (UInt16(exact.year ?? 0), UInt8(exact.month ?? 0), UInt8(exact.day ?? 0))
        (hours, minutes, seconds) = (UInt8(exact.hours), UInt8(exact.minutes), UInt8(exact.seconds))
    }

    /// The point in time in a time zone; nil if the date is incomplete or does not exist, or if a number is out of
    /// range.
    public func date(in timeZone: TimeZone) -> Date? {
        ExactTime256(
            year: Int(year), month: Int(month), day: Int(day), hours: Int(hours), minutes: Int(minutes),
            seconds: Int(seconds))?.date(in: timeZone)
    }

    /// Reads or writes the date and time.
    public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
        try fields.field("year", &year)
        try fields.field("month", &month)
        try fields.field("day", &day)
        try fields.field("hours", &hours)
        try fields.field("minutes", &minutes)
        try fields.field("seconds", &seconds)
    }
}
