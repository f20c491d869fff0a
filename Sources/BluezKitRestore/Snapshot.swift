package import Foundation

/// What one manager is about: enough to bring it back in another process. There is one file for each role and
/// identifier.
package struct Snapshot: Codable, Equatable, Sendable {
    /// The two kinds of manager. Equal identifiers of different roles have nothing to do with each other.
    package enum Role: String, Codable, CaseIterable, Sendable { case central, peripheral }

    package var role: Role
    /// The app's restore identifier.
    package var identifier: String
    /// The program that wrote this, as the kernel names it.
    package var app: String
    /// Which start of the computer this is of (`/proc/sys/kernel/random/boot_id`).
    package var boot: String
    /// Which life of the bus, of bluetoothd and of the adapter the links below belong to. None of them survives it.
    package var bluetooth: String?
    /// When it was written, for people: nothing expires (RS-18).
    package var saved: Date

    /// The running scan.
    package var scan: Scan?
    /// Those that are connected or being connected, in the order of the app's calls.
    package var peripherals: PeripheralTable = []
    /// Those that are published, in the order of the app's calls.
    package var services: [LocalService] = []
    /// What is being advertised.
    package var advertisement: Advertisement?

    package init(role: Role, identifier: String, app: String, boot: String, saved: Date) {
        (self.role, self.identifier, self.app, self.boot, self.saved) = (role, identifier, app, boot, saved)
    }

    /// Whether there is nothing to bring back.
    package var isEmpty: Bool { scan == nil && peripherals.isEmpty && services.isEmpty && advertisement == nil }

    /// Ends what ends when Bluetooth is switched off: all but the services.
    package mutating func switchOff() { (scan, peripherals, advertisement) = (nil, [], nil) }

    package struct Scan: Codable, Equatable, Sendable {
        /// What the app filters by; nil: nothing.
        package var services: [AttributeUUID]?
        /// Nil where the app did not give the option.
        package var allowsDuplicates: Bool?
        package var solicitedServices: [AttributeUUID]?

        package init(services: [AttributeUUID]?, allowsDuplicates: Bool?, solicitedServices: [AttributeUUID]?) {
            (self.services, self.allowsDuplicates) = (services, allowsDuplicates)
            self.solicitedServices = solicitedServices
        }
    }

    package struct Peripheral: Codable, Equatable, Sendable {
        package enum State: String, Codable, Sendable { case connecting, connected }

        /// `CBPeripheral.identifier`.
        package var identifier: UUID
        /// Who it is, if `identifier` is of a private address that it had when it was found.
        package var identity: UUID?
        package var name: String?
        /// `hci0` or the like.
        package var adapter: String?
        package var state: State
        /// Whether this computer and the peripheral were paired.
        package var isBonded: Bool
        /// The app's `CBConnectPeripheralOption…` values, all of them numbers.
        package var options: [String: Double]
        /// What was discovered on this link; nil: nothing was asked for.
        package var services: [Service]?

        package init(
            identifier: UUID, identity: UUID? = nil, name: String?, adapter: String?, state: State, isBonded: Bool,
            options: [String: Double], services: [Service]?
        ) {
            (self.identifier, self.identity, self.name) = (identifier, identity, name)
            (self.adapter, self.state) = (adapter, state)
            (self.isBonded, self.options, self.services) = (isBonded, options, services)
        }
    }

    package struct Service: Codable, Equatable, Sendable {
        /// The last element of BlueZ's path, `service000a`.
        package var element: PathElement
        package var uuid: AttributeUUID
        package var isPrimary: Bool
        /// Not discovered by itself, but as included by another.
        package var isOnlyIncluded: Bool
        /// A digest of all that is in it, discovered or not: tells whether it has changed.
        package var layout: String
        /// Nil: not asked for.
        package var includedServices: [PathElement]?
        /// Nil: not asked for.
        package var characteristics: [Characteristic]?

        package init(
            element: PathElement, uuid: AttributeUUID, isPrimary: Bool, isOnlyIncluded: Bool, layout: String,
            includedServices: [PathElement]?, characteristics: [Characteristic]?
        ) {
            (self.element, self.uuid, self.isPrimary) = (element, uuid, isPrimary)
            (self.isOnlyIncluded, self.layout) = (isOnlyIncluded, layout)
            (self.includedServices, self.characteristics) = (includedServices, characteristics)
        }
    }

    package struct Characteristic: Codable, Equatable, Sendable {
        /// `char000b`.
        package var element: PathElement
        package var uuid: AttributeUUID
        /// `CBCharacteristicProperties`.
        package var properties: UInt
        /// Whether the app subscribes to it.
        package var isNotifying: Bool
        /// Nil: not asked for.
        package var descriptors: [Descriptor]?

        package init(
            element: PathElement, uuid: AttributeUUID, properties: UInt, isNotifying: Bool, descriptors: [Descriptor]?
        ) {
            (self.element, self.uuid, self.properties) = (element, uuid, properties)
            (self.isNotifying, self.descriptors) = (isNotifying, descriptors)
        }
    }

    package struct Descriptor: Codable, Equatable, Sendable {
        /// `desc000d`.
        package var element: PathElement
        package var uuid: AttributeUUID

        package init(element: PathElement, uuid: AttributeUUID) { (self.element, self.uuid) = (element, uuid) }
    }
}

/// A UUID as `CBUUID` takes it: 4, 8 or 36 characters. A file may hold anything, and `CBUUID` traps on it.
package struct AttributeUUID: Codable, Hashable, Sendable {
    package let text: String

    package init?(_ text: String) {
        // Not `UUID(uuidString:)`: that takes shorter ones, signs, and anything after a NUL.
        let bytes = Array(text.utf8)
        let hyphens: Set<Int> = bytes.count == 36 ? [8, 13, 18, 23] : []
        let isValid = bytes.enumerated().allSatisfy { index, byte in
            hyphens.contains(index) ? byte == UInt8(ascii: "-") : Character(Unicode.Scalar(byte)).isHexDigit
        }
        guard [4, 8, 36].contains(bytes.count), isValid else { return nil }
        self.text = text
    }

    package init(from decoder: any Decoder) throws {
        let text = try decoder.singleValueContainer().decode(String.self)
        guard let uuid = AttributeUUID(text) else { throw decoder.corrupted("\"\(text)\" is no attribute UUID") }
        self = uuid
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(text)
    }
}

/// One element of an object path: letters, digits and underscores.
package struct PathElement: Codable, Hashable, Sendable {
    package let text: String

    package init?(_ text: String) {
        let isValid = text.utf8.allSatisfy { byte in
            Unicode.Scalar(byte) == "_" || Character(Unicode.Scalar(byte)).isLetter && byte < 128
                || (0x30...0x39).contains(byte)
        }
        guard !text.isEmpty, text.utf8.count <= 64, isValid else { return nil }
        self.text = text
    }

    package init(from decoder: any Decoder) throws {
        let text = try decoder.singleValueContainer().decode(String.self)
        guard let element = PathElement(text) else { throw decoder.corrupted("\"\(text)\" is no element of a path") }
        self = element
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(text)
    }
}

extension Decoder {
    fileprivate func corrupted(_ what: String) -> DecodingError {
        .dataCorrupted(DecodingError.Context(codingPath: codingPath, debugDescription: what))
    }
}
