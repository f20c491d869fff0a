public import BluezKit
import Foundation

/// The control point of machines, 2AD9. BluezKit addition.
///
/// ```swift
/// peripheral.writeValue(
///     FitnessMachineControlPoint(command: .set(.power(200))).data, for: controlPoint, type: .withResponse)
/// ```
///
/// A client requests control first, and has it until it resets the machine, disconnects, or gets
/// ``FitnessMachineStatus/controlPermissionLost``. A server responds to others with
/// ``FitnessMachineResult/controlNotPermitted``.
/// - SeeAlso: Bluetooth SIG, Fitness Machine Service 1.0, 4.16.
public typealias FitnessMachineControlPoint = ControlPoint<FitnessMachineOperation>

/// An operation of the control point of machines, 2AD9. ``FitnessMachineCommand`` has them with their parameters.
/// BluezKit addition.
public struct FitnessMachineOperation: CommandOperation {
    /// How a machine responds.
    public typealias Result = FitnessMachineResult
    /// A request with its parameter.
    public typealias Command = FitnessMachineCommand
    /// 2AD9.
    public static let controlPoint = CBUUID(string: "2AD9")
    /// The number.
    public let rawValue: UInt8
    /// An operation from its number.
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// ``FitnessMachineCommand/requestControl``
    public static let requestControl = Self(rawValue: 0x00)
    /// ``FitnessMachineCommand/reset``
    public static let reset = Self(rawValue: 0x01)
    /// ``FitnessMachineTarget/speed(_:)``; 2 bytes.
    public static let setTargetSpeed = Self(rawValue: 0x02)
    /// ``FitnessMachineTarget/inclination(_:)``; 2 bytes.
    public static let setTargetInclination = Self(rawValue: 0x03)
    /// ``FitnessMachineTarget/resistanceLevel(_:)``; 1 byte.
    public static let setTargetResistanceLevel = Self(rawValue: 0x04)
    /// ``FitnessMachineTarget/power(_:)``; 2 bytes.
    public static let setTargetPower = Self(rawValue: 0x05)
    /// ``FitnessMachineTarget/heartRate(_:)``; 1 byte.
    public static let setTargetHeartRate = Self(rawValue: 0x06)
    /// ``FitnessMachineCommand/startOrResume``
    public static let startOrResume = Self(rawValue: 0x07)
    /// ``FitnessMachineCommand/stop`` or ``FitnessMachineCommand/pause``; 1 byte.
    public static let stopOrPause = Self(rawValue: 0x08)
    /// ``FitnessMachineTarget/expendedEnergy(_:)``; 2 bytes.
    public static let setTargetedExpendedEnergy = Self(rawValue: 0x09)
    /// ``FitnessMachineTarget/steps(_:)``; 2 bytes.
    public static let setTargetedSteps = Self(rawValue: 0x0A)
    /// ``FitnessMachineTarget/strides(_:)``; 2 bytes.
    public static let setTargetedStrides = Self(rawValue: 0x0B)
    /// ``FitnessMachineTarget/distance(_:)``; 3 bytes.
    public static let setTargetedDistance = Self(rawValue: 0x0C)
    /// ``FitnessMachineTarget/trainingTime(_:)``; 2 bytes.
    public static let setTargetedTrainingTime = Self(rawValue: 0x0D)
    /// ``FitnessMachineTarget/timeInTwoZones(fatBurn:fitness:)``; 4 bytes.
    public static let setTargetedTimeInTwoZones = Self(rawValue: 0x0E)
    /// ``FitnessMachineTarget/timeInThreeZones(light:moderate:hard:)``; 6 bytes.
    public static let setTargetedTimeInThreeZones = Self(rawValue: 0x0F)
    /// ``FitnessMachineTarget/timeInFiveZones(veryLight:light:moderate:hard:maximum:)``; 10 bytes.
    public static let setTargetedTimeInFiveZones = Self(rawValue: 0x10)
    /// ``FitnessMachineTarget/simulation(_:)``; 6 bytes.
    public static let setIndoorBikeSimulation = Self(rawValue: 0x11)
    /// ``FitnessMachineTarget/wheelCircumference(_:)``; 2 bytes.
    public static let setWheelCircumference = Self(rawValue: 0x12)
    /// ``FitnessMachineCommand/startSpinDown`` or ``FitnessMachineCommand/ignoreSpinDown``; 1 byte.
    public static let spinDownControl = Self(rawValue: 0x13)
    /// ``FitnessMachineTarget/cadence(_:)``; 2 bytes.
    public static let setTargetedCadence = Self(rawValue: 0x14)
    /// The response.
    public static let response = Self(rawValue: 0x80)

