import BluezKitRestore
import BluezDBus
import Foundation

/// A service that the app has added, and that BlueZ is to have. Confined to the bus queue.
final class PublishedService {
    let core: PeripheralManagerCore
    /// Which call of the app's has added it.
    let call: UInt64
    let uuid: CBUUID
    let isPrimary: Bool
    let includes: [LocalService.Included]
    let characteristics: [PublishedCharacteristic]
    /// The app did not add it, but finds it there: it hears of no answer.
    let isResumed: Bool
    /// Where bluetoothd has placed it, in this process or an earlier one.
    private var placement: Snapshot.Placement?
    /// False once the app has taken it back: BlueZ may not have heard yet.
    private(set) var isPublished = true
    private(set) var path: ObjectPath = "/"
    /// The handle at which BlueZ is to place it; 0: at any.
    private(set) var wantedHandle: UInt16 = 0
    /// Where those are that it includes, which BlueZ finds in the same application only.
    private(set) var includedPaths: [ObjectPath] = []

    init(_ service: LocalService, core: PeripheralManagerCore, isResumed: Bool = false) {
        (self.core, call, self.isResumed) = (core, service.call, isResumed)
        (uuid, isPrimary, includes) = (service.uuid.uuid, service.isPrimary, service.includes)
        placement = service.placement
        characteristics = service.characteristics.enumerated().map { index, characteristic in
            PublishedCharacteristic(
                characteristic, id: LocalAttributeID(call: service.call, index: index), core: core)
        }
        for characteristic in characteristics { characteristic.service = self }
    }

    /// The app has taken it back.
    func withdraw() { isPublished = false }

    /// It was published by an earlier process, and comes back at its handles, as centrals may know them. Only in the
    /// table in which it was: that gives no handle to another service, but in another table BlueZ would take an equal
    /// service of another program, at the same handle, for this one.
    func returnToHandle(in table: String?) {
        if isResumed, let placement, placement.bluetooth == table { wantedHandle = placement.handle }
    }

    /// BlueZ has something else at its handle.
    func acceptAnyHandle() { wantedHandle = 0 }

    /// Gives it, and all that is in it, their paths.
    func place(at path: ObjectPath) {
        self.path = path
        for (number, characteristic) in characteristics.enumerated() {
            characteristic.path = path.child("char", number)
            for (number, descriptor) in characteristic.descriptors.enumerated() {
                descriptor.characteristicPath = characteristic.path
                descriptor.path = characteristic.path.child("desc", number)
            }
        }
    }

    /// - Parameter services: Those of its application, which have their paths.
    func placeIncluded(among services: [PublishedService]) {
        includedPaths = includes.compactMap { included in services.first { $0.call == included.call }?.path }
    }
}

/// A characteristic of a ``PublishedService``, as BlueZ sees it.
final class PublishedCharacteristic {
    let id: LocalAttributeID
    let uuid: CBUUID
    let core: PeripheralManagerCore
    let subscribers: CharacteristicSubscribers
    let properties: CBCharacteristicProperties
    let permissions: CBAttributePermissions
    /// Fixed: the app is not asked (PB-3).
    let value: [UInt8]?
    let descriptors: [PublishedDescriptor]
    fileprivate(set) var path: ObjectPath = "/"
    fileprivate(set) weak var service: PublishedService?

    init(_ characteristic: LocalCharacteristic, id: LocalAttributeID, core: PeripheralManagerCore) {
        (self.id, uuid, self.core) = (id, characteristic.uuid.uuid, core)
        subscribers = CharacteristicSubscribers(of: id, core)
        (properties, permissions) = (characteristic.properties.value, characteristic.permissions.value)
        value = characteristic.value
        descriptors = characteristic.descriptors.map(PublishedDescriptor.init)
    }

    // BlueZ asks about each access that it is not told to refuse, whatever the properties are (RQ-7).
    var canBeRead: Bool {
        properties.contains(.read) && !permissions.isDisjoint(with: [.readable, .readEncryptionRequired])
    }
    var canBeWritten: Bool {
        !properties.isDisjoint(with: [.write, .writeWithoutResponse, .authenticatedSignedWrites])
            && !permissions.isDisjoint(with: [.writeable, .writeEncryptionRequired])
    }
    var notifies: Bool { !properties.isDisjoint(with: [.notify, .notifyEncryptionRequired]) }
    var indicates: Bool { !properties.isDisjoint(with: [.indicate, .indicateEncryptionRequired]) }
    /// A central that subscribes gets indications, and confirms them.
    var isOnlyIndicated: Bool { indicates && !notifies }

