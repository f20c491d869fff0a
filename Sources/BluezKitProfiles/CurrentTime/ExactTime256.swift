public import Foundation

/// A date and a time of day, to 1/256 s, without a time zone. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, "Exact Time 256", "Day Date Time", "Date Time".
public struct ExactTime256: Hashable, Sendable {
    /// 1582 to 9999, of the Gregorian calendar; nil: unknown.
    public let year: Int?
    /// 1 to 12; nil: unknown.
    public let month: Int?
    /// 1 to 31; nil: unknown.
    public let day: Int?
    /// 0 to 23.
    public let hours: Int
    /// 0 to 59.
    public let minutes: Int
    /// 0 to 59.
    public let seconds: Int
    /// 1, Monday, to 7, Sunday; nil: unknown.
    public let dayOfWeek: Int?
    /// 0 to 255, in 1/256 s.
    public let fractions256: Int

    /// A date and time; nil if a number is out of range. Whether the day exists in the month is not checked.
    public init?(
        year: Int?, month: Int?, day: Int?, hours: Int, minutes: Int, seconds: Int, dayOfWeek: Int? = nil,
        fractions256: Int = 0
    ) {
        guard year.map(Self.years.contains) ?? true, month.map((1...12).contains) ?? true,
            day.map((1...31).contains) ?? true, (0...23).contains(hours), (0...59).contains(minutes),
            (0...59).contains(seconds), dayOfWeek.map((1...7).contains) ?? true, (0...255).contains(fractions256)
        else { return nil }
        (self.year, self.month, self.day) = (year, month, day)
        (self.hours, self.minutes, self.seconds) = (hours, minutes, seconds)
        (self.dayOfWeek, self.fractions256) = (dayOfWeek, fractions256)
    }

    /// The date and time in a time zone. Years outside 1582 to 9999 are unknown.
    public init(_ date: Date, in timeZone: TimeZone) {
        let whole = date.timeIntervalSinceReferenceDate.rounded(.down)
        let parts = Self.calendar(timeZone).dateComponents(
            [.era, .year, .month, .day, .hour, .minute, .second, .weekday],
            from: Date(timeIntervalSinceReferenceDate: whole))
        year = parts.era == 1 ? parts.year.flatMap { Self.years.contains($0) ? $0 : nil } : nil
        (month, day) = (parts.month, parts.day)
        (hours, minutes, seconds) = (parts.hour ?? 0, parts.minute ?? 0, parts.second ?? 0)
        dayOfWeek = parts.weekday.map { ($0 + 5) % 7 + 1 }  // Foundation starts with Sunday
        fractions256 = min(255, Int((date.timeIntervalSinceReferenceDate - whole) * 256))
    }

    /// The point in time in a time zone; nil if the date is incomplete or does not exist. For an hour that a zone skips
    /// or repeats, a point close to it.
    public func date(in timeZone: TimeZone) -> Date? {
        guard let year, let month, let day else { return nil }
        let calendar = Self.calendar(timeZone)
        let parts = DateComponents(
            year: year, month: month, day: day, hour: hours, minute: minutes, second: seconds)
        guard let date = calendar.date(from: parts), calendar.component(.day, from: date) == day else { return nil }
        return date + Double(fractions256) / 256
    }

    private static let years = 1582...9999

    private static func calendar(_ timeZone: TimeZone) -> Calendar {
        var calendar = Calendar(identifier: .gregorian)
        calendar.timeZone = timeZone
        return calendar
    }
}

extension ExactTime256 {
    init(_ fields: inout FieldReader) throws(CharacteristicValueError) {
        func known(_ number: Int) -> Int? { number == 0 ? nil : number }
        let year = Int(try fields.uint16("year"))
        guard year == 0 || Self.years.contains(year) else { throw .reserved(field: "year", value: year) }
        self.year = known(year)
        month = known(try fields.uint8("month", in: 0...12))
        day = known(try fields.uint8("day", in: 0...31))
        hours = try fields.uint8("hours", in: 0...23)
        minutes = try fields.uint8("minutes", in: 0...59)
        seconds = try fields.uint8("seconds", in: 0...59)
        dayOfWeek = known(try fields.uint8("day of week", in: 0...7))
        fractions256 = Int(try fields.uint8("fractions of a second"))
    }

    var data: Data {
        var data = Data()
        data.append(UInt16(year ?? 0))
        data += [month ?? 0, day ?? 0, hours, minutes, seconds, dayOfWeek ?? 0, fractions256].map { UInt8($0) }
        return data
    }
}
