public import BluezKit
import Foundation

/// A measurement of a heart-rate sensor, characteristic 2A37. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Heart Rate Service 1.0, 3.1; GATT Specification Supplement, "Heart Rate Measurement".
public struct HeartRateMeasurement: CharacteristicValue {
    /// 2A37.
    public static let uuid = CBUUID(string: "2A37")

    /// Whether the sensor touches the skin.
    public enum Contact: Hashable, Sendable {
        /// The sensor does not support contact detection.
        case notSupported
        /// It does not touch the skin, or only poorly.
        case notDetected
        /// It does.
        case detected
    }

    /// Beats per minute. Up to 255 it takes one byte, above that two.
    public var beatsPerMinute: UInt16
    /// Whether the sensor touches the skin.
    public var contact: Contact
    /// The energy expended since the last reset, in kilojoules; 65535 means at least that much. Most sensors send it
    /// with about every tenth measurement; nil: not included.
    public var energyExpended: UInt16?
    /// The times between two beats since the last measurement, oldest first, in 1/1024 s.
    public var rrIntervals: [UInt16]

    /// ``rrIntervals`` in milliseconds, to a tenth: the unit is a little less than one.
    public var rrMilliseconds: [Double] { rrIntervals.map { (Double($0) * 10_000 / 1024).rounded() / 10 } }

    /// A measurement.
    /// - Parameters:
    ///   - beatsPerMinute: The heart rate.
    ///   - contact: Whether the sensor touches the skin.
    ///   - energyExpended: In kilojoules, since the last reset.
    ///   - rrIntervals: Oldest first, in 1/1024 s.
    public init(
        beatsPerMinute: UInt16, contact: Contact = .notSupported, energyExpended: UInt16? = nil,
        rrIntervals: [UInt16] = []
    ) {
        (self.beatsPerMinute, self.contact) = (beatsPerMinute, contact)
        (self.energyExpended, self.rrIntervals) = (energyExpended, rrIntervals)
    }

    /// Reads a measurement.
    public init(_ value: Data?) throws(CharacteristicValueError) {
        var fields = try FieldReader(value)
        let flags = try fields.uint8("flags")
        beatsPerMinute =
            flags & Flag.isWide == 0 ? UInt16(try fields.uint8("heart rate")) : try fields.uint16("heart rate")
        contact =
            flags & Flag.detectsContact == 0
            ? .notSupported : flags & Flag.hasContact == 0 ? .notDetected : .detected
        // Some sensors set the flags without the fields, or end within one: the heart rate is there nevertheless.
        energyExpended = flags & Flag.hasEnergy == 0 ? nil : try? fields.uint16("energy expended")
        rrIntervals = []
        guard flags & Flag.hasIntervals != 0 else { return }
        while let interval = try? fields.uint16("RR interval") { rrIntervals.append(interval) }
    }

    /// The measurement as transmitted, in the shortest form.
    public var data: Data {
        var flags: UInt8 = beatsPerMinute > 255 ? Flag.isWide : 0
        switch contact {
        case .notSupported: break
        case .notDetected: flags |= Flag.detectsContact
        case .detected: flags |= Flag.detectsContact | Flag.hasContact
        }
        if energyExpended != nil { flags |= Flag.hasEnergy }
        if !rrIntervals.isEmpty { flags |= Flag.hasIntervals }
        var data = Data([flags])
        data.append(number: beatsPerMinute, bytes: beatsPerMinute > 255 ? 2 : 1)
        if let energyExpended { data.append(energyExpended) }
        for interval in rrIntervals { data.append(interval) }
        return data
    }

    /// The measurement without the oldest intervals that do not fit into a notification of this length.
    /// - Parameter length: In bytes, such as `CBCentral.maximumUpdateValueLength`. Without intervals a measurement has
    ///   at most five bytes, which always fit.
    public func fitting(_ length: Int) -> Self {
        var bare = self
        bare.rrIntervals = []
        var result = self
        result.rrIntervals = rrIntervals.suffix(max(0, (length - bare.data.count) / 2))
        return result
    }

    private enum Flag {
        static let isWide: UInt8 = 0x01
        static let hasContact: UInt8 = 0x02
        static let detectsContact: UInt8 = 0x04
        static let hasEnergy: UInt8 = 0x08
        static let hasIntervals: UInt8 = 0x10
    }
}
