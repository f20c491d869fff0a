import BluezKitProfiles
import Foundation
import Testing

@Suite struct CurrentTimeTests {
    private let berlin: TimeZone
    private let kolkata: TimeZone
    /// 2024-02-29 23:59:58.75 UTC, a Thursday.
    private let date = Date(timeIntervalSince1970: 1_709_251_198.75)

    init() throws {
        berlin = try #require(TimeZone(identifier: "Europe/Berlin"))
        kolkata = try #require(TimeZone(identifier: "Asia/Kolkata"))
    }

    @Test("a time has the Bluetooth SIG's layout")
    func layout() throws {
        let utc = try #require(TimeZone(secondsFromGMT: 0))
        let time = CurrentTime(date, in: utc, adjustReason: [.manualTimeUpdate, .changeOfDaylightSavingTime])
        #expect(time.data == Data([0xE8, 0x07, 2, 29, 23, 59, 58, 4, 192, 0x09]))
        #expect(time.date(in: utc) == date)
        // In Berlin it is Friday, March 1, already.
        #expect(CurrentTime(date, in: berlin).data == Data([0xE8, 0x07, 3, 1, 0, 59, 58, 5, 192, 0]))
    }

    @Test("any point in time survives conversion to local time and back, to 1/256 s")
    func moments() {
        for _ in 0..<5_000 {
            // Without daylight saving time, which Kolkata had in the 1940s, no hour is there twice.
            let date = Date(timeIntervalSince1970: .random(in: 0...4e9))
            let back = CurrentTime(date, in: kolkata).date(in: kolkata)
            let error = back.map { date.timeIntervalSince($0) } ?? .infinity
            #expect((-0.000_001...0.003_91).contains(error), "\(date) \(error)")
        }
    }

    @Test("a day that does not exist, or an incomplete date, is not a point in time")
    func impossible() throws {
        for (month, day) in [(2, 30), (2, 31), (4, 31), (11, 31)] {
            let time = ExactTime256(year: 2023, month: month, day: day, hours: 0, minutes: 0, seconds: 0)
            #expect(try #require(time).date(in: kolkata) == nil)
        }
        #expect(ExactTime256(year: 2023, month: 2, day: 29, hours: 0, minutes: 0, seconds: 0)?.date(in: berlin) == nil)
        #expect(ExactTime256(year: 2024, month: 2, day: 29, hours: 0, minutes: 0, seconds: 0)?.date(in: berlin) != nil)
        #expect(ExactTime256(year: nil, month: 2, day: 1, hours: 0, minutes: 0, seconds: 0)?.date(in: berlin) == nil)
        #expect(ExactTime256(year: 1581, month: 2, day: 1, hours: 0, minutes: 0, seconds: 0) == nil)
        #expect(ExactTime256(year: 2024, month: 2, day: 1, hours: 24, minutes: 0, seconds: 0) == nil)
    }

    @Test("dates outside the layout's range have no year, and do not trap")
    func farAway() throws {
        for date in [Date.distantPast, Date(timeIntervalSince1970: -1e11), Date(timeIntervalSince1970: 1e12)] {
            let time = ExactTime256(date, in: berlin)
            #expect(time.year == nil)
            #expect(try CurrentTime(CurrentTime(time).data).time == time)
        }
    }

