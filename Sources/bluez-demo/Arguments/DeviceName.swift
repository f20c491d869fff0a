import Foundation

/// A device that the user names: by its identifier, or by its Bluetooth address, which does not say of which type it
/// is.
struct DeviceName: Equatable, CustomStringConvertible {
    /// As the user wrote it.
    let description: String
    /// That of the device, or those of a public and of a random address.
    let identifiers: [UUID]

    /// Nil: it is neither.
    init?(_ text: String) {
        description = text
        if let identifier = UUID(uuidString: text) {
            identifiers = [identifier]
            return
        }
        let bytes = text.split(separator: ":", omittingEmptySubsequences: false)
        guard bytes.count == 6, bytes.allSatisfy({ $0.count == 2 && $0.allSatisfy { $0.isASCII && $0.isHexDigit } })
        else { return nil }
        identifiers = [UUID](address: bytes.joined())
    }

    /// The identifier if there can be no other.
    var identifier: UUID? { identifiers.count == 1 ? identifiers.first : nil }
}

extension [UUID] {
    /// Those that BluezKit gives to a device with this address, 12 hexadecimal digits.
    fileprivate init(address: String) {
        self = ["00", "01"].compactMap { UUID(uuidString: "426C7A4B-\($0)00-8000-8000-\(address)") }
    }
}

extension UUID {
    /// The Bluetooth address in an identifier that BluezKit made, `F0:F1:F2:00:00:01`.
    var bluetoothAddress: String? {
        let text = uuidString
        guard text.hasPrefix("426C7A4B-") else { return nil }
        let digits = Array(text.suffix(12))
        return stride(from: 0, to: 12, by: 2).map { String(digits[$0...($0 + 1)]) }.joined(separator: ":")
    }
}
