public import BluezKit
import Foundation

/// The control point of glucose sensors, 2AAC. BluezKit addition.
///
/// ```swift
/// let request = CGMSpecificOpsControlPoint(command: .setLevel(.patientHigh, MedFloat16(180))).secured()
/// ```
///
/// What it answers a "get" with has an operation of its own, such as ``CGMCommand/level(_:_:)``. A checksum can be read
/// only where the operation is known, because the length tells whether there is one.
/// - SeeAlso: Bluetooth SIG, Continuous Glucose Monitoring Service 1.0.2, 3.7; GATT Specification Supplement, "CGM
///   Specific Ops Control Point".
public typealias CGMSpecificOpsControlPoint = ControlPoint<CGMOperation>

extension ControlPoint where Operation == CGMOperation {
    /// The same with a checksum at the end, for sensors with ``CGMFeature/Features/e2eCRC``.
    public func secured() -> Self {
        var copy = self
        copy.isSecured = true
        return copy
    }
}

/// An operation of the control point of glucose sensors, 2AAC. ``CGMCommand`` has them with their parameters. BluezKit
/// addition.
public struct CGMOperation: CommandOperation {
    /// How a sensor responds.
    public typealias Result = CGMResult
    /// A request with its parameter.
    public typealias Command = CGMCommand
    /// 2AAC.
    public static let controlPoint = CBUUID(string: "2AAC")
    /// With the E2E-CRC.
    public static let canBeSecured = true
    /// The number.
    public let rawValue: UInt8
    /// An operation from its number.
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// ``CGMCommand/setCommunicationInterval(_:)``; 1 byte.
    public static let setCommunicationInterval = Self(rawValue: 0x01)
    /// ``CGMCommand/getCommunicationInterval``
    public static let getCommunicationInterval = Self(rawValue: 0x02)
    /// ``CGMCommand/communicationInterval(_:)``, the response; 1 byte.
    public static let communicationInterval = Self(rawValue: 0x03)
    /// ``CGMCommand/setCalibration(_:)``; 10 bytes.
    public static let setCalibration = Self(rawValue: 0x04)
    /// ``CGMCommand/getCalibration(_:)``; 2 bytes.
    public static let getCalibration = Self(rawValue: 0x05)
    /// ``CGMCommand/calibration(_:)``, the response; 10 bytes.
    public static let calibration = Self(rawValue: 0x06)
    /// Sets a level; 2 bytes.
    public static func setLevel(_ level: CGMAlertLevel) -> Self { Self(rawValue: level.rawValue) }
    /// Asks for a level.
    public static func getLevel(_ level: CGMAlertLevel) -> Self { Self(rawValue: level.rawValue + 1) }
    /// The response with a level; 2 bytes.
    public static func level(_ level: CGMAlertLevel) -> Self { Self(rawValue: level.rawValue + 2) }
    /// ``CGMCommand/resetDeviceSpecificAlert``
    public static let resetDeviceSpecificAlert = Self(rawValue: 0x19)
    /// ``CGMCommand/startSession``
    public static let startSession = Self(rawValue: 0x1A)
    /// ``CGMCommand/stopSession``
    public static let stopSession = Self(rawValue: 0x1B)
    /// The response to what has no response of its own, and to what has failed.
    public static let response = Self(rawValue: 0x1C)

    /// Of an operation with a level: which.
    fileprivate var level: (level: CGMAlertLevel, isGet: Bool, isResponse: Bool)? {
        for level in CGMAlertLevel.allCases where (level.rawValue...level.rawValue + 2).contains(rawValue) {
            return (level, self == .getLevel(level), self == .level(level))
        }
        return nil
    }

    /// That of the operation.
    public var parameterLength: Int? {
        switch self {
        case .setCommunicationInterval, .communicationInterval: 1
        case .setCalibration, .calibration: 10
        case .getCalibration: 2
        case .getCommunicationInterval, .resetDeviceSpecificAlert, .startSession, .stopSession: 0
        default: level.map { $0.isGet ? 0 : 2 }
        }
    }
}

/// How a glucose sensor responds. BluezKit addition.
public enum CGMResult: UInt8, EnumeratedValue {
    /// The response code.
    case success = 1, notSupported, invalidOperand, procedureNotCompleted, parameterOutOfRange
    /// Not completed.
    public init() { self = .procedureNotCompleted }
}

/// A level of a glucose sensor; the numbers are those of the operations that set them. BluezKit addition.
public enum CGMAlertLevel: UInt8, CaseIterable, Sendable {
    /// In mg/dl, above which the patient is alerted.
    case patientHigh = 0x07
    /// In mg/dl, below which the patient is alerted.
    case patientLow = 0x0A
    /// In mg/dl, below which there is too little glucose.
    case hypo = 0x0D
    /// In mg/dl, above which there is too much glucose.
    case hyper = 0x10
    /// In mg/dl per minute.
    case rateOfDecrease = 0x13
    /// In mg/dl per minute.
    case rateOfIncrease = 0x16
}

