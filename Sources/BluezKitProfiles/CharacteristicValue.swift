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
/// Reading what ``data`` produced gives the same value again. Bytes after the last known field, and bits that are
/// reserved, are left alone when they are read, since later versions of a service may define them, and are not produced.
/// - SeeAlso: Bluetooth SIG, GATT Specification Supplement, 2 (how values are laid out: least significant byte first).
public protocol CharacteristicValue: Equatable, Sendable {
    /// The characteristic that has such values.
    static var uuid: CBUUID { get }

    /// Reads a value as the radio delivered it. Any bytes may come: they are read, or the error says what is wrong.
    /// - Parameter value: `CBCharacteristic.value`. Nil, if there is none yet, is an error.
    init(_ value: Data?) throws(CharacteristicValueError)

    /// The value as it goes on air: for `writeValue`, `updateValue`, or `CBATTRequest.value`.
    var data: Data { get }
}

/// Why bytes are not a value of the characteristic. BluezKit addition.
public enum CharacteristicValueError: Error, Hashable, Sendable {
    /// There are no bytes: the characteristic has not been read yet.
    case missing
    /// The bytes end before or within the field.
    case truncated(field: String)
    /// The field has a value that the Bluetooth SIG has not assigned.
    case reserved(field: String, value: Int)
}

extension CharacteristicValueError: LocalizedError, CustomStringConvertible {
    /// One sentence, without the full stop.
    public var description: String {
        switch self {
        case .missing: "there is no value yet"
        case .truncated(let field): "the value ends within its \(field)"
        case .reserved(let field, let value): "the \(field) has the reserved value \(value)"
        }
    }

    /// The same as ``description``.
    public var errorDescription: String? { description }
}
