public import BluezKit
import Foundation

/// The text characteristics of the Device Information service. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Device Information Service 1.1, 3.1 to 3.6.
public enum DeviceInformationText: CaseIterable, Sendable {
    /// A text: 2A29, 2A24, 2A25, 2A27, 2A26 and 2A28, in this order.
    case manufacturerName, modelNumber, serialNumber, hardwareRevision, firmwareRevision, softwareRevision

    /// The text in this characteristic; nil: not a text characteristic.
    public init?(_ uuid: CBUUID) {
        guard let text = Self.allCases.first(where: { $0.uuid == uuid }) else { return nil }
        self = text
    }

    /// The characteristic that contains it.
    public var uuid: CBUUID {
        switch self {
        case .manufacturerName: Self.uuids[0]
        case .modelNumber: Self.uuids[1]
        case .serialNumber: Self.uuids[2]
        case .hardwareRevision: Self.uuids[3]
        case .firmwareRevision: Self.uuids[4]
        case .softwareRevision: Self.uuids[5]
        }
    }

    private static let uuids = ["2A29", "2A24", "2A25", "2A27", "2A26", "2A28"].map { CBUUID(string: $0) }

    /// Reads a text. A character that is cut off at the end is left out; other invalid UTF-8 becomes U+FFFD. The text
    /// ends at the first zero byte, because some devices terminate their texts with zeros.
    /// - Important: The text comes from another device and may contain line breaks and control characters.
    /// - Parameter value: `CBCharacteristic.value`. Nil, before the first value, is the only error.
    public static func text(of value: Data?) throws(CharacteristicValueError) -> String {
        guard let value else { throw .missing }
        return String(cut: value.prefix { $0 != 0 })
    }

    /// A text as transmitted: up to the first zero, and no longer than the maximum of an attribute, 512 bytes.
    public static func data(_ text: String) -> Data {
        var data = Data()
        // Whole characters only, because a truncated one would be read as something else.
        for character in text.prefix(while: { $0 != "\0" }) {
            guard data.count + character.utf8.count <= 512 else { break }
            data += Data(character.utf8)
        }
        return data
    }
}
