public import BluezKit
import Foundation

/// What the user of a machine does, characteristic 2AD3. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Fitness Machine Service 1.0, 4.10.
public struct TrainingStatus: StructuredValue, Hashable {
    /// 2AD3.
    public static let uuid = CBUUID(string: "2AD3")

    /// The phase of the session; nil: a number that is not assigned.
    @Assigned public var phase: Phase? = .other
    /// What the machine calls it; nil: not included.
    public var text: String?
    /// ``text`` was too long for a notification: reading the characteristic gets all of it.
    public var isTextCutOff = false

    /// Another phase.
    public init() {}

    /// The phase of a session. BluezKit addition.
    public enum Phase: UInt8, EnumeratedValue {
        /// A phase.
        case other, idle, warmingUp, lowIntensityInterval, highIntensityInterval, recoveryInterval, isometric,
            heartRateControl, fitnessTest, speedTooLow, speedTooHigh, coolDown, wattControl, manualMode, preWorkout,
            postWorkout
        /// Another phase.
        public init() { self = .other }
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 1)
        var hasText = text != nil
        fields.flag(0, &hasText)
        fields.flag(1, &isTextCutOff)
        try fields.field("training status", &_phase)
        var bytes = Data((text ?? "").utf8)
        fields.rest(&bytes)
        text = hasText ? String(cut: bytes) : nil
    }
}
