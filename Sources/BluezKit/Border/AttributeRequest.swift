import BluezKitRestore
import Foundation

/// An attribute of one peripheral, during one link: a number that the core gives, from 1.
struct AttributeID: RawRepresentable, Hashable, Codable, Sendable {
    let rawValue: UInt32
    /// Not an attribute of a peripheral.
    static let none = AttributeID(rawValue: 0)
}

/// What an app asks of a connected peripheral.
enum AttributeRequest: Codable, Sendable {
    case discoverServices([CodableUUID]?)
    case discoverIncludedServices([CodableUUID]?, AttributeID)
    case discoverCharacteristics([CodableUUID]?, AttributeID)
    case discoverDescriptors(AttributeID)
    case read(AttributeID)
    case readDescriptor(AttributeID)
    case write([UInt8], AttributeID)
    case writeWithoutResponse([UInt8], AttributeID)
    case writeDescriptor([UInt8], AttributeID)
    case setNotify(Bool, AttributeID)
    /// As an earlier process had it; success is not reported.
    case resubscribe(AttributeID)
    case readRSSI

    /// What it is about; nil: the peripheral.
    var attribute: AttributeID? {
        switch self {
        case .discoverServices, .readRSSI: nil
        case .discoverIncludedServices(_, let id), .discoverCharacteristics(_, let id), .discoverDescriptors(let id),
            .read(let id), .readDescriptor(let id), .write(_, let id), .writeWithoutResponse(_, let id),
            .writeDescriptor(_, let id), .setNotify(_, let id), .resubscribe(let id):
            id
        }
    }
}

/// What becomes of an ``AttributeRequest``: each gets one answer, as long as the link lasts.
enum AttributeAnswer: Codable, Sendable {
    case services([FoundService])
    case includedServices([FoundService], of: AttributeID)
    case characteristics([FoundCharacteristic], of: AttributeID)
    case descriptors([FoundDescriptor], of: AttributeID)
    case value(Data, of: AttributeID)
    case descriptorValue(Data, of: AttributeID)
    case written(AttributeID)
    case descriptorWritten(AttributeID)
    case notifying(Bool, of: AttributeID)
    /// In dBm; nil: not known.
    case rssi(Int16?)
    case failed(AttributeRequest, AppError)
}

/// A service in a peripheral's table.
struct FoundService: Codable, Sendable {
    let id: AttributeID
    /// The last element of BlueZ's path, `service000a`: its place in the table.
    let element: PathElement
    let uuid: CodableUUID
    let isPrimary: Bool
    /// A digest of its contents.
    let layout: String
}

/// A characteristic in a peripheral's table.
struct FoundCharacteristic: Codable, Sendable {
    let id: AttributeID
    /// `char000b`.
    let element: PathElement
    let uuid: CodableUUID
    let properties: Coded<CBCharacteristicProperties>
    /// From an earlier link.
    let value: [UInt8]?
}

/// A descriptor in a peripheral's table.
struct FoundDescriptor: Codable, Sendable {
    let id: AttributeID
    /// `desc000d`.
    let element: PathElement
    let uuid: CodableUUID
}

/// What has become of writes without response.
struct CommandProgress: Codable, Equatable, Sendable {
    /// How many do not wait any longer, and their bytes.
    var writes = 0
    var bytes = 0
    /// How many of them were dropped.
    var dropped = 0
    /// BlueZ's socket has no room for a write that waits.
    var isSocketFull = false

    /// What happens next is added.
    mutating func add(_ next: CommandProgress) {
        writes += next.writes
        bytes += next.bytes
        dropped += next.dropped
        isSocketFull = next.isSocketFull
    }
}
