public import Foundation
import Synchronization

/// A characteristic of this app, in a ``CBMutableService``. It must not be changed after the service has been added:
/// to change it, remove the service, and add a new one.
///
/// ```swift
/// let model = CBMutableCharacteristic(  // fixed: read without the app
///     type: CBUUID(string: "2A24"), properties: .read, value: Data("L100".utf8), permissions: .readable)
/// let brightness = CBMutableCharacteristic(  // each read and write is a request to the app
///     type: CBUUID(string: "FFF1"), properties: [.read, .write, .notify], value: nil,
///     permissions: [.readable, .writeEncryptionRequired])
/// ```
/// Properties say what centrals may try, permissions what is allowed: give both. The configuration descriptor (2902)
/// of a characteristic with `.notify` or `.indicate` is made by the system.
/// - SeeAlso: Apple, `CBMutableCharacteristic`.
open class CBMutableCharacteristic: CBCharacteristic, @unchecked Sendable {  // holds: what changes is under a lock
    private struct Local: Sendable {
        var permissions: CBAttributePermissions
        var subscribedCentrals: [CBCentral]?
    }

    private let local: Mutex<Local>

    /// A characteristic.
    /// - Parameters:
    ///   - UUID: The type of the characteristic.
    ///   - properties: The properties that it declares to centrals.
    ///   - value: Not nil: the value, at most 512 bytes, never changes, centrals read it without involving the app, and
    ///     `properties` must be `.read` only, otherwise ``CBPeripheralManager/add(_:)`` stops the process (MIS-14).
    ///     Nil: each read and write is a request to the app.
    ///   - permissions: The access that centrals have to the value.
    public init(
        type UUID: CBUUID, properties: CBCharacteristicProperties, value: Data?, permissions: CBAttributePermissions
    ) {
        local = Mutex(Local(permissions: permissions))
        super.init(uuid: UUID, properties: properties, service: nil)
        setValue(value)
    }

    /// The access that centrals have to the value.
    open var permissions: CBAttributePermissions {
        get { local.withLock { $0.permissions } }
        set { local.withLock { $0.permissions = newValue } }
    }

    /// The subscribed centrals, already updated inside the callbacks that announce a change. Nil or empty: none, as
    /// after a restoration, and while Bluetooth is off.
    open var subscribedCentrals: [CBCentral]? { local.withLock { $0.subscribedCentrals } }

    /// The properties that it declares.
    open override var properties: CBCharacteristicProperties {
        get { super.properties }
        set { setProperties(newValue) }
    }

    /// The fixed value; nil: the app answers requests. `updateValue` does not change it.
    open override var value: Data? {
        get { super.value }
        set { setValue(newValue) }
    }

    /// Its descriptors. Each one's `characteristic` is set to this characteristic.
    open override var descriptors: [CBDescriptor]? {
        get { super.descriptors }
        set {
            for old in addDiscovered(descriptors: newValue) ?? [] where old.characteristic === self {
                old.setCharacteristic(nil)
            }
            for new in newValue ?? [] { new.setCharacteristic(self) }
        }
    }

    /// On the app's queue, just before the callback that announces the change (UP-7).
    func setSubscribed(_ isSubscribed: Bool, _ central: CBCentral) {
        local.withLock { local in
            let others = (local.subscribedCentrals ?? []).filter { $0.identifier != central.identifier }
            local.subscribedCentrals = isSubscribed ? others + [central] : others
        }
    }

    /// Bluetooth is off: no central is subscribed, and no callback is made.
    func forgetSubscribers() { local.withLock { $0.subscribedCentrals = nil } }
}
