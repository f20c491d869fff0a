public import BluezKit
import Foundation

/// The source and accuracy of a device's clock, characteristic 2A14. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Current Time Service 1.1, 3.3; GATT Specification Supplement,
///   "Reference Time Information", "Time Source", "Time Accuracy".
public struct ReferenceTimeInformation: CharacteristicValue, Hashable {
    /// 2A14.
    public static let uuid = CBUUID(string: "2A14")

    /// The source of the time.
    public enum Source: UInt8, Sendable {
        /// A kind of clock.
        case unknown, networkTimeProtocol, gps, radioTimeSignal, manual, atomicClock, cellularNetwork, notSynchronized
    }

    /// The accuracy of the clock.
    public struct Accuracy: RawRepresentable, Hashable, Sendable {
        /// In 1/8 s, up to 253; 254: more than that; 255: unknown.
        public let rawValue: UInt8

        /// An accuracy from its number.
        public init(rawValue: UInt8) { self.rawValue = rawValue }

        /// The best accuracy that is not better than this. Above 31.625 s it is ``outOfRange``.
        /// - Parameter seconds: Negative numbers become 0; NaN is ``unknown``.
        public init(seconds: Double) {
            guard !seconds.isNaN else {
                self = .unknown
                return
            }
            self = seconds > 253.0 / 8 ? .outOfRange : Self(rawValue: UInt8(max(0, (seconds * 8).rounded(.up))))
        }

        /// More than 31.625 s.
        public static let outOfRange = Self(rawValue: 254)
        /// Unknown.
        public static let unknown = Self(rawValue: 255)

        /// In seconds; nil: out of range or unknown.
        public var seconds: Double? { rawValue <= 253 ? Double(rawValue) / 8 : nil }
    }

    /// The source of the time as transmitted, of which some numbers are assigned.
    public var sourceNumber: UInt8
    /// The source of the time; unknown as well if its number is not assigned.
    public var source: Source {
        get { Source(rawValue: sourceNumber) ?? .unknown }
        set { sourceNumber = newValue.rawValue }
    }
    /// The accuracy of the clock.
    public var accuracy: Accuracy
    /// The time since the last update, in hours: up to 6119, which is 254 days and 23 hours; nil: 255 days or more, or
    /// the hours are not valid.
    public let hoursSinceUpdate: Int?

    /// Information about a clock.
    /// - Parameters:
    ///   - source: The source of the time.
    ///   - accuracy: The accuracy of the clock.
    ///   - hoursSinceUpdate: The time since the last update. 6120 hours (255 days) and more become nil, less than 0
    ///     becomes 0.
    public init(source: Source, accuracy: Accuracy, hoursSinceUpdate: Int?) {
        (sourceNumber, self.accuracy) = (source.rawValue, accuracy)
        self.hoursSinceUpdate = hoursSinceUpdate.flatMap { $0 < 255 * 24 ? max(0, $0) : nil }
    }

    /// Reads the information about a clock.
    public init(_ value: Data?) throws(CharacteristicValueError) {
        var fields = try FieldReader(value)
        sourceNumber = try fields.uint8("time source")
        accuracy = Accuracy(rawValue: try fields.uint8("time accuracy"))
        let days = Int(try fields.uint8("days since update"))
        let hours = Int(try fields.uint8("hours since update"))
        // 255 in both fields: 255 days or more.
        hoursSinceUpdate = days == 255 || hours > 23 ? nil : days * 24 + hours
    }

    /// The information as transmitted.
    public var data: Data {
        let (days, hours) = hoursSinceUpdate.map { ($0 / 24, $0 % 24) } ?? (255, 255)
        return Data([sourceNumber, accuracy.rawValue, UInt8(days), UInt8(hours)])
    }
}
