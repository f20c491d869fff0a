public import Foundation

/// A date and a time of day, to 1/256 s, without a time zone. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, "Exact Time 256", "Day Date Time", "Date Time".
public struct ExactTime256: Hashable, Sendable {
    /// The date and the time of day as transmitted, with 0 for what is unknown. Devices whose clock was never set also
    /// send a year, month or day that is out of range.
    public let transmitted: DateTime
    /// The day of the week as transmitted: 0, unknown; 1, Monday, to 7, Sunday; other numbers are reserved.
    public let dayOfWeekNumber: UInt8
    /// 0 to 255, in 1/256 s.
    public let fractions256: Int

    /// 1582 to 9999, of the Gregorian calendar; nil: unknown.
    public var year: Int? { Self.known(transmitted.year, in: Self.years) }
    /// 1 to 12; nil: unknown.
    public var month: Int? { Self.known(transmitted.month, in: 1...12) }
    /// 1 to 31; nil: unknown.
    public var day: Int? { Self.known(transmitted.day, in: 1...31) }
    /// 0 to 23.
    public var hours: Int { Int(transmitted.hours) }
    /// 0 to 59.
    public var minutes: Int { Int(transmitted.minutes) }
    /// 0 to 59.
    public var seconds: Int { Int(transmitted.seconds) }
    /// 1, Monday, to 7, Sunday; nil: unknown.
    public var dayOfWeek: Int? { Self.known(dayOfWeekNumber, in: 1...7) }

    private static func known(_ number: some BinaryInteger, in range: ClosedRange<Int>) -> Int? {
        range.contains(Int(number)) ? Int(number) : nil
    }

    /// A date and time; nil if a number is out of range. Whether the day exists in the month is not checked.
    public init?(
        year: Int?, month: Int?, day: Int?, hours: Int, minutes: Int, seconds: Int, dayOfWeek: Int? = nil,
        fractions256: Int = 0
    ) {
        guard year.map(Self.years.contains) ?? true, month.map((1...12).contains) ?? true,
            day.map((1...31).contains) ?? true, (0...23).contains(hours), (0...59).contains(minutes),
            (0...59).contains(seconds), dayOfWeek.map((1...7).contains) ?? true, (0...255).contains(fractions256)
        else { return nil }
        self.init(year, month, day, hours, minutes, seconds, dayOfWeek, fractions256)
    }

    /// Numbers in their ranges.
    private init(
        _ year: Int?, _ month: Int?, _ day: Int?, _ hours: Int, _ minutes: Int, _ seconds: Int, _ dayOfWeek: Int?,
        _ fractions256: Int
    ) {
        var transmitted = DateTime()
        (transmitted.year, transmitted.month, transmitted.day) = (UInt16(year ?? 0), UInt8(month ?? 0), UInt8(day ?? 0))
        (transmitted.hours, transmitted.minutes, transmitted.seconds) = (UInt8(hours), UInt8(minutes), UInt8(seconds))
        (self.transmitted, dayOfWeekNumber, self.fractions256) = (transmitted, UInt8(dayOfWeek ?? 0), fractions256)
    }

    /// The date and time in a time zone. Years outside 1582 to 9999 are unknown.
    public init(_ date: Date, in timeZone: TimeZone) {
        let whole = date.timeIntervalSinceReferenceDate.rounded(.down)
        let parts = Self.calendar(timeZone).dateComponents(
            [.era, .year, .month, .day, .hour, .minute, .second, .weekday],
            from: Date(timeIntervalSinceReferenceDate: whole))
        self.init(
            parts.era == 1 ? parts.year.flatMap { Self.years.contains($0) ? $0 : nil } : nil, parts.month, parts.day,
            parts.hour ?? 0, parts.minute ?? 0, parts.second ?? 0,
            parts.weekday.map { ($0 + 5) % 7 + 1 },  // Foundation starts with Sunday
            min(255, Int((date.timeIntervalSinceReferenceDate - whole) * 256)))
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
        var transmitted = DateTime()
        transmitted.year = try fields.uint16("year")
        transmitted.month = try fields.uint8("month")
        transmitted.day = try fields.uint8("day")
        transmitted.hours = UInt8(try fields.uint8("hours", in: 0...23))
        transmitted.minutes = UInt8(try fields.uint8("minutes", in: 0...59))
        transmitted.seconds = UInt8(try fields.uint8("seconds", in: 0...59))
        self.transmitted = transmitted
        dayOfWeekNumber = try fields.uint8("day of week")
        fractions256 = Int(try fields.uint8("fractions of a second"))
    }

    var data: Data {
        let time = transmitted
        var data = Data()
        data.append(time.year)
        data += [time.month, time.day, time.hours, time.minutes, time.seconds, dayOfWeekNumber, UInt8(fractions256)]
        return data
    }
}
