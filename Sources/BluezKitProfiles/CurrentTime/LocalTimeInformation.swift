public import BluezKit
import Foundation

/// The offset of local time from UTC, characteristic 2A0F. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Current Time Service 1.1, 3.2; GATT Specification Supplement, "Local Time Information",
///   "Time Zone", "DST Offset".
public struct LocalTimeInformation: CharacteristicValue, Hashable {
    /// 2A0F.
    public static let uuid = CBUUID(string: "2A0F")

    /// How far clocks are ahead of standard time, in units of 15 minutes.
    public enum DaylightSaving: UInt8, Sendable {
        /// No daylight saving time.
        case standardTime = 0
        /// Half an hour.
        case halfAnHour = 2
        /// An hour.
        case daylightTime = 4
        /// Two hours.
        case doubleDaylightTime = 8
        /// Unknown.
        case unknown = 255
    }

    /// The time zone as transmitted: ``standardOffset``; -128, unknown; other numbers are reserved.
    public let timeZoneNumber: Int8
    /// The daylight saving time as transmitted, of which some numbers are assigned.
    public let daylightSavingNumber: UInt8

    /// How far standard time is ahead of UTC, in units of 15 minutes, -48 to 56; nil: unknown.
    public var standardOffset: Int? {
        Self.offsets.contains(Int(timeZoneNumber)) ? Int(timeZoneNumber) : nil
    }
    /// How far clocks are ahead of standard time.
    public var daylightSaving: DaylightSaving { DaylightSaving(rawValue: daylightSavingNumber) ?? .unknown }

    /// An offset; nil if it is out of range.
    /// - Parameters:
    ///   - standardOffset: In units of 15 minutes, -48 to 56; nil: unknown.
    ///   - daylightSaving: How far clocks are ahead of standard time.
    public init?(standardOffset: Int?, daylightSaving: DaylightSaving) {
        guard standardOffset.map(Self.offsets.contains) ?? true else { return nil }
        timeZoneNumber = standardOffset.map { Int8($0) } ?? Self.unknown
        daylightSavingNumber = daylightSaving.rawValue
    }

    /// The offset in a time zone. Values that are not multiples of 15 minutes are unknown.
    public init(_ timeZone: TimeZone, at date: Date) {
        let saving = Int(timeZone.daylightSavingTimeOffset(for: date))
        let standard = timeZone.secondsFromGMT(for: date) - saving
        let offset = standard.isMultiple(of: 900) ? standard / 900 : nil
        timeZoneNumber = offset.flatMap { Self.offsets.contains($0) ? Int8($0) : nil } ?? Self.unknown
        let known =
            saving.isMultiple(of: 900)
            ? UInt8(exactly: saving / 900).flatMap(DaylightSaving.init) ?? .unknown : .unknown
        daylightSavingNumber = known.rawValue
    }

    /// Reads an offset.
    public init(_ value: Data?) throws(CharacteristicValueError) {
        var fields = try FieldReader(value)
        timeZoneNumber = Int8(bitPattern: try fields.uint8("time zone"))
        daylightSavingNumber = try fields.uint8("DST offset")
    }

    /// The offset as transmitted.
    public var data: Data { Data([UInt8(bitPattern: timeZoneNumber), daylightSavingNumber]) }

    /// How far clocks are ahead of UTC, in seconds; nil if one of the offsets is unknown.
    public var secondsFromGMT: Int? {
        guard let standardOffset, daylightSaving != .unknown else { return nil }
        return (standardOffset + Int(daylightSaving.rawValue)) * 900
    }

    /// A time zone with ``secondsFromGMT``, for ``CurrentTime/date(in:)``.
    public var timeZone: TimeZone? { secondsFromGMT.flatMap { TimeZone(secondsFromGMT: $0) } }

    private static let offsets = -48...56
    private static let unknown: Int8 = -128
}
