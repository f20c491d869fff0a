public import BluezKit
import Foundation

/// The characteristics of the Device Information service that are texts. BluezKit addition.
/// - SeeAlso: Bluetooth SIG, Device Information Service 1.1, 3.1 to 3.6.
public enum DeviceInformationText: CaseIterable, Sendable {
    /// A text: 2A29, 2A24, 2A25, 2A27, 2A26 and 2A28, in this order.
    case manufacturerName, modelNumber, serialNumber, hardwareRevision, firmwareRevision, softwareRevision

    /// The text that this characteristic has; nil: another kind of characteristic.
    public init?(_ uuid: CBUUID) {
        guard let text = Self.allCases.first(where: { $0.uuid == uuid }) else { return nil }
        self = text
    }

    /// The characteristic that has it.
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

    /// Reads a text. Bytes that are no UTF-8 become U+FFFD; some devices end their texts with zeros: it ends at the
    /// first.
    /// - Important: It comes from the radio, and may hold line breaks and control characters.
    /// - Parameter value: `CBCharacteristic.value`. Nil, if there is none yet, is the only error.
    public static func text(of value: Data?) throws(CharacteristicValueError) -> String {
        guard let value else { throw .missing }
        return String(decoding: value.prefix { $0 != 0 }, as: UTF8.self)
    }

    /// A text as it goes on air: up to the first zero, and no longer than an attribute can be, 512 bytes.
    public static func data(_ text: String) -> Data {
        var data = Data()
        // Whole characters only: half a one would be read as something else.
        for character in text.prefix(while: { $0 != "\0" }) {
            guard data.count + character.utf8.count <= 512 else { break }
            data += Data(character.utf8)
        }
        return data
    }
}
