public import BluezKit
import Foundation

/// How local time differs from UTC, characteristic 2A0F. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Current Time Service 1.1, 3.2; GATT Specification Supplement, "Local Time Information",
///   "Time Zone", "DST Offset".
public struct LocalTimeInformation: CharacteristicValue, Hashable {
    /// 2A0F.
    public static let uuid = CBUUID(string: "2A0F")

    /// How far clocks are ahead of standard time, in units of 15 minutes.
    public enum DaylightSaving: UInt8, Sendable {
        /// Not ahead.
        case standardTime = 0
        /// Half an hour.
        case halfAnHour = 2
        /// An hour.
        case daylightTime = 4
        /// Two hours.
        case doubleDaylightTime = 8
        /// The device does not know.
        case unknown = 255
    }

    /// How far standard time is ahead of UTC, in units of 15 minutes, -48 to 56; nil: unknown.
    public let standardOffset: Int?
    /// How far clocks are ahead of that.
    public let daylightSaving: DaylightSaving

    /// An offset; nil if it is out of its range.
    /// - Parameters:
    ///   - standardOffset: In units of 15 minutes, -48 to 56; nil: unknown.
    ///   - daylightSaving: How far clocks are ahead of that.
    public init?(standardOffset: Int?, daylightSaving: DaylightSaving) {
        guard standardOffset.map(Self.offsets.contains) ?? true else { return nil }
        (self.standardOffset, self.daylightSaving) = (standardOffset, daylightSaving)
    }

    /// What is the case in a time zone. What cannot be said in units of 15 minutes is unknown.
    public init(_ timeZone: TimeZone, at date: Date) {
        let saving = Int(timeZone.daylightSavingTimeOffset(for: date))
        let standard = timeZone.secondsFromGMT(for: date) - saving
        let offset = standard.isMultiple(of: 900) ? standard / 900 : nil
        standardOffset = offset.flatMap { Self.offsets.contains($0) ? $0 : nil }
        daylightSaving =
            saving.isMultiple(of: 900)
            ? UInt8(exactly: saving / 900).flatMap(DaylightSaving.init) ?? .unknown : .unknown
    }

    /// Reads an offset.
    public init(_ value: Data?) throws(CharacteristicValueError) {
        var fields = try FieldReader(value)
        let offset = Int(Int8(bitPattern: try fields.uint8("time zone")))
        guard offset == Self.unknown || Self.offsets.contains(offset) else {
            throw .reserved(field: "time zone", value: offset)
        }
        standardOffset = offset == Self.unknown ? nil : offset
        daylightSaving = try fields.one("DST offset", of: DaylightSaving.self)
    }

    /// The offset as it goes on air.
    public var data: Data { Data([UInt8(bitPattern: Int8(standardOffset ?? Self.unknown)), daylightSaving.rawValue]) }

    /// How far clocks are ahead of UTC, in seconds; nil if a part of it is unknown.
    public var secondsFromGMT: Int? {
        guard let standardOffset, daylightSaving != .unknown else { return nil }
        return (standardOffset + Int(daylightSaving.rawValue)) * 900
    }

    /// A time zone with ``secondsFromGMT``, for ``CurrentTime/date(in:)``.
    public var timeZone: TimeZone? { secondsFromGMT.flatMap { TimeZone(secondsFromGMT: $0) } }

    private static let offsets = -48...56
    private static let unknown = -128
}
