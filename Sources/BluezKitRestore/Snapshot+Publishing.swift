package import Foundation

/// The preserved state of a peripheral manager.
extension Snapshot {
    /// A published service with all its contents.
    package struct LocalService: Codable, Equatable, Sendable {
        package var uuid: AttributeUUID
        package var isPrimary: Bool
        /// The included services by their index in the list; they precede this one.
        package var includedServices: [Int]
        package var characteristics: [LocalCharacteristic]
        /// Where it is in bluetoothd's table. Nil: not known, or written by an older BluezKit.
        package var placement: Placement?
        /// Which of the app's calls has added it, by which a keeper knows it. Nil: there is no keeper.
        package var call: UInt64?

        package init(
            uuid: AttributeUUID, isPrimary: Bool, includedServices: [Int], characteristics: [LocalCharacteristic],
            placement: Placement? = nil, call: UInt64? = nil
        ) {
            (self.uuid, self.isPrimary, self.placement, self.call) = (uuid, isPrimary, placement, call)
            (self.includedServices, self.characteristics) = (includedServices, characteristics)
        }
    }

    /// The place of a published service in a table of bluetoothd.
    package struct Placement: Codable, Equatable, Sendable {
        /// The handle of the service's declaration; those of its attributes follow.
        package var handle: UInt16
        /// The run of the bus, of bluetoothd and of the adapter to which the table belongs, as in
        /// ``Snapshot/bluetooth``.
        package var bluetooth: String

        package init(handle: UInt16, bluetooth: String) { (self.handle, self.bluetooth) = (handle, bluetooth) }
    }

    package struct LocalCharacteristic: Codable, Equatable, Sendable {
        package var uuid: AttributeUUID
        /// `CBCharacteristicProperties`.
        package var properties: UInt
        /// `CBAttributePermissions`.
        package var permissions: UInt
        /// The fixed value; nil: the app answers reads.
        package var value: Data?
        package var descriptors: [LocalDescriptor]
        /// `CBCentral.identifier` of the subscribed centrals. BlueZ ends the subscriptions with the process.
        package var subscribers: [UUID]

        package init(
            uuid: AttributeUUID, properties: UInt, permissions: UInt, value: Data?, descriptors: [LocalDescriptor],
            subscribers: [UUID]
        ) {
            (self.uuid, self.properties, self.permissions) = (uuid, properties, permissions)
            (self.value, self.descriptors, self.subscribers) = (value, descriptors, subscribers)
        }
    }

    /// A published L2CAP channel.
    package struct PublishedChannel: Codable, Equatable, Sendable {
        package var psm: UInt16
        /// Whether only encrypted links may open it.
        package var isEncrypted: Bool

        package init(psm: UInt16, isEncrypted: Bool) { (self.psm, self.isEncrypted) = (psm, isEncrypted) }
    }

    package struct LocalDescriptor: Codable, Equatable, Sendable {
        package var uuid: AttributeUUID
        /// One of the two, or neither.
        package var text: String?
        package var data: Data?

        package init(uuid: AttributeUUID, text: String?, data: Data?) {
            (self.uuid, self.text, self.data) = (uuid, text, data)
        }
    }
}
