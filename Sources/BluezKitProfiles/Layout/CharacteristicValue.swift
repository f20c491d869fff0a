public import BluezKit
import Foundation

/// A typed value of a standard characteristic, in the layout of the Bluetooth SIG. BluezKit addition.
///
/// ```swift
/// func peripheral(
///     _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
/// ) {
///     guard characteristic.uuid == HeartRateMeasurement.uuid,
///         let measurement = try? HeartRateMeasurement(characteristic.value)
///     else { return }
///     print(measurement.beatsPerMinute)
/// }
/// ```
///
/// Reading what ``data`` produced returns an equal value. Bytes after the last known field, and reserved bits, are
/// ignored when reading, because later versions of a service may define them, and are never produced. Requests to
/// control points are the exception: what is longer than the request is refused.
///
/// What can be read is read. Fields that may be left out are nil where the value ends before or within them, and so are
/// fields that other fields do not depend on where the number is not assigned: it can be had as well (``Assigned``).
/// Everything else is an error, which names the field and has its number.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, 2 (the layout of values: little-endian).
public protocol CharacteristicValue: Equatable, Sendable {
    /// The characteristic that has values of this type.
    static var uuid: CBUUID { get }

    /// Reads a value as it was received. Any bytes are allowed: if they cannot be read, the error says why.
    /// - Parameter value: `CBCharacteristic.value`. Nil, before the first value, is an error.
    init(_ value: Data?) throws(CharacteristicValueError)

    /// The value as transmitted: for `writeValue`, `updateValue`, or `CBATTRequest.value`.
    var data: Data { get }
}

/// Why bytes are not a valid value of the characteristic. BluezKit addition.
public enum CharacteristicValueError: Error, Hashable, Sendable {
    /// There are no bytes, because the characteristic has not been read yet.
    case missing
    /// The bytes end before or within the field.
    case truncated(field: String)
    /// The field has a value that the Bluetooth SIG has not assigned.
    case reserved(field: String, value: Int)
    /// That many bytes follow the last field of a request to a control point.
    case trailing(bytes: Int)
    /// The checksum with which the value ends is wrong (E2E-CRC).
    case checksum
}

extension CharacteristicValueError: LocalizedError, CustomStringConvertible {
    /// One sentence, without a full stop.
    public var description: String {
        switch self {
        case .missing: "there is no value yet"
        case .truncated(let field): "the value ends within its \(field)"
        case .reserved(let field, let value): "the \(field) has the reserved value \(value)"
        case .trailing(let bytes): "the value is \(bytes) bytes too long"
        case .checksum: "the checksum of the value is wrong"
        }
    }

    /// The same as ``description``.
    public var errorDescription: String? { description }
}
