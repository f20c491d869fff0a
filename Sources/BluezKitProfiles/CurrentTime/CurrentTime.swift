public import BluezKit
import Foundation

/// What time it is where the device is, characteristic 2A2B. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Current Time Service 1.1, 3.1; GATT Specification Supplement, "Current Time".
public struct CurrentTime: CharacteristicValue, Hashable {
    /// 2A2B.
    public static let uuid = CBUUID(string: "2A2B")

    /// Why a clock was set.
    public struct AdjustReason: OptionSet, Hashable, Sendable {
        /// The bits.
        public let rawValue: UInt8

        /// Reasons from their bits.
        public init(rawValue: UInt8) { self.rawValue = rawValue }

        /// Somebody set it.
        public static let manualTimeUpdate = Self(rawValue: 0x01)
        /// It follows another clock.
        public static let externalReferenceTimeUpdate = Self(rawValue: 0x02)
        /// The device is in another time zone.
        public static let changeOfTimeZone = Self(rawValue: 0x04)
        /// Daylight saving time has begun or ended.
        public static let changeOfDaylightSavingTime = Self(rawValue: 0x08)

        fileprivate static let known: Self = [
            .manualTimeUpdate, .externalReferenceTimeUpdate, .changeOfTimeZone, .changeOfDaylightSavingTime,
        ]
    }

    /// Local time, to 1/256 s. ``LocalTimeInformation`` says where.
    public var time: ExactTime256
    /// Why the clock was set; of a value that is only read, nothing.
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

    /// The time as it goes on air.
    public var data: Data { time.data + [adjustReason.rawValue] }

    /// The moment, if the device is in this time zone; nil if it did not tell the whole date, or one that does not exist.
    public func date(in timeZone: TimeZone = .autoupdatingCurrent) -> Date? { time.date(in: timeZone) }
}
