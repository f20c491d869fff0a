package import Foundation

/// The preserved state of one manager: enough to recreate it in another process. There is one file for each role and
/// identifier.
package struct Snapshot: Codable, Equatable, Sendable {
    /// The two kinds of manager. Equal identifiers of different roles are unrelated.
    package enum Role: String, Codable, CaseIterable, Sendable { case central, peripheral }

    package var role: Role
    /// The app's restore identifier.
    package var identifier: String
    /// The program that wrote this, as the kernel reports it.
    package var app: String
    /// The start of the computer in which this was written (`/proc/sys/kernel/random/boot_id`).
    package var boot: String
    /// Identifies the run of the bus, of bluetoothd and of the adapter to which the links below belong. None of the
    /// links survives it.
    package var bluetooth: String?
    /// When it was written; informational only, because state does not expire (RS-18).
    package var saved: Date

    /// The running scan.
    package var scan: ScanRequest?
    /// Peripherals that are connected or being connected, in the order of the app's calls.
    package var peripherals: PeripheralTable = []
    /// Published services, in the order of the app's calls.
    package var services: [LocalService] = []
    /// The advertisement.
    package var advertisement: AdvertisementRequest?
    /// Published L2CAP channels, in the order of the app's calls. Nil: none, or written by an older BluezKit.
    package var channels: [PublishedChannel]?

    package init(role: Role, identifier: String, app: String, boot: String, saved: Date) {
        (self.role, self.identifier, self.app, self.boot, self.saved) = (role, identifier, app, boot, saved)
    }

    /// Whether there is nothing to restore.
    package var isEmpty: Bool {
        scan == nil && peripherals.isEmpty && services.isEmpty && advertisement == nil && (channels ?? []).isEmpty
    }

    /// Removes what ends when Bluetooth is switched off: everything except what is published.
    package mutating func switchOff() { (scan, peripherals, advertisement) = (nil, [], nil) }

    package struct Peripheral: Codable, Equatable, Sendable {
        package enum State: String, Codable, Sendable { case connecting, connected }

        /// `CBPeripheral.identifier`.
        package var identifier: UUID
        /// The identity address, if `identifier` is derived from a private address that the peripheral had when it was
        /// found.
        package var identity: UUID?
        package var name: String?
        /// Such as `hci0`.
        package var adapter: String?
        /// The address of the adapter, which keeps it when names change. Nil: not known, or written by an older
        /// BluezKit.
        package var adapterAddress: String?
        package var state: State
        /// Whether this computer and the peripheral were paired.
        package var isBonded: Bool
        /// What the app asked for when it connected.
        package var options: ConnectRequest
        /// Whether programs with BluezKit made the link, and may end it. Nil: not known, or not connected.
        package var isOurs: Bool?
        /// What was discovered on this link; nil: not discovered.
        package var services: [Service]?
        /// The PSMs of its open L2CAP channels, which end with the process. Nil: none.
        package var channels: [UInt16]?
        /// The connect, and which of its links, as a keeper that has the core of the manager numbers them. Nil: there
        /// is no keeper.
        package var connection: [UInt32]?

        package init(
            identifier: UUID, identity: UUID? = nil, name: String?, adapter: String?, adapterAddress: String? = nil,
            state: State, isBonded: Bool, options: ConnectRequest, isOurs: Bool? = nil, services: [Service]?,
            channels: [UInt16]? = nil, connection: [UInt32]? = nil
        ) {
            (self.identifier, self.identity, self.name) = (identifier, identity, name)
            (self.adapter, self.adapterAddress, self.state) = (adapter, adapterAddress, state)
            (self.isBonded, self.options, self.isOurs, self.services) = (isBonded, options, isOurs, services)
            (self.channels, self.connection) = (channels, connection)
        }
    }

    package struct Service: Codable, Equatable, Sendable {
        /// The last element of BlueZ's path, `service000a`.
        package var element: PathElement
        package var uuid: AttributeUUID
        package var isPrimary: Bool
        /// Discovered only as an included service of another one.
        package var isOnlyIncluded: Bool
        /// A digest of the complete contents, discovered or not, to detect changes.
        package var layout: String
        /// Nil: not discovered.
        package var includedServices: [PathElement]?
        /// Nil: not discovered.
        package var characteristics: [Characteristic]?
        /// The number by which a keeper knows it on this link. Nil: there is no keeper.
        package var number: UInt32?

        package init(
            element: PathElement, uuid: AttributeUUID, isPrimary: Bool, isOnlyIncluded: Bool, layout: String,
            includedServices: [PathElement]?, characteristics: [Characteristic]?, number: UInt32? = nil
        ) {
            (self.element, self.uuid, self.isPrimary) = (element, uuid, isPrimary)
            (self.isOnlyIncluded, self.layout) = (isOnlyIncluded, layout)
            (self.includedServices, self.characteristics) = (includedServices, characteristics)
            self.number = number
        }
    }

    package struct Characteristic: Codable, Equatable, Sendable {
        /// `char000b`.
        package var element: PathElement
        package var uuid: AttributeUUID
        /// `CBCharacteristicProperties`.
        package var properties: UInt
        /// Whether the app is subscribed to it.
        package var isNotifying: Bool
        /// Nil: not discovered.
        package var descriptors: [Descriptor]?
        /// As ``Service/number``.
        package var number: UInt32?

        package init(
            element: PathElement, uuid: AttributeUUID, properties: UInt, isNotifying: Bool, descriptors: [Descriptor]?,
            number: UInt32? = nil
        ) {
            (self.element, self.uuid, self.properties) = (element, uuid, properties)
            (self.isNotifying, self.descriptors, self.number) = (isNotifying, descriptors, number)
        }
    }

    package struct Descriptor: Codable, Equatable, Sendable {
        /// `desc000d`.
        package var element: PathElement
        package var uuid: AttributeUUID
        /// As ``Service/number``.
        package var number: UInt32?

        package init(element: PathElement, uuid: AttributeUUID, number: UInt32? = nil) {
            (self.element, self.uuid, self.number) = (element, uuid, number)
        }
    }
}

/// A UUID that `CBUUID` accepts: 4, 8 or 36 characters. It is validated because a file may contain anything, and
/// `CBUUID` traps.
package struct AttributeUUID: Codable, Hashable, Sendable {
    package let text: String

    package init?(_ text: String) {
        // Not `UUID(uuidString:)`, because that accepts shorter texts, signs, and anything after a NUL.
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
        guard let uuid = AttributeUUID(text) else { throw decoder.corrupted("\"\(text)\" is not an attribute UUID") }
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
        guard let element = PathElement(text) else {
            throw decoder.corrupted("\"\(text)\" is not an element of an object path")
        }
        self = element
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(text)
    }
}

extension Decoder {
    package func corrupted(_ what: String) -> DecodingError {
        .dataCorrupted(DecodingError.Context(codingPath: codingPath, debugDescription: what))
    }
}
