public import BluezKit
import Foundation

/// When the session of a glucose sensor started, characteristic 2AAA. BluezKit addition.
///
/// A client writes its time once the session has started; the sensor corrects it by the time since.
/// - SeeAlso: Bluetooth SIG, Continuous Glucose Monitoring Service 1.0.2, 3.4; GATT Specification Supplement, "CGM
///   Session Start Time".
public struct CGMSessionStartTime: StructuredValue, Hashable {
    /// 2AAA.
    public static let uuid = CBUUID(string: "2AAA")

    /// In ``timeZone`` with its daylight saving time.
    public var time = DateTime()
    /// How far standard time is ahead of UTC, in units of 15 minutes: -48 to 56; -128: unknown.
    public var timeZoneNumber: Int8 = -128
    /// How far clocks are ahead of standard time, in units of 15 minutes: 0, 2, 4 or 8; 255: unknown.
    public var daylightSavingNumber: UInt8 = 255
    /// It ends with a checksum, which was correct.
    public var isSecured = false

    /// Midnight of an unknown day.
    public init() {}

    /// A point in time in a time zone.
    public init(_ date: Date, in timeZone: TimeZone) {
        let local = LocalTimeInformation(timeZone, at: date)
        time = DateTime(date, in: timeZone)
        (timeZoneNumber, daylightSavingNumber) = (local.timeZoneNumber, local.daylightSavingNumber)
    }

    /// The time zone with its daylight saving time; nil: unknown.
    public var timeZone: TimeZone? {
        let local = Data([UInt8(bitPattern: timeZoneNumber), daylightSavingNumber])
        return (try? LocalTimeInformation(local))?.timeZone
    }

    /// The point in time; nil if time or time zone are not known, or if the time does not exist.
    public var date: Date? { timeZone.flatMap { time.date(in: $0) } }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.field("session start time", &time)
        try fields.field("time zone", &timeZoneNumber)
        try fields.field("DST offset", &daylightSavingNumber)
        try fields.e2eCRC(&isSecured)
    }
}

/// How long a glucose sensor can be used, characteristic 2AAB. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Continuous Glucose Monitoring Service 1.0.2, 3.5; GATT Specification Supplement, "CGM
///   Session Run Time".
public struct CGMSessionRunTime: StructuredValue, Hashable {
    /// 2AAB.
    public static let uuid = CBUUID(string: "2AAB")

    /// Since ``CGMSessionStartTime``.
    public var hours: UInt16 = 0
    /// It ends with a checksum, which was correct.
    public var isSecured = false

    /// 0.
    public init() {}

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.field("session run time", &hours)
        try fields.e2eCRC(&isSecured)
    }
}