    /// That of the operation.
    public var parameterLength: Int? {
        switch self {
        case .requestControl, .reset, .startOrResume: 0
        case .setTargetResistanceLevel, .setTargetHeartRate, .stopOrPause, .spinDownControl: 1
        case .setTargetSpeed, .setTargetInclination, .setTargetPower, .setTargetedExpendedEnergy, .setTargetedSteps,
            .setTargetedStrides, .setTargetedTrainingTime, .setWheelCircumference, .setTargetedCadence:
            2
        case .setTargetedDistance: 3
        case .setTargetedTimeInTwoZones: 4
        case .setTargetedTimeInThreeZones, .setIndoorBikeSimulation: 6
        case .setTargetedTimeInFiveZones: 10
        default: nil
        }
    }
}

/// How a machine responds. BluezKit addition.
public enum FitnessMachineResult: UInt8, EnumeratedValue {
    /// The result code.
    case success = 1, notSupported, invalidParameter, failed, controlNotPermitted
    /// Failed.
    public init() { self = .failed }
}

/// A request to a machine. BluezKit addition.
public enum FitnessMachineCommand: ControlPointCommand {
    /// Asks for the permission to control the machine.
    case requestControl
    /// Resets the settings, and ends the control.
    case reset
    /// Sets a target, or what a bike simulates.
    case set(FitnessMachineTarget)
    /// Starts the training, or resumes it after a pause.
    case startOrResume
    /// Ends the training.
    case stop
    /// Pauses the training.
    case pause
    /// Starts the calibration of a bike: see ``ControlPoint/spinDownSpeeds``.
    case startSpinDown
    /// Refuses the calibration that a bike has asked for.
    case ignoreSpinDown

    /// What is requested.
    public var operation: FitnessMachineOperation { coded.operation }

    /// As transmitted.
    public var parameter: Data { coded.parameter }

    private var coded: (operation: FitnessMachineOperation, parameter: Data) {
        switch self {
        case .requestControl: (.requestControl, Data())
        case .reset: (.reset, Data())
        case .set(let target): target.coded
        case .startOrResume: (.startOrResume, Data())
        case .stop: (.stopOrPause, Data([1]))
        case .pause: (.stopOrPause, Data([2]))
        case .startSpinDown: (.spinDownControl, Data([1]))
        case .ignoreSpinDown: (.spinDownControl, Data([2]))
        }
    }

    /// The command of an operation; nil if it has none, or if the parameter is not one of its values.
    public init?(_ operation: FitnessMachineOperation, parameter: Data) {
        switch (operation, parameter.first) {
        case (.requestControl, _): self = .requestControl
        case (.reset, _): self = .reset
        case (.startOrResume, _): self = .startOrResume
        case (.stopOrPause, 1): self = .stop
        case (.stopOrPause, 2): self = .pause
        case (.spinDownControl, 1): self = .startSpinDown
        case (.spinDownControl, 2): self = .ignoreSpinDown
        default:
            guard let target = FitnessMachineTarget(operation, parameter) else { return nil }
            self = .set(target)
        }
    }
}

extension ControlPoint where Operation == FitnessMachineOperation {
    /// The response to ``FitnessMachineCommand/startSpinDown``.
    /// - Parameter speeds: In 0.01 km/h: the user reaches the high one, and stops pedaling until the low one.
    public init(spinDownSpeeds speeds: (low: UInt16, high: UInt16)) {
        self.init(to: .spinDownControl, .success, parameter: speeds.low.encoded + speeds.high.encoded)
    }

    /// Of the response to ``FitnessMachineCommand/startSpinDown``, in 0.01 km/h: the user reaches the high one, and
    /// stops pedaling until the low one. Nil: another response, or a request.
    public var spinDownSpeeds: (low: UInt16, high: UInt16)? {
        guard request == .spinDownControl, result == .success, let low = UInt16(decoding: parameter),
            let high = UInt16(decoding: parameter.dropFirst(2))
        else { return nil }
        return (low, high)
    }
}
