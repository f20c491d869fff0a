public import BluezKit
import Foundation

/// How far a device's clock can be trusted, characteristic 2A14. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Current Time Service 1.1, 3.3; GATT Specification Supplement,
///   "Reference Time Information", "Time Source", "Time Accuracy".
public struct ReferenceTimeInformation: CharacteristicValue, Hashable {
    /// 2A14.
    public static let uuid = CBUUID(string: "2A14")

    /// Where the time comes from.
    public enum Source: UInt8, Sendable {
        /// A kind of clock.
        case unknown, networkTimeProtocol, gps, radioTimeSignal, manual, atomicClock, cellularNetwork, notSynchronized
    }

    /// How far the clock may be off.
    public struct Accuracy: RawRepresentable, Hashable, Sendable {
        /// In 1/8 s, up to 253; 254: more than that; 255: unknown.
        public let rawValue: UInt8

        /// An accuracy from its number.
        public init(rawValue: UInt8) { self.rawValue = rawValue }

        /// The smallest one that is no better than this. Above 31.625 s it is ``outOfRange``.
        /// - Parameter seconds: Negative numbers count as 0; what is no number is ``unknown``.
        public init(seconds: Double) {
            guard !seconds.isNaN else {
                self = .unknown
                return
            }
            self = seconds > 253.0 / 8 ? .outOfRange : Self(rawValue: UInt8(max(0, (seconds * 8).rounded(.up))))
        }

        /// More than 31.625 s.
        public static let outOfRange = Self(rawValue: 254)
        /// The device does not know.
        public static let unknown = Self(rawValue: 255)

        /// In seconds; nil: out of range or unknown.
        public var seconds: Double? { rawValue <= 253 ? Double(rawValue) / 8 : nil }
    }

    /// Where the time comes from.
    public var source: Source
    /// How far the clock may be off.
    public var accuracy: Accuracy
    /// When it was last set, in hours: up to 6119, which is 254 days and 23 hours; nil: 255 days ago, or earlier.
    public let hoursSinceUpdate: Int?

    /// What can be said of a clock.
    /// - Parameters:
    ///   - source: Where the time comes from.
    ///   - accuracy: How far it may be off.
    ///   - hoursSinceUpdate: When it was last set. 6120 hours (255 days) and more count as nil, less than 0 as 0.
    public init(source: Source, accuracy: Accuracy, hoursSinceUpdate: Int?) {
        (self.source, self.accuracy) = (source, accuracy)
        self.hoursSinceUpdate = hoursSinceUpdate.flatMap { $0 < 255 * 24 ? max(0, $0) : nil }
    }

    /// Reads what can be said of a clock.
    public init(_ value: Data?) throws(CharacteristicValueError) {
        var fields = try FieldReader(value)
        source = try fields.one("time source", of: Source.self)
        accuracy = Accuracy(rawValue: try fields.uint8("time accuracy"))
        let days = Int(try fields.uint8("days since update"))
        let hours = Int(try fields.uint8("hours since update"))
        // 255 in both fields: 255 days or more.
        guard hours <= 23 || (days == 255 && hours == 255) else {
            throw .reserved(field: "hours since update", value: hours)
        }
        hoursSinceUpdate = days == 255 ? nil : days * 24 + hours
    }

    /// It, as it goes on air.
    public var data: Data {
        let (days, hours) = hoursSinceUpdate.map { ($0 / 24, $0 % 24) } ?? (255, 255)
        return Data([source.rawValue, accuracy.rawValue, UInt8(days), UInt8(hours)])
    }
}
