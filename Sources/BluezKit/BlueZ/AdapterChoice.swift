/// Which of BlueZ's adapters an app asks for.
package enum AdapterChoice: Hashable, Sendable {
    /// Numbers follow the order in which the adapters appeared, and may be others after a restart.
    case name(String)
    /// As BlueZ writes it. It stays with the controller.
    case address(String)

    package init(_ text: String) {
        self = DeviceIdentity(address: text, isRandom: false).map { .address($0.addressText) } ?? .name(text)
    }

    package var text: String {
        switch self {
        case .name(let text), .address(let text): text
        }
    }

    /// Whether an adapter can have this name or address: `hci` and a number, or six bytes.
    package var isPossible: Bool {
        if case .address = self { true } else { name != nil }
    }

    /// Nil: it is not known by the choice alone.
    var name: String? {
        guard case .name(let name) = self, name.hasPrefix("hci") else { return nil }
        let number = name.utf8.dropFirst(3)
        let isNumber = !number.isEmpty && number.allSatisfy { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
        return isNumber ? name : nil
    }

    /// - Parameter address: Nil: it is not known.
    package func allows(_ name: String, address: String?) -> Bool {
        switch self {
        case .name(let chosen): name == chosen
        case .address(let chosen): address == chosen
        }
    }
}
