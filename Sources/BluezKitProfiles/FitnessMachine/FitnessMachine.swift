public import BluezKit
import Foundation

/// The Fitness Machine service, 1826. BluezKit addition.
///
/// ```swift
/// let bike = FitnessMachineService(including: [
///     IndoorBikeData.uuid, SupportedPowerRange.uuid, FitnessMachineControlPoint.uuid, FitnessMachineStatus.uuid,
/// ])
/// bike.onWrite(of: FitnessMachineControlPoint.self) { request in
///     switch request.command {
///     case .set(.power(let watts))?: brake.power = watts  // then the response, with send(_:of:by:)
///     ...
/// }
/// bike.send(record: IndoorBikeData { ($0.speed, $0.power) = (2500, 180) }, by: manager)
/// ```
/// - SeeAlso: Bluetooth SIG, Fitness Machine Service 1.0.
public enum FitnessMachine: ServiceProfile {
    /// 1826.
    public static let uuid = CBUUID(string: "1826")
    /// A machine has the data of its kind. With a control point it has the status as well, and a range for each target
    /// that can be set.
    public static let characteristics = [
        ProfileCharacteristic(FitnessMachineFeature.self, .read),
        ProfileCharacteristic(TreadmillData.self, .notify, isOptional: true),
        ProfileCharacteristic(CrossTrainerData.self, .notify, isOptional: true),
        ProfileCharacteristic(StepClimberData.self, .notify, isOptional: true),
        ProfileCharacteristic(StairClimberData.self, .notify, isOptional: true),
        ProfileCharacteristic(RowerData.self, .notify, isOptional: true),
        ProfileCharacteristic(IndoorBikeData.self, .notify, isOptional: true),
        ProfileCharacteristic(TrainingStatus.self, [.read, .notify], isOptional: true),
        ProfileCharacteristic(SupportedSpeedRange.self, .read, isOptional: true),
        ProfileCharacteristic(SupportedInclinationRange.self, .read, isOptional: true),
        ProfileCharacteristic(SupportedResistanceLevelRange.self, .read, isOptional: true),
        ProfileCharacteristic(SupportedPowerRange.self, .read, isOptional: true),
        ProfileCharacteristic(SupportedHeartRateRange.self, .read, isOptional: true),
        ProfileCharacteristic(FitnessMachineControlPoint.self, [.write, .indicate], isOptional: true),
        ProfileCharacteristic(FitnessMachineStatus.self, .notify, isOptional: true),
    ]
}

/// The server side of ``FitnessMachine``. BluezKit addition.
public typealias FitnessMachineService = ProfileService<FitnessMachine>

extension ProfileService where Profile == FitnessMachine {
    /// Notifies a record to all subscribed centrals, in as many parts as the one with the least room needs.
    /// - Returns: The result of `updateValue`: false if there was no room, or if the service does not have the
    ///   characteristic. The rest of the record is not sent then. It need not be repeated: send the next one, with
    ///   which centrals begin a new record.
    @discardableResult
    public func send<Value: FitnessMachineData>(record: Value, by manager: CBPeripheralManager) -> Bool {
        let room = characteristic(Value.uuid)?.subscribedCentrals?.map(\.maximumUpdateValueLength).min() ?? 20
        return record.notifications(length: room).allSatisfy { send($0, of: Value.uuid, by: manager) }
    }
}

/// What a machine measures. A record has a notification, or several if it is too long for one. BluezKit addition.
///
/// The field that stands first in the specification, such as the speed of a bike, is in the last notification of a
/// record. A record without it is not complete, for centrals either.
/// - SeeAlso: Bluetooth SIG, Fitness Machine Service 1.0, 4.4 ("More Data").
public protocol FitnessMachineData: StructuredValue, Hashable {
    /// The notification is a part of a record that continues: see ``FitnessMachineRecords``.
    var hasMoreData: Bool { get }
}

extension FitnessMachineData {
    /// The record as it is transmitted.
    /// - Parameter length: The room in a notification: `maximumUpdateValueLength` of the central with the least. A
    ///   single field that is longer is a notification nevertheless.
    public func notifications(length: Int) -> [Data] {
        var (copy, fields) = (self, FieldCoder())
        try? copy.code(&fields)  // only reading throws
        return fields.written(inPartsOf: length, flag: 0)
    }
}

/// Joins the notifications of a machine to records. BluezKit addition.
///
/// ```swift
/// var records = FitnessMachineRecords<RowerData>()
///
/// func peripheral(
///     _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
/// ) {
///     if let record = try? records.add(characteristic.value) { print(record.power ?? 0) }
/// }
/// ```
///
/// Use a new one for each link.
public struct FitnessMachineRecords<Value: FitnessMachineData>: Sendable {
    private var part: Value?

    /// Begins with the next notification.
    public init() {}

    /// Adds a notification. If its fields are in the record already, the end of that one was lost, and it begins a new
    /// one.
    /// - Returns: The record if it is complete.
    /// - Throws: If the notification cannot be read. The record is abandoned then.
    public mutating func add(_ value: Data?) throws(CharacteristicValueError) -> Value? {
        var record = part ?? Value()
        part = nil
        if try record.add(value) { record = try Value(value) }
        guard record.hasMoreData else { return record }
        part = record
        return nil
    }
}

/// What a machine advertises as data of the service. BluezKit addition.
///
/// ```swift
/// let data = (advertisementData[CBAdvertisementDataServiceDataKey] as? [CBUUID: Data])?[FitnessMachine.uuid]
/// let machine = try? FitnessMachineAdvertisement(data)
/// ```
/// - SeeAlso: Bluetooth SIG, Fitness Machine Service 1.0, 3.1.
public struct FitnessMachineAdvertisement: StructuredValue, Hashable {
    /// 1826: that of the service.
    public static let uuid = FitnessMachine.uuid

    /// It can be used.
    public var isAvailable = false
    /// What it is.
    public var kind: Kind = []

    /// Not available, and of no kind.
    public init() {}

    /// Kinds of machines. BluezKit addition.
    public struct Kind: FlagSet, Hashable {
        /// The flags as bits.
        public let rawValue: UInt16
        /// Kinds from their bits.
        public init(rawValue: UInt16) { self.rawValue = rawValue }

        /// A treadmill.
        public static let treadmill = Self(rawValue: 1 << 0)
        /// A cross trainer.
        public static let crossTrainer = Self(rawValue: 1 << 1)
        /// A step climber.
        public static let stepClimber = Self(rawValue: 1 << 2)
        /// A stair climber.
        public static let stairClimber = Self(rawValue: 1 << 3)
        /// A rower.
        public static let rower = Self(rawValue: 1 << 4)
        /// An indoor bike.
        public static let indoorBike = Self(rawValue: 1 << 5)
        /// All of these.
        public static let assigned = Self(rawValue: 0x003F)
    }

    /// Reads or writes the fields, in the order in which they are transmitted.
    public mutating func code(_ fields: inout FieldCoder) throws(CharacteristicValueError) {
        try fields.flags(bytes: 1)
        fields.flag(0, &isAvailable)
        try fields.field("type", &kind)
    }
}