/// A request to a glucose sensor, or its response with a value. BluezKit addition.
public enum CGMCommand: ControlPointCommand {
    /// How often the sensor sends, in minutes; 0: not at all; 255: as often as it can.
    case setCommunicationInterval(UInt8)
    /// Asks how often the sensor sends.
    case getCommunicationInterval
    /// The response: in minutes; 0: not at all.
    case communicationInterval(UInt8)
    /// Calibrates the sensor.
    case setCalibration(CGMCalibration)
    /// Asks for a calibration by its number; 65535: the last one.
    case getCalibration(UInt16)
    /// The response.
    case calibration(CGMCalibration)
    /// Sets a level.
    case setLevel(CGMAlertLevel, MedFloat16)
    /// Asks for a level.
    case getLevel(CGMAlertLevel)
    /// The response.
    case level(CGMAlertLevel, MedFloat16)
    /// Ends the alert of the device.
    case resetDeviceSpecificAlert
    /// Starts the session.
    case startSession
    /// Ends the session.
    case stopSession

    /// What is requested.
    public var operation: CGMOperation { coded.operation }

    /// As transmitted.
    public var parameter: Data { coded.parameter }

    private var coded: (operation: CGMOperation, parameter: Data) {
        switch self {
        case .setCommunicationInterval(let minutes): (.setCommunicationInterval, minutes.encoded)
        case .getCommunicationInterval: (.getCommunicationInterval, Data())
        case .communicationInterval(let minutes): (.communicationInterval, minutes.encoded)
        case .setCalibration(let calibration): (.setCalibration, calibration.encoded)
        case .getCalibration(let number): (.getCalibration, number.encoded)
        case .calibration(let calibration): (.calibration, calibration.encoded)
        case .setLevel(let level, let number): (.setLevel(level), number.encoded)
        case .getLevel(let level): (.getLevel(level), Data())
        case .level(let level, let number): (.level(level), number.encoded)
        case .resetDeviceSpecificAlert: (.resetDeviceSpecificAlert, Data())
        case .startSession: (.startSession, Data())
        case .stopSession: (.stopSession, Data())
        }
    }

    /// The command of an operation; nil if it has none, or if the parameter is too short.
    public init?(_ operation: CGMOperation, parameter: Data) {
        func read<Value: FieldValue>(_ command: (Value) -> Self) -> Self? { Value(decoding: parameter).map(command) }
        let command: Self?
        switch operation {
        case .setCommunicationInterval: command = read(Self.setCommunicationInterval)
        case .getCommunicationInterval: command = .getCommunicationInterval
        case .communicationInterval: command = read(Self.communicationInterval)
        case .setCalibration: command = read(Self.setCalibration)
        case .getCalibration: command = read(Self.getCalibration)
        case .calibration: command = read(Self.calibration)
        case .resetDeviceSpecificAlert: command = .resetDeviceSpecificAlert
        case .startSession: command = .startSession
        case .stopSession: command = .stopSession
        default:
            switch operation.level {
            case (let level, true, _)?: command = .getLevel(level)
            case (let level, _, true)?: command = read { .level(level, $0) }
            case (let level, _, _)?: command = read { .setLevel(level, $0) }
            case nil: command = nil
            }
        }
        guard let command else { return nil }
        self = command
    }
}

/// The calibration of a glucose sensor. BluezKit addition.
public struct CGMCalibration: FieldValue, Hashable {
    /// In mg/dl.
    public var concentration = MedFloat16.notANumber
    /// In minutes since ``CGMSessionStartTime``.
    public var time: UInt16 = 0
    /// What was measured; nil: a number that is not assigned.
    @Assigned public var sample: GlucoseMeasurement.Sample? = .capillaryWholeBlood
    /// Where it was measured; nil: a number that is not assigned.
    @Assigned public var location: CGMLocation? = .notAvailable
    /// When the sensor has to be calibrated next, in minutes since ``CGMSessionStartTime``; ignored in a request.
    public var nextTime: UInt16 = 0
    /// The number of the calibration; ignored in a request.
    public var number: UInt16 = 0
    /// What became of it; ignored in a request.
    public var status: Status = []

    /// No number.
    public init() {}

    /// What became of a calibration. BluezKit addition.
    public struct Status: FlagSet, Hashable {
        /// The flags as bits.
        public let rawValue: UInt8
        /// A status from its bits.
        public init(rawValue: UInt8) { self.rawValue = rawValue }

        /// It was rejected.
        public static let rejected = Self(rawValue: 1 << 0)
        /// It is out of range.
        public static let outOfRange = Self(rawValue: 1 << 1)
        /// It is not finished.
        public static let pending = Self(rawValue: 1 << 2)
        /// All of these.
        public static let assigned = Self(rawValue: 0x07)
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
        try fields.field("glucose concentration of calibration", &concentration)
        try fields.field("calibration time", &time)
        try fields.halves("calibration type and sample location", &_sample, &_location)
        try fields.field("next calibration time", &nextTime)
        try fields.field("calibration data record number", &number)
        try fields.field("calibration status", &status)
    }
}
