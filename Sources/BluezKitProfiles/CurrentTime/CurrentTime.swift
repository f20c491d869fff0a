public import BluezKit
import Foundation

/// The local time of a device, characteristic 2A2B. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Current Time Service 1.1, 3.1; GATT Specification Supplement, "Current Time".
public struct CurrentTime: CharacteristicValue, Hashable {
    /// 2A2B.
    public static let uuid = CBUUID(string: "2A2B")

    /// Why a clock was set.
    public struct AdjustReason: OptionSet, Hashable, Sendable {
        /// The flags as bits.
        public let rawValue: UInt8

        /// Reasons from their bits.
        public init(rawValue: UInt8) { self.rawValue = rawValue }

        /// The user set it.
        public static let manualTimeUpdate = Self(rawValue: 0x01)
        /// It was synchronized with another clock.
        public static let externalReferenceTimeUpdate = Self(rawValue: 0x02)
        /// The time zone has changed.
        public static let changeOfTimeZone = Self(rawValue: 0x04)
        /// Daylight saving time has begun or ended.
        public static let changeOfDaylightSavingTime = Self(rawValue: 0x08)

        fileprivate static let known: Self = [
            .manualTimeUpdate, .externalReferenceTimeUpdate, .changeOfTimeZone, .changeOfDaylightSavingTime,
        ]
    }

    /// Local time, to 1/256 s. ``LocalTimeInformation`` has its offset from UTC.
    public var time: ExactTime256
    /// Why the clock was set; empty in a value that was only read.
    public let adjustReason: AdjustReason

    /// A local time.
    public init(_ time: ExactTime256, adjustReason: AdjustReason = []) {
        self.time = time
        self.adjustReason = adjustReason.intersection(.known)
    }

    /// The local time in a time zone.
    public init(_ date: Date, in timeZone: TimeZone = .autoupdatingCurrent, adjustReason: AdjustReason = []) {
        self.init(ExactTime256(date, in: timeZone), adjustReason: adjustReason)
    }

    /// Reads a time.
    public init(_ value: Data?) throws(CharacteristicValueError) {
        var fields = try FieldReader(value)
        let time = try ExactTime256(&fields)
        self.init(time, adjustReason: AdjustReason(rawValue: try fields.uint8("adjust reason")))
    }

    /// The time as transmitted.
    public var data: Data { time.data + [adjustReason.rawValue] }

    /// The point in time, if the device is in this time zone; nil if the date is incomplete or does not exist.
    public func date(in timeZone: TimeZone = .autoupdatingCurrent) -> Date? { time.date(in: timeZone) }
}
