public import BluezKit
import Foundation

/// The operations of a ``ControlPoint``. BluezKit addition.
public protocol ControlPointOperation: RawRepresentable<UInt8>, Hashable, Sendable {
    /// The characteristic.
    static var controlPoint: CBUUID { get }
    /// The operation that is the response to another one.
    static var response: Self { get }
    /// Any number: a server answers what it does not know with ``ControlPointResult/notSupported``.
    init(rawValue: UInt8)
    /// The bytes of a request's parameter. A request with more or less cannot be read. Nil: any number of bytes.
    var parameterLength: Int? { get }
}

extension ControlPointOperation {
    /// Any number of bytes.
    public var parameterLength: Int? { nil }
}

/// A request to a sensor, written with response; or the sensor's response, indicated. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, "SC Control Point", "Cycling Power Control Point".
public struct ControlPoint<Operation: ControlPointOperation>: StructuredValue, Hashable {
    /// 2A55 or 2A66.
    public static var uuid: CBUUID { Operation.controlPoint }

    /// What is requested, or the response.
    public var operation: Operation
    /// Of a response: to what. Nil for a request.
    public private(set) var request: Operation?
    /// Of a response. Nil for a request, or a number that is not assigned.
    @Assigned public private(set) var result: ControlPointResult?
    /// As the operation defines it, little-endian.
    public var parameter: Data

    /// A request.
    public init(_ operation: Operation, parameter: Data = Data()) {
        (self.operation, self.parameter) = (operation, parameter)
        if operation == .response { (request, result) = (Operation(rawValue: 0), .failed) }
    }

    /// A response.
    public init(to request: Operation, _ result: ControlPointResult, parameter: Data = Data()) {
        (operation, self.request, self.parameter) = (.response, request, parameter)
        self.result = result
    }

    /// Operation 0.
    public init() { self.init(Operation(rawValue: 0)) }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        var (number, asked) = (operation.rawValue, request?.rawValue ?? 0)
        try fields.field("operation", &number)
        operation = Operation(rawValue: number)
        if operation == .response {
            try fields.field("requested operation", &asked)
            try fields.field("response value", &_result)
            request = Operation(rawValue: asked)
        } else {
            (request, result) = (nil, nil)
        }
        fields.rest(&parameter)
        guard fields.isReading, operation != .response, let length = operation.parameterLength else { return }
        if parameter.count < length { throw .truncated(field: "parameter") }
        if parameter.count > length { throw .trailing(bytes: parameter.count - length) }
    }
}

/// How a sensor responds. BluezKit addition.
public enum ControlPointResult: UInt8, EnumeratedValue {
    /// The response value.
    case success = 1, notSupported, invalidParameter, failed
    /// Failed.
    public init() { self = .failed }
}

/// An operation of the control point of speed and cadence sensors, 2A55. BluezKit addition.
public struct SCOperation: ControlPointOperation {
    /// 2A55.
    public static let controlPoint = CBUUID(string: "2A55")
    /// The number.
    public let rawValue: UInt8
    /// An operation from its number.
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// Sets the count of wheel revolutions, or the total distance in 0.1 m; 4 bytes.
    public static let setCumulativeValue = Self(rawValue: 1)
    /// Starts the calibration.
    public static let startSensorCalibration = Self(rawValue: 2)
    /// Sets the ``SensorLocation``; 1 byte.
    public static let updateSensorLocation = Self(rawValue: 3)
    /// Asks for the locations, which the response contains, 1 byte each.
    public static let requestSupportedSensorLocations = Self(rawValue: 4)
    /// The response.
    public static let response = Self(rawValue: 16)

    /// That of the operation.
    public var parameterLength: Int? {
        switch self {
        case .setCumulativeValue: 4
        case .updateSensorLocation: 1
        case .startSensorCalibration, .requestSupportedSensorLocations: 0
        default: nil
        }
    }
}

/// An operation of the control point of power meters, 2A66. BluezKit addition.
public struct CyclingPowerOperation: ControlPointOperation {
    /// 2A66.
    public static let controlPoint = CBUUID(string: "2A66")
    /// The number.
    public let rawValue: UInt8
    /// An operation from its number.
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// Sets the count of wheel revolutions; 4 bytes.
    public static let setCumulativeValue = Self(rawValue: 1)
    /// Sets the ``SensorLocation``; 1 byte.
    public static let updateSensorLocation = Self(rawValue: 2)
    /// Asks for the locations, which the response contains, 1 byte each.
    public static let requestSupportedSensorLocations = Self(rawValue: 3)
    /// Sets the length of the crank, in 0.5 mm; 2 bytes.
    public static let setCrankLength = Self(rawValue: 4)
    /// Asks for the length of the crank.
    public static let requestCrankLength = Self(rawValue: 5)
    /// Sets the length of the chain, in mm; 2 bytes.
    public static let setChainLength = Self(rawValue: 6)
    /// Asks for the length of the chain.
    public static let requestChainLength = Self(rawValue: 7)
    /// Sets the weight of the chain, in g; 2 bytes.
    public static let setChainWeight = Self(rawValue: 8)
    /// Asks for the weight of the chain.
    public static let requestChainWeight = Self(rawValue: 9)
    /// Sets the length of the span, in mm; 2 bytes.
    public static let setSpanLength = Self(rawValue: 10)
    /// Asks for the length of the span.
    public static let requestSpanLength = Self(rawValue: 11)
    /// Starts the offset compensation. The response contains the offset, in N or 1/32 N m; 2 bytes.
    public static let startOffsetCompensation = Self(rawValue: 12)
    /// Leaves fields of ``CyclingPowerMeasurement`` out; 2 bytes.
    public static let maskMeasurementContent = Self(rawValue: 13)
    /// Asks for the sampling rate, in Hz; 1 byte.
    public static let requestSamplingRate = Self(rawValue: 14)
    /// Asks for the date of the calibration, a ``DateTime``.
    public static let requestFactoryCalibrationDate = Self(rawValue: 15)
    /// Starts the enhanced offset compensation.
    public static let startEnhancedOffsetCompensation = Self(rawValue: 16)
    /// The response.
    public static let response = Self(rawValue: 32)

    /// That of the operation.
    public var parameterLength: Int? {
        switch self {
        case .setCumulativeValue: 4
        case .setCrankLength, .setChainLength, .setChainWeight, .setSpanLength, .maskMeasurementContent: 2
        case .updateSensorLocation: 1
        case .requestSupportedSensorLocations, .requestCrankLength, .requestChainLength, .requestChainWeight,
            .requestSpanLength, .startOffsetCompensation, .requestSamplingRate, .requestFactoryCalibrationDate,
            .startEnhancedOffsetCompensation:
            0
        default: nil
        }
    }
}

/// The control point of speed and cadence sensors, 2A55. BluezKit addition.
public typealias SCControlPoint = ControlPoint<SCOperation>
/// The control point of power meters, 2A66. BluezKit addition.
public typealias CyclingPowerControlPoint = ControlPoint<CyclingPowerOperation>
