public import CoreBluetooth

/// A service of a connected peripheral, as it was discovered. It is valid until the connection ends or the peripheral
/// changes its services; after that, operations with it throw `CBError.notConnected` or `.invalidHandle`.
public struct Service: Hashable, Sendable {
    let number: UInt64
    private let uuidData: Data
    /// Whether this is a primary service, rather than one that others include.
    public let isPrimary: Bool

    init(number: UInt64, _ service: CBService) {
        (self.number, uuidData, isPrimary) = (number, service.uuid.data, service.isPrimary)
    }

    /// The kind of service.
    public var uuid: CBUUID { CBUUID(data: uuidData) }
}

/// A characteristic of a connected peripheral, as it was discovered. It is valid as long as its ``Service``.
public struct Characteristic: Hashable, Sendable {
    let number: UInt64
    private let uuidData: Data
    /// What the peripheral permits.
    public let properties: CBCharacteristicProperties

    init(number: UInt64, _ characteristic: CBCharacteristic) {
        (self.number, uuidData, properties) = (number, characteristic.uuid.data, characteristic.properties)
    }

    /// The kind of characteristic.
    public var uuid: CBUUID { CBUUID(data: uuidData) }

    /// Whether both stand for the same attribute.
    public static func == (a: Characteristic, b: Characteristic) -> Bool { a.number == b.number }
    /// Hashes the attribute that this stands for.
    public func hash(into hasher: inout Hasher) { hasher.combine(number) }
}

/// A descriptor of a connected peripheral's characteristic, as it was discovered. It is valid as long as its
/// ``Service``.
public struct Descriptor: Hashable, Sendable {
    let number: UInt64
    private let uuidData: Data

    init(number: UInt64, _ descriptor: CBDescriptor) { (self.number, uuidData) = (number, descriptor.uuid.data) }

    /// The kind of descriptor.
    public var uuid: CBUUID { CBUUID(data: uuidData) }

    /// What a descriptor contains. The kind of descriptor decides which.
    public enum Value: Hashable, Sendable {
        /// Extended properties (2900) and configurations (2902, 2903).
        case number(Int)
        /// The user description (2901).
        case text(String)
        /// All others.
        case data(Data)

        init(_ value: Any?) {
            switch value {
            case let number as NSNumber: self = .number(number.intValue)
            case let text as String: self = .text(text)
            default: self = .data(value as? Data ?? Data())
            }
        }
    }
}
