import Foundation

/// What can be set on a machine. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Fitness Machine Service 1.0, 4.16.2 and 4.17.
public enum FitnessMachineTarget: Hashable, Sendable {
    /// In 0.01 km/h.
    case speed(UInt16)
    /// In 0.1 %.
    case inclination(Int16)
    /// In the unit of ``SupportedResistanceLevelRange``.
    case resistanceLevel(UInt8)
    /// In W.
    case power(Int16)
    /// In beats per minute.
    case heartRate(UInt8)
    /// In kcal.
    case expendedEnergy(UInt16)
    /// A number of steps.
    case steps(UInt16)
    /// A number of strides.
    case strides(UInt16)
    /// In m, 24 bits.
    case distance(UInt32)
    /// In seconds.
    case trainingTime(UInt16)
    /// In seconds, in each zone of the heart rate.
    case timeInTwoZones(fatBurn: UInt16, fitness: UInt16)
    /// In seconds, in each zone of the heart rate.
    case timeInThreeZones(light: UInt16, moderate: UInt16, hard: UInt16)
    /// In seconds, in each zone of the heart rate.
    case timeInFiveZones(veryLight: UInt16, light: UInt16, moderate: UInt16, hard: UInt16, maximum: UInt16)
    /// The surroundings that a bike simulates.
    case simulation(IndoorBikeSimulation)
    /// In 0.1 mm.
    case wheelCircumference(UInt16)
    /// In 0.5 revolutions per minute.
    case cadence(UInt16)

    /// The operation of the control point, and its parameter.
    var coded: (operation: FitnessMachineOperation, parameter: Data) {
        switch self {
        case .speed(let speed): (.setTargetSpeed, speed.encoded)
        case .inclination(let inclination): (.setTargetInclination, inclination.encoded)
        case .resistanceLevel(let level): (.setTargetResistanceLevel, level.encoded)
        case .power(let power): (.setTargetPower, power.encoded)
        case .heartRate(let rate): (.setTargetHeartRate, rate.encoded)
        case .expendedEnergy(let energy): (.setTargetedExpendedEnergy, energy.encoded)
        case .steps(let steps): (.setTargetedSteps, steps.encoded)
        case .strides(let strides): (.setTargetedStrides, strides.encoded)
        case .distance(let distance): (.setTargetedDistance, min(distance, 0xFF_FFFF).encoded.prefix(3))
        case .trainingTime(let time): (.setTargetedTrainingTime, time.encoded)
        case .timeInTwoZones(let fatBurn, let fitness):
            (.setTargetedTimeInTwoZones, Self.times(fatBurn, fitness))
        case .timeInThreeZones(let light, let moderate, let hard):
            (.setTargetedTimeInThreeZones, Self.times(light, moderate, hard))
        case .timeInFiveZones(let veryLight, let light, let moderate, let hard, let maximum):
            (.setTargetedTimeInFiveZones, Self.times(veryLight, light, moderate, hard, maximum))
        case .simulation(let simulation): (.setIndoorBikeSimulation, simulation.encoded)
        case .wheelCircumference(let circumference): (.setWheelCircumference, circumference.encoded)
        case .cadence(let cadence): (.setTargetedCadence, cadence.encoded)
        }
    }

    /// The target of an operation; nil if it sets none, or if the parameter is too short.
    init?(_ operation: FitnessMachineOperation, _ parameter: Data) {
        func read<Value: FieldValue>(_ target: (Value) -> Self) -> Self? { Value(decoding: parameter).map(target) }
        let target: Self?
        switch operation {
        case .setTargetSpeed: target = read(Self.speed)
        case .setTargetInclination: target = read(Self.inclination)
        case .setTargetResistanceLevel: target = read(Self.resistanceLevel)
        case .setTargetPower: target = read(Self.power)
        case .setTargetHeartRate: target = read(Self.heartRate)
        case .setTargetedExpendedEnergy: target = read(Self.expendedEnergy)
        case .setTargetedSteps: target = read(Self.steps)
        case .setTargetedStrides: target = read(Self.strides)
        case .setTargetedDistance: target = UInt32(decoding: parameter.prefix(3) + [0]).map(Self.distance)
        case .setTargetedTrainingTime: target = read(Self.trainingTime)
        case .setTargetedTimeInTwoZones:
            target = Self.times(2, parameter).map { .timeInTwoZones(fatBurn: $0[0], fitness: $0[1]) }
        case .setTargetedTimeInThreeZones:
            target = Self.times(3, parameter).map { .timeInThreeZones(light: $0[0], moderate: $0[1], hard: $0[2]) }
        case .setTargetedTimeInFiveZones:
            target = Self.times(5, parameter).map {
                .timeInFiveZones(veryLight: $0[0], light: $0[1], moderate: $0[2], hard: $0[3], maximum: $0[4])
            }
        case .setIndoorBikeSimulation: target = read(Self.simulation)
        case .setWheelCircumference: target = read(Self.wheelCircumference)
        case .setTargetedCadence: target = read(Self.cadence)
        default: target = nil
        }
        guard let target else { return nil }
        self = target
    }

    private static func times(_ times: UInt16...) -> Data { times.reduce(Data()) { $0 + $1.encoded } }

    private static func times(_ count: Int, _ parameter: Data) -> [UInt16]? {
        var reader = FieldReader(bytes: parameter)
        let times = (0..<count).compactMap { _ in try? reader.uint16("time") }
        return times.count == count ? times : nil
    }
}

/// The surroundings that a bike simulates. BluezKit addition.
public struct IndoorBikeSimulation: FieldValue, Hashable {
    /// In 0.001 m/s; positive: head wind.
    public var windSpeed: Int16 = 0
    /// In 0.01 %; positive: uphill.
    public var grade: Int16 = 0
    /// The coefficient of the rolling resistance, in 0.0001.
    public var rollingResistance: UInt8 = 0
    /// The coefficient of the wind resistance, in 0.01 kg/m.
    public var windResistance: UInt8 = 0
    /// Level, without resistance.
    public init() {}
    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder, as name: String) throws(CharacteristicValueError) {
        try fields.field("wind speed", &windSpeed)
        try fields.field("grade", &grade)
        try fields.field("coefficient of rolling resistance", &rollingResistance)
        try fields.field("wind resistance coefficient", &windResistance)
    }
}