    /// Properties and permissions in BlueZ's words. `encrypt-read` means `read`, and so on; so a characteristic that
    /// may only be written over an encrypted link, and without response or signed, can be written with response as
    /// well: no other word has BlueZ refuse what is not encrypted (src/gatt-database.c, `parse_chrc_flags`).
    /// - SeeAlso: BlueZ doc/org.bluez.GattCharacteristic.rst, `Flags`.
    var flags: [String] {
        var flags: [String] = []
        if properties.contains(.read) {
            flags.append(permissions.contains(.readEncryptionRequired) ? "encrypt-read" : "read")
        }
        let isGuarded = permissions.contains(.writeEncryptionRequired)
        if properties.contains(.write) { flags.append(isGuarded ? "encrypt-write" : "write") }
        if properties.contains(.writeWithoutResponse) { flags.append("write-without-response") }
        if properties.contains(.authenticatedSignedWrites) { flags.append("authenticated-signed-writes") }
        let others: CBCharacteristicProperties = [.writeWithoutResponse, .authenticatedSignedWrites]
        if isGuarded, !properties.contains(.write), !properties.isDisjoint(with: others) {
            flags.append("encrypt-write")
        }
        if notifies { flags.append(properties.contains(.notifyEncryptionRequired) ? "encrypt-notify" : "notify") }
        if indicates {
            flags.append(properties.contains(.indicateEncryptionRequired) ? "encrypt-indicate" : "indicate")
        }
        return flags
    }
}

/// A descriptor with its fixed value.
final class PublishedDescriptor {
    let uuid: CBUUID
    let value: [UInt8]
    /// Whether the app gave a value of a kind that has bytes.
    let isValid: Bool
    fileprivate(set) var path: ObjectPath = "/"
    fileprivate(set) var characteristicPath: ObjectPath = "/"

    init(_ descriptor: LocalDescriptor) {
        uuid = descriptor.uuid.uuid
        (value, isValid) = (descriptor.value ?? [], descriptor.value != nil)
    }
}

extension PublishedService {
    /// Why BlueZ, or Apple, would not take it; nil: nothing speaks against it.
    func flaw(allowsSystemServices: Bool) -> CBError? {
        // PB-7: the check sees the short form only.
        if !allowsSystemServices, uuid.length == 2, let number = uuid.numberOnBase,
            [0x1800, 0x1801, 0x1805, 0x180A, 0x180F, 0x1812, 0x181E].contains(number)
        {
            return CBError(.uuidNotAllowed, reason: "\(uuid) is a service of the system")
        }
        return characteristics.lazy.compactMap(\.flaw).first
    }
}

extension PublishedCharacteristic {
    fileprivate var flaw: CBError? {
        let name = "characteristic \(uuid)"
        func invalid(_ reason: String) -> CBError { CBError(.invalidParameters, reason: "\(name) \(reason)") }
        // PB-9
        if !properties.isDisjoint(with: [.broadcast, .extendedProperties]) {
            return invalid("may have neither of the properties broadcast and extendedProperties")
        }
        if flags.isEmpty { return invalid("has no properties") }
        if let value, value.count > 512 { return invalid("has a value of \(value.count) bytes: 512 is the limit") }
        for descriptor in descriptors {
            // PB-8
            if let number = descriptor.uuid.numberOnBase, [0x2900, 0x2902, 0x2903].contains(number) {
                return invalid("has a descriptor \(descriptor.uuid), which the system makes itself")
            }
            if !descriptor.isValid { return invalid("has a descriptor whose value is neither Data nor String") }
            if descriptor.value.count > 512 { return invalid("has a descriptor of more than 512 bytes") }
        }
        return nil
    }
}

extension CBError {
    /// An error of this library's own, with its reason in words.
    init(_ code: Code, reason: String) {
        self.init(
            code,
            userInfo: [
                NSLocalizedFailureReasonErrorKey: reason, NSLocalizedDescriptionKey: "\(code.text) (\(reason))",
            ])
    }
}
