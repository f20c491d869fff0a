public import BluezKit
import Foundation

/// What has happened to a machine, or to its settings, characteristic 2ADA. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Fitness Machine Service 1.0, 4.17.
public enum FitnessMachineStatus: StructuredValue, Hashable {
    /// 2ADA.
    public static let uuid = CBUUID(string: "2ADA")

    /// The settings were reset.
    case reset
    /// The user has ended the training.
    case stopped
    /// The user has paused the training.
    case paused
    /// The safety key has ended the training.
    case stoppedBySafetyKey
    /// The user has started the training, or resumed it.
    case startedOrResumed
    /// A target was set, or what a bike simulates.
    case changed(FitnessMachineTarget)
    /// The calibration of a bike.
    case spinDown(SpinDown)
    /// The client cannot control the machine any more.
    case controlPermissionLost
    /// A number that is not assigned, or a parameter that cannot be read.
    case other(number: UInt8, parameter: Data)

    /// Number 0, which is reserved.
    public init() { self = .other(number: 0, parameter: Data()) }

    /// The calibration of a bike. BluezKit addition.
    public enum SpinDown: UInt8, Sendable {
        /// The status: the machine asks for a calibration; it is done; it has failed; the user is to stop pedaling.
        case requested = 1, success, error, stopPedaling
    }

    private var coded: (number: UInt8, parameter: Data) {
        switch self {
        case .reset: return (0x01, Data())
        case .stopped: return (0x02, Data([1]))
        case .paused: return (0x02, Data([2]))
        case .stoppedBySafetyKey: return (0x03, Data())
        case .startedOrResumed: return (0x04, Data())
        case .changed(let target):
            let (operation, parameter) = target.coded
            return (Self.number(of: operation), parameter)
        case .spinDown(let status): return (0x14, Data([status.rawValue]))
        case .controlPermissionLost: return (0xFF, Data())
        case .other(let number, let parameter): return (number, parameter)
        }
    }

    /// The numbers are those of the operations in the same order, but for start and stop.
    private static func number(of operation: FitnessMachineOperation) -> UInt8 {
        operation.rawValue + (operation.rawValue <= FitnessMachineOperation.setTargetHeartRate.rawValue ? 3 : 1)
    }

    private init(_ number: UInt8, _ parameter: Data) {
        let operation = FitnessMachineOperation(rawValue: number &- (number <= 0x09 ? 3 : 1))
        switch (number, parameter.first) {
        case (0x01, _): self = .reset
        case (0x02, 1): self = .stopped
        case (0x02, 2): self = .paused
        case (0x03, _): self = .stoppedBySafetyKey
        case (0x04, _): self = .startedOrResumed
        case (0x14, let status?):
            self = SpinDown(rawValue: status).map(Self.spinDown) ?? .other(number: number, parameter: parameter)
        case (0xFF, _): self = .controlPermissionLost
        case (0x05..., _):
            let target = FitnessMachineTarget(operation, parameter)
            self = target.map(Self.changed) ?? .other(number: number, parameter: parameter)
        default: self = .other(number: number, parameter: parameter)
        }
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        var (number, parameter) = coded
        try fields.field("op code", &number)
        fields.rest(&parameter)
        self = Self(number, parameter)
    }
}