    @Test(
        "a time of day that is out of range is an error that names the field",
        arguments: [(4, 24, "hours"), (5, 60, "minutes"), (6, 60, "seconds")])
    func ranges(_ index: Int, _ byte: Int, _ field: String) {
        var bytes: [UInt8] = [0xE8, 0x07, 2, 29, 23, 59, 58, 4, 192, 0]
        bytes[index] = UInt8(byte)
        #expect(throws: CharacteristicValueError.reserved(field: field, value: byte)) {
            try CurrentTime(Data(bytes))
        }
    }

    // A clock that does not set the day of the week lost the whole time.
    @Test("a date or day of the week that is out of range is unknown, its number is there, and the rest is read")
    func unknownParts() throws {
        let utc = try #require(TimeZone(secondsFromGMT: 0))
        // As a watch sends it that sets neither the day of the week nor the reason.
        let watch = try CurrentTime(Data([0xEA, 0x07, 7, 27, 10, 11, 12, 200, 0, 0x5C]))
        #expect(watch.time.dayOfWeek == nil && watch.time.dayOfWeekNumber == 200)
        #expect(watch.date(in: utc) == Date(timeIntervalSince1970: 1_785_147_072))
        #expect(watch.adjustReason == [.changeOfTimeZone, .changeOfDaylightSavingTime])
        for (index, byte) in [(1, 0xFF), (2, 13), (3, 32)] as [(Int, UInt8)] {
            var bytes: [UInt8] = [0xE8, 0x07, 2, 29, 23, 59, 58, 4, 192, 0]
            bytes[index] = byte
            let time = try CurrentTime(Data(bytes)).time
            #expect((time.year == nil) == (index == 1) && (time.month == nil) == (index == 2))
            #expect((time.day == nil) == (index == 3) && time.hours == 23 && time.dayOfWeek == 4)
            #expect(time.transmitted.year == (index == 1 ? 0xFFE8 : 2024) && time.date(in: utc) == nil)
            #expect(CurrentTime(time).data == Data(bytes))
        }
    }

    @Test("a time zone is expressed in units of 15 minutes, separate from daylight saving time")
    func zones() throws {
        let winter = Date(timeIntervalSince1970: 1_705_000_000)
        let summer = Date(timeIntervalSince1970: 1_720_000_000)
        #expect(LocalTimeInformation(berlin, at: winter).data == Data([4, 0]))
        #expect(LocalTimeInformation(berlin, at: summer).data == Data([4, 4]))
        #expect(LocalTimeInformation(berlin, at: summer).secondsFromGMT == 7200)
        #expect(LocalTimeInformation(kolkata, at: summer).data == Data([22, 0]))
        let newfoundland = try #require(TimeZone(identifier: "America/St_Johns"))
        #expect(LocalTimeInformation(newfoundland, at: winter).data == Data([0xF2, 0]))  // -3:30
        let lordHowe = try #require(TimeZone(identifier: "Australia/Lord_Howe"))
        #expect(LocalTimeInformation(lordHowe, at: winter).data == Data([42, 2]))  // half an hour ahead
        let odd = try #require(TimeZone(secondsFromGMT: 1000))
        #expect(LocalTimeInformation(odd, at: winter).data == Data([0x80, 0]))
        #expect(LocalTimeInformation(odd, at: winter).timeZone == nil)
        let unknown = try LocalTimeInformation(Data([0x80, 0xFF]))
        #expect(unknown.standardOffset == nil && unknown.daylightSaving == .unknown && unknown.secondsFromGMT == nil)
        for (bytes, zone) in [([57, 4], 57), ([0xCF, 4], -49)] as [([UInt8], Int8)] {
            let reserved = try LocalTimeInformation(Data(bytes))
            #expect(reserved.standardOffset == nil && reserved.timeZoneNumber == zone && reserved.timeZone == nil)
            #expect(reserved.daylightSaving == .daylightTime && reserved.data == Data(bytes))
        }
        let saving = try LocalTimeInformation(Data([4, 1]))
        #expect(saving.standardOffset == 4 && saving.daylightSaving == .unknown && saving.daylightSavingNumber == 1)
        #expect(saving.timeZone == nil)
    }

    @Test("the accuracy of a clock is read and written")
    func reference() throws {
        typealias Accuracy = ReferenceTimeInformation.Accuracy
        #expect(Accuracy(seconds: 0.1).seconds == 0.125 && Accuracy(seconds: 31.625).rawValue == 253)
        #expect(Accuracy(seconds: 31.63) == .outOfRange && Accuracy(seconds: .infinity) == .outOfRange)
        #expect(Accuracy(seconds: -.infinity).rawValue == 0 && Accuracy(seconds: .nan) == .unknown)
        #expect(Accuracy.unknown.seconds == nil && Accuracy.outOfRange.seconds == nil)
        let day = ReferenceTimeInformation(source: .networkTimeProtocol, accuracy: .unknown, hoursSinceUpdate: 25)
        #expect(day.data == Data([1, 255, 1, 1]))
        let long = ReferenceTimeInformation(source: .gps, accuracy: .outOfRange, hoursSinceUpdate: 6120)
        #expect(long.data == Data([2, 254, 255, 255]) && long.hoursSinceUpdate == nil)
        #expect(
            ReferenceTimeInformation(source: .gps, accuracy: .unknown, hoursSinceUpdate: 6119).data
                == Data([2, 255, 254, 23]))
        for hours in [24, 254, 255] as [UInt8] {
            let reserved = try ReferenceTimeInformation(Data([1, 1, 0, hours]))
            #expect(reserved.hoursSinceUpdate == nil && reserved.source == .networkTimeProtocol)
        }
        let source = try ReferenceTimeInformation(Data([8, 1, 0, 5]))
        #expect(source.source == .unknown && source.sourceNumber == 8 && source.hoursSinceUpdate == 5)
    }
}
