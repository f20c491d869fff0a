public import BluezKit

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
